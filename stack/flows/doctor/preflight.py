"""`preflight`: whether the engine can load a model with the arguments of a bench, asked before."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from stack.bench.render import render, render_all, render_env
from stack.errors import ConfigError, StackError
from stack.flows import trust
from stack.flows.builds import environment
from stack.flows.builds.layers import PROBE
from stack.flows.doctor import preflight_files
from stack.host.process import capture
from stack.model.line.line import near
from stack.model.preflight.arguments import Arguments
from stack.model.preflight.arguments import read as read_arguments
from stack.model.preflight.case import Case, Point, Release
from stack.model.preflight.preflight import points
from stack.model.project.settings import Profile
from stack.store.paths import CONFIG
from stack.store.project import Project


def look(
    project: Project, name: str, bench: str, *, env: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (), folder: Path | None = None, memory: float | None = None,
) -> list[Point]:
    """Every point of one bench of a profile.

    `env` and `arguments` are set over those of the bench, as a screen does. `folder` is the
    checkpoint, without it the one that the arguments or the profile name; no point where it is not
    there. `memory` is what each device has in GiB, without it what the profile says.
    Raises `ConfigError` for a bench that nobody described, or a dry run that fails, `Untrusted`
    where the profile's dry run was not allowed.
    """
    profile = project.settings.profile[name]
    values = _values(project, name)
    at = folder or _declared(profile, name, values)
    if at is None and profile.dry_run and profile.checkpoint is not None:
        return []
    asked = _asked(project, name, profile, bench, values, env or {}, arguments)
    named = Path(asked.model) if asked.model else None
    at = at or (named if named and named.is_absolute() and _holds(named) else None)
    if at is None:
        return []
    model = preflight_files.read(at)
    weights = model.weights
    if weights is None and profile.checkpoint is not None:
        weights = profile.checkpoint.weights
    return list(points(Case(
        shape=model.shape, tensors=model.tensors, asked=asked, hardware=profile.hardware,
        weights=weights, memory=memory or profile.hardware.memory, release=_release(profile),
    )))


def refused(found: Sequence[Point]) -> Point | None:
    """The first refusal, or None where nothing speaks against a load."""
    return next((point for point in found if point.result == "refused"), None)


def _values(project: Project, name: str) -> dict[str, object]:
    """The names of templates; without a base the interpreter that runs us stands for its Python."""
    values: dict[str, object] = {
        "root": str(project.paths.root), "python": sys.executable,
        "cache": str(project.paths.engine_caches), "models": str(environment.models(project)),
        "cpus": len(os.sched_getaffinity(0)), "profile": name, "drivers": str(PROBE.parent),
        "out": "out", "layer": "",
    }
    try:
        wanted = environment.wanted(project, name, project.settings.profile[name])
        base = environment.find(project, wanted)
    except StackError:
        return values
    return values if base is None else {**values, "python": str(base.python)}


def _asked(
    project: Project, name: str, profile: Profile, bench_name: str, values: Mapping[str, object],
    env: Mapping[str, str], more: Sequence[str],
) -> Arguments:
    bench = project.settings.bench.get(bench_name)
    if bench is None:
        hint = near(bench_name, list(project.settings.bench), CONFIG)
        raise ConfigError(f"no bench `{bench_name}` in stack.toml", hint=hint)
    knobs = render_env({**profile.env, **bench.env, **env}, values, f"stack.toml: {bench_name}")
    if not profile.dry_run:
        argv = render_all(bench.command, values, f"stack.toml: bench.{bench_name}.command")
        return read_arguments([*argv, *more], knobs)
    where = f"stack.toml: profile.{name}.dry-run"
    argv = render_all(profile.dry_run, values, where)
    trust.require(project)
    code, out, err = capture([*argv, *more], env={**os.environ, **knobs})
    if code:
        last = (err or out).decode("utf-8", "replace").strip().splitlines()[-3:]
        text = f"{where}: ended with exit code {code}"
        raise ConfigError(text, context=last, hint=shlex.join(argv))
    return read_arguments(shlex.split(out.decode("utf-8", "replace")), knobs)


def _declared(profile: Profile, name: str, values: Mapping[str, object]) -> Path | None:
    if profile.checkpoint is None or not profile.checkpoint.path:
        return None
    where = f"stack.toml: profile.{name}.checkpoint.path"
    found = Path(render(profile.checkpoint.path, values, where))
    return found if _holds(found) else None


def _holds(folder: Path) -> bool:
    return (folder / "config.json").is_file()


def _release(profile: Profile) -> Release:
    """The release of vLLM that the profile installs, () where it says none."""
    for text in profile.packages:
        if match := re.match(r"vllm(?:-cpu)?\s*==\s*([\d.]+)", text):
            return tuple(int(part) for part in match[1].strip(".").split("."))
    return ()
