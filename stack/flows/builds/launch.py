"""A command in a prefix: the environment's programs, the layers before its packages."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from stack.bench.environment import caches
from stack.bench.render import render_env
from stack.flows.builds import environment
from stack.flows.builds.serve import base_of, choose, current, refuse_gone
from stack.flows.builds.shadow import import_name
from stack.flows.events import Emit, Said
from stack.model.project.serving import Serving
from stack.store.project import Project


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """A command with the environment in which it runs a prefix."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    serving: Serving


def launch(
    project: Project, argv: Sequence[str], emit: Emit, *, profile: str | None = None,
    line: str | None = None, switched_on: bool = False, outer: Mapping[str, str], folder: Path,
) -> Launch:
    """A command in the prefix that `line` names, in the one in use, or in the whole profile.

    The environment's programs come first on PATH, its layers first on PYTHONPATH. Compile caches
    are those of the prefix unless `outer` names others. With `switched_on` the `env` of its patches
    is set where `outer` does not set it.
    """
    name, settings = project.profile(profile)
    serving = None if line else current(project, name)
    if serving is not None:
        refuse_gone(project, serving)
    else:
        serving = choose(project, name, line, emit)
    base = base_of(project, name, settings)
    values = environment.values(project, base, name)
    env = {key: text for key, text in outer.items() if key not in ("PYTHONHOME", "PYTHONSTARTUP")}
    wanted = render_env(settings.env, values, f"stack.toml: profile.{name}.env")
    wanted |= dict(serving.env) if switched_on else {}
    store = project.paths.engine_caches / f"run-{_key(serving)}"
    for key, text in {**wanted, **caches(store)}.items():
        env.setdefault(key, text)
    paths = [str(project.paths.layers / one.place) for one in serving.layers]
    paths += [outer["PYTHONPATH"]] if outer.get("PYTHONPATH") else []
    env["PATH"] = os.pathsep.join([str(base.python.parent), outer.get("PATH", os.defpath)])
    env |= {"PYTHONPATH": os.pathsep.join(paths), "VIRTUAL_ENV": str(base.venv)}
    _warn_of_shadow(project, serving, argv, env, folder, emit)
    return Launch(argv=tuple(argv), env=env, serving=serving)


def _key(serving: Serving) -> str:
    text = "\n".join([serving.base, *(one.place for one in serving.layers)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _warn_of_shadow(
    project: Project, serving: Serving, argv: Sequence[str], env: Mapping[str, str], folder: Path,
    emit: Emit,
) -> None:
    """Python looks for modules in the working folder first, before any layer."""
    if not Path(argv[0]).name.startswith("python") or "PYTHONSAFEPATH" in env or "-P" in argv:
        return
    for one in serving.layers:
        upstream = project.settings.upstream.get(one.line.partition("/")[0])
        for name in map(import_name, upstream.packages if upstream else ()):
            if (folder / name / "__init__.py").exists():
                text = f"./{name} may be imported instead of the layer; run it from another folder"
                emit(Said(text, warning=True))
