"""`build --print`: the steps of a build as a shell script that anybody can read and run by hand."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from stack.bench.render import render, render_all, render_env
from stack.errors import ConfigError
from stack.flows import needs
from stack.flows.builds.jobs import Job, job_of, jobs
from stack.flows.builds.shadow import import_name
from stack.model.project.settings import Profile
from stack.store.project import Line, Project

HEAD = """#!/usr/bin/env bash
# stack build --profile {name} --print: the same steps by hand, in a folder of their own.
# It stops at the first step that fails and can be run again.
set -euo pipefail
unset "${{!PYTHON@}}"
cd {root}
rm -rf -- {hand}
mkdir -p -- {hand}
"""
BASE = 'import json, sys; print(json.load(open(sys.argv[1]))["base"])'


def script(project: Project, profile_name: str | None) -> str:
    """The script of a profile; the same text for the same project, whatever this machine has.

    Raises what `build` raises before it needs a machine: `ConfigError`, `StateError` for unmet
    needs.
    """
    name, profile = project.profile(profile_name)
    needs.check(project, name, needs.lines_of(project, name))
    writer = _Writer(project, name, profile)
    return HEAD.format(name=name, root=_q(project.paths.root), hand=_q(writer.hand)) + "\n".join(
        writer.lines()
    )


class _Writer:
    """Writes the parts of a script."""

    def __init__(self, project: Project, name: str, profile: Profile) -> None:
        self.project, self.name, self.profile = project, name, profile
        self.where = f"stack.toml: profile.{name}"
        self.hand = project.paths.state / "by-hand" / name
        self.venv = self.hand / "venv"
        self.version = _version(profile.python, f"{self.where}.python")
        self.site = self.venv / f"lib/python{self.version}/site-packages"
        models = (self.hand if profile.prepare else project.paths.state) / "models"
        self.values: dict[str, object] = {
            "root": str(project.paths.root), "python": str(self.venv / "bin/python"),
            "cache": str(self.hand / "caches"), "models": str(models),
            "cpus": len(os.sched_getaffinity(0)), "profile": name, "venv": str(self.venv),
            "site_packages": str(self.site),
        }

    def lines(self) -> Iterator[str]:
        listed = jobs(self.project, self.name, self.profile)
        yield from self._base()
        yield "\n# The lines: each patch becomes a commit in its line's workspace"
        yield f"stack apply --profile {_q(self.name)}"
        layers: list[Path] = []
        for line in map(self.project.find, self.profile.lines):
            layer = self.hand / "layers" / line.id
            layers.append(layer)
            job = job_of(listed, line)
            yield from self._recipe(job, line, layer) if job else self._shadow(line, layer)
        for job in listed:
            if job.line is None:
                layers.append(self.hand / "layers" / "recipe" / job.name)
                yield from self._recipe(job, None, layers[-1])
        yield from self._prepare()
        yield "\n# How to use it"
        path = ":".join(map(str, layers))
        yield f"printf 'export PYTHONPATH=%q\\n' {_q(path)}"
        for key, text in self.profile.env.items():
            yield f"printf 'export %s=%q\\n' {key} {_q(self._text(text, f'env.{key}'))}"
        yield f"printf '%q\\n' {_q(self.values['python'])}\n"

    def _base(self) -> Iterator[str]:
        """Wheels of the whole closure, without what is left out, into a new environment."""
        python, wheels = _q(self.values["python"]), _q(self.hand / "wheels")
        profile = self.profile
        yield f"\n# The base environment: Python {profile.python}"
        yield f"python{self.version} -m venv {_q(self.venv)}"
        indexes = render_all(profile.indexes, self.values, f"{self.where}.indexes")
        options = [part for url in indexes for part in ("--extra-index-url", url)]
        packages = render_all(profile.packages, self.values, f"{self.where}.packages")
        env = render_env(profile.install_env, self.values, f"{self.where}.install-env")
        if env:  # pip would take a wheel that was built for another device
            env = {"PIP_CACHE_DIR": str(self.hand / "pip"), **env}
        said = "".join(f"{key}={_q(text)} " for key, text in env.items())
        yield (
            f"{said}{python} -m pip wheel --wheel-dir {wheels} {_join([*options, *packages])}"
        )
        for gone in profile.leave_out:
            yield f"rm -f -- {wheels}/{_q(re.sub(r'[-_.]+', '_', gone))}-*.whl"
        yield f"{python} -m pip install --no-deps {wheels}/*.whl"

    def _shadow(self, line: Line, layer: Path) -> Iterator[str]:
        """The installed packages with the files that the line changes."""
        home = self.project.paths.workspace(line.series.upstream, line.series.pin.label)
        tree, receipt = _q(home / "tree"), _q(home / "receipt.json")
        packages = self.project.settings.upstream[line.series.upstream].packages
        yield f"\n# {line.id}: the installed packages, with the files that its patches change"
        yield f"mkdir -p -- {_q(layer)}"
        for package in packages:
            yield f"cp -R -- {_q(self.site / import_name(package))} {_q(layer)}/"
            # a compiled file counts as current where size and second of its source are the same
            yield f"find {_q(layer)} -name __pycache__ -prune -exec rm -rf {{}} +"
        yield f"base=$({_q(self.values['python'])} -c {_q(BASE)} {receipt})"
        show = f'git -C {tree} show "HEAD:$file"'
        for package in packages:
            above = package.removesuffix(import_name(package))
            at = f'{_q(layer)}/"${{file#{above}}}"' if above else f'{_q(layer)}/"$file"'
            for kind, does in (
                ("d", f'mkdir -p -- "$(dirname -- {at})"\n  {show} > {at}'),
                ("D", f"rm -f -- {at}"),
            ):
                yield (
                    f"git -C {tree} diff -z --name-only --no-renames --diff-filter={kind} "
                    f'"$base" HEAD -- {_q(package)} |\nwhile IFS= read -r -d \'\' file; do\n'
                    f"  {does}\ndone"
                )

    def _recipe(self, job: Job, line: Line | None, layer: Path) -> Iterator[str]:
        """A recipe in a folder that holds what it reads, and its outputs as a layer."""
        recipe, build = job.recipe, self.hand / "build" / job.name
        yield f"\n# {line.id if line else 'this project'}: recipe {job.name}"
        yield f"mkdir -p -- {_q(build)} {_q(layer)}"
        if line is not None:
            home = self.project.paths.workspace(line.series.upstream, line.series.pin.label)
            reads = _join(recipe.reads)
            yield (
                f"git -C {_q(home / 'tree')} archive HEAD -- {reads} | tar -x -f - -C {_q(build)}"
            )
        else:
            yield f"tar -c -f - -- {_join(recipe.reads)} | tar -x -f - -C {_q(build)}"
        folder = build / recipe.folder
        yield f"(\n  cd {_q(folder)}"
        if recipe.unset:
            yield f"  unset {' '.join(recipe.unset)}"
        folders = render_all(recipe.path, self.values, f"{job.where}.path")
        before = ":".join([*folders, str(self.venv / "bin")])
        yield f'  export PATH={_q(before)}:"$PATH"'
        for key, text in render_env(recipe.env, self.values, f"{job.where}.env").items():
            yield f"  export {key}={_q(text)}"
        if recipe.clean:
            yield f"  rm -rf -- {' '.join(map(_pattern, recipe.clean))}"
        for at, argv in enumerate(recipe.toolchain):
            yield f"  {_join(render_all(argv, self.values, f'{job.where}.toolchain[{at}]'))}"
        command = _join(render_all(recipe.command, self.values, f"{job.where}.command"))
        yield f"  {command or ':'}\n)"
        outputs = _join([str(folder / name) for name in recipe.outputs])
        yield f"cp -RL -- {outputs} {_q(layer)}/"

    def _prepare(self) -> Iterator[str]:
        if not self.profile.prepare:
            return
        yield "\n# What is made once"
        yield f"mkdir -p -- {_q(self.values['models'])}"
        env = render_env(self.profile.env, self.values, f"{self.where}.env")
        said = "".join(f"{key}={_q(text)} " for key, text in env.items())
        for at, argv in enumerate(self.profile.prepare):
            yield said + _join(render_all(argv, self.values, f"{self.where}.prepare[{at}]"))

    def _text(self, text: str, key: str) -> str:
        return render(text, self.values, f"{self.where}.{key}")


def _version(wanted: str, where: str) -> str:
    """The oldest `3.N` that a version range allows, for which there are most wheels."""
    try:
        allowed = SpecifierSet(wanted)
    except InvalidSpecifier:
        raise ConfigError(f"{where}: {wanted!r} is not a version range like >=3.11,<3.14") from None
    fits = (f"3.{minor}" for minor in range(9, 21) if allowed.contains(f"3.{minor}.5"))
    return next(fits, "3")


def _q(text: object) -> str:
    return shlex.quote(str(text))


def _join(words: Sequence[str]) -> str:
    return " ".join(map(_q, words))


def _pattern(text: str) -> str:
    """A shell pattern with everything but its wildcards quoted."""
    parts = re.split(r"([*?]+|\[[^\]]*\])", text)
    return "".join(part if at % 2 else _q(part) if part else "" for at, part in enumerate(parts))
