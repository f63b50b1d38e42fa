"""What a project would run on this machine, and whether its user has allowed that.

A project that was cloned is somebody else's text until its user says otherwise: packages, recipes,
`prepare` and benches of its `stack.toml` run as the user who types the verb. So they are asked for
once, and again when they change. The answer is kept outside of the project, which could bring it
along.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from stack.errors import Untrusted
from stack.store import atomic, paths
from stack.store.project import Project

VARIABLE = "STACK_TRUST"
_SHOWN = 24


def require(project: Project) -> None:
    """Raise `Untrusted`, with what would run, unless this very set was allowed here."""
    if os.environ.get(VARIABLE) == "1" or _note(project).exists():
        return
    told = list(dict.fromkeys(commands(project)))
    more = [f"and {len(told) - _SHOWN} more"] if len(told) > _SHOWN else []
    raise Untrusted(
        f"{project.shown(project.paths.config)}: this project's commands were never allowed on "
        "this machine, or have changed since",
        context=[*told[:_SHOWN], *more],
        hint="read them, then run the same with --trust",
    )


def allow(project: Project) -> Path:
    """Remember the project's commands as they are now; the note that says so."""
    note = _note(project)
    text = "".join(f"{line}\n" for line in dict.fromkeys(commands(project)))
    atomic.write(note, f"{project.paths.root.resolve()}\n\n{text}".encode(), mode=0o600)
    return note


def commands(project: Project) -> Iterator[str]:
    """What `build`, `verify`, `screen` and `bisect` may run, as text, in the order of the file."""
    settings = project.settings
    for name, profile in settings.profile.items():
        where = f"profile.{name}"
        if profile.packages or profile.indexes:
            extra = [f"--extra-index-url {index}" for index in profile.indexes]
            yield f"{where}: pip install {' '.join([*profile.packages, *extra])}"
        for at, argv in enumerate(profile.prepare):
            yield f"{where}.prepare[{at}]: {_text(argv)}"
        if profile.dry_run:
            yield f"{where}.dry-run: {_text(profile.dry_run)}"
    for name, recipe in settings.recipe.items():
        if recipe.command:
            yield f"recipe.{name}: {_text(recipe.command)}"
        for argv in recipe.toolchain:
            yield f"recipe.{name}.toolchain: {_text(argv)}"
    for name, bench in settings.bench.items():
        yield f"bench.{name}: {_text(bench.command)}"
        if bench.gate is not None:
            yield f"bench.{name}.gate: {_text(bench.gate.command)}"
    for name, screen in settings.screen.items():
        yield f"screen.{name}: bench.{screen.bench} with {', '.join(screen.knob)}"


def _text(argv: Sequence[str]) -> str:
    return shlex.join(argv)


def _note(project: Project) -> Path:
    """Where the permission of a project's commands stands: by place and content.

    All of the tables count, environment and paths too: what a command does hangs on them.
    """
    settings = project.settings
    tables = msgspec.to_builtins(
        (settings.profile, settings.recipe, settings.bench, settings.screen)
    )
    content = msgspec.json.encode([str(project.paths.root.resolve()), tables], order="sorted")
    return paths.state_home() / "trusted" / hashlib.sha256(content).hexdigest()
