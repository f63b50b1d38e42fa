"""The `prepare` commands of a profile: each runs once, and what it makes appears whole."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

import msgspec

from stack.bench.render import render_all, render_env
from stack.errors import BuildFailed
from stack.flows.builds.environment import Base, models, values
from stack.flows.events import Emit, Progress, Said
from stack.host import process
from stack.model.project.build import PREPARED_SCHEMA, PreparedRecord
from stack.model.project.settings import Profile
from stack.store import atomic
from stack.store.project import Project


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A `prepare` command: its text in stack.toml, where that stands, and the key of its result."""

    text: tuple[str, ...]
    where: str
    key: str


def tasks(project: Project, base: Base, name: str, profile: Profile) -> list[Task]:
    """The commands with their keys: the text, the files of the project that it names, the base.

    The key holds no path of this machine, so a moved project keeps what was made.
    """
    symbols = {
        **values(project, base, name), "root": ".", "python": base.record.key, "cache": "cache",
        "models": "models",
    }
    found = []
    for at, text in enumerate(profile.prepare):
        where = f"stack.toml: profile.{name}.prepare[{at}]"
        rendered = render_all(text, symbols, where)
        scripts = [_digest(project.paths.root / part) for part in rendered]
        said = [PREPARED_SCHEMA, rendered, scripts, sorted(profile.env.items())]
        key = hashlib.sha256(msgspec.json.encode(said)).hexdigest()[:16]
        found.append(Task(text=text, where=where, key=key))
    return found


def pending(project: Project, listed: Sequence[Task]) -> list[Task]:
    """The tasks whose result is not there."""
    return [task for task in listed if not _is_done(project, task)]


def run(
    project: Project, base: Base, task: Task, emit: Emit, *, name: str, profile: Profile
) -> tuple[str, ...]:
    """Run one task; the names of what it made among the models. Raises `BuildFailed`.

    The command sees an empty folder as `models`; what it leaves there is moved when it ends well.
    """
    home = models(project)
    home.mkdir(parents=True, exist_ok=True)
    atomic.sweep(home)
    staging = home / f".prepare.{secrets.token_hex(4)}.tmp"
    staging.mkdir()
    names = {**values(project, base, name), "models": str(staging)}
    command = render_all(task.text, names, task.where)
    extra = render_env(profile.env, names, f"stack.toml: profile.{name}.env")
    log = project.paths.logs / f"prepare-{task.key}.log"
    log.unlink(missing_ok=True)
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    try:
        done = process.run(
            command, log=log, cwd=project.paths.root,
            env={**kept, "PYTHONDONTWRITEBYTECODE": "1", **extra},
            on_tick=lambda seconds, _: emit(Progress("preparing", detail=f"{seconds:.0f} s")),
        )
        made = sorted(entry.name for entry in staging.iterdir())
        if not done.ok or not made:
            raise _failed(project, task, log, done, made)
        for record in _records(home).glob("*.json"):
            if set(_made(record)) & set(made):
                record.unlink()
        for entry in made:
            atomic.discard(home / entry)
            (staging / entry).rename(home / entry)
        atomic.sync_folder(home)
        written = PreparedRecord(
            key=task.key, command=task.text, made=tuple(made), seconds=round(done.seconds, 1)
        )
        atomic.write(_records(home) / f"{task.key}.json", msgspec.json.encode(written))
    finally:
        atomic.discard(staging)
    emit(Said(f"prepared {', '.join(made)} in {done.seconds:.1f} s"))
    return tuple(made)


def _failed(
    project: Project, task: Task, log: Path, done: process.Finished, made: Sequence[str]
) -> BuildFailed:
    text = log.read_text(encoding="utf-8", errors="replace")
    last = [line[:200] for line in text.splitlines() if line.strip()][-6:]
    what = f"ended with {done.exit_code}"
    if done.ok and not made:
        what = "made nothing in {{ models }}"
    return BuildFailed(
        f"{task.where}: the command {what}",
        context=[f"log: {project.shown(log)}", *(f"| {line}" for line in last)],
        hint="correct the command or its script, then run stack build again",
    )


def _digest(path: Path) -> str | None:
    """The content of a file that a command names, its script for one."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except (OSError, ValueError):
        return None


def _is_done(project: Project, task: Task) -> bool:
    home = models(project)
    made = _made(_records(home) / f"{task.key}.json")
    return bool(made) and all((home / entry).exists() for entry in made)


def _records(home: Path) -> Path:
    return home / ".records"


def _made(path: Path) -> tuple[str, ...]:
    try:
        record = msgspec.json.decode(path.read_bytes(), type=PreparedRecord)
    except (FileNotFoundError, msgspec.DecodeError):
        return ()
    return record.made if record.schema == PREPARED_SCHEMA else ()
