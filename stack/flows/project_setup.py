"""Begin a project: its `stack.toml`, its upstreams and its lines."""

from __future__ import annotations

import re
from pathlib import Path

from stack.errors import StateError, UsageError
from stack.flows.events import Emit
from stack.flows.pins import resolve_pin
from stack.flows.transaction import Change, commit, workspace_of, writing
from stack.model import edit
from stack.model.line import Pin
from stack.repo import mirror as mirrors
from stack.repo.odb import ObjectStore
from stack.store import atomic, lock
from stack.store.paths import CONFIG
from stack.store.project import SERIES, Project, names

_BEGINNING = b"""\
# What this project keeps alive. Next: stack upstream add NAME URL|PATH|pypi:PACKAGE
schema = 1
"""
_NAME = re.compile(r"[a-z0-9][a-z0-9._+-]{0,79}\Z")


def init(folder: Path) -> Path:
    """Write a first `stack.toml` in `folder`; refuses where one stands."""
    config = folder / CONFIG
    if config.exists():
        raise StateError(f"{config}: there is a project already", hint="stack upstream add")
    folder.mkdir(parents=True, exist_ok=True)
    atomic.write(config, _BEGINNING)
    (folder / "patches").mkdir(exist_ok=True)
    return config


def add_upstream(project: Project, name: str, where: str) -> dict[str, str]:
    """Name a source of an upstream: a git URL, the path of a repository, or `pypi:PACKAGE`.

    A second call with the same name adds another source. The keys that were written.
    """
    if not _NAME.match(name):
        raise UsageError(f"`{name}` cannot name an upstream", hint="small letters, digits, . _ -")
    values: dict[str, str] = {}
    if where.startswith("pypi:"):
        values["sdist"] = where.removeprefix("pypi:")
    elif re.match(r"[a-z][a-z0-9+.-]*://|[\w.-]+@[\w.-]+:", where):
        values["git"] = where
    else:
        path = Path(where).expanduser()
        objects = mirrors.objects_of(path)
        if objects is None:
            raise UsageError(
                f"{where}: neither a URL, nor pypi:PACKAGE, nor a git repository",
                hint="stack upstream add NAME URL|PATH|pypi:PACKAGE",
            )
        values["path"] = str(path.resolve())
    with lock.hold(project.paths.lock, "upstream add", wait=30):
        text = edit.set_table(project.paths.config.read_bytes(), ["upstream", name], values)
        atomic.write(project.paths.config, text)
    return values


def add_line(
    project: Project, text: str, emit: Emit, *, label: str | None = None,
    command: tuple[str, ...] = (),
) -> Pin:
    """Make an empty line at `NAME@REV`: a commit, tag or branch, or a release on PyPI."""
    name, _, revision = text.partition("@")
    name, upstream = project.upstream(name)
    if not revision:
        raise UsageError(f"`{text}` names no revision", hint=f"stack line add {name}@REV")
    for existing in project.labels(name):
        series = project.series(name, existing)
        if label is None and names(series, revision):
            raise StateError(
                f"line {series.id} is pinned there already",
                hint=f"--label LABEL makes a second line at the same pin; stack list {name}",
            )
    with writing(project, f"line add {text}", emit):
        pin = resolve_pin(project, name, revision, emit, label=label)
        if (project.paths.line(name, pin.label) / SERIES).exists():
            raise StateError(f"line {name}/{pin.label} exists", hint="--label LABEL names another")
        workspace = workspace_of(project, name, pin.label)
        with ObjectStore(workspace.repository) as odb:
            files = {SERIES: edit.new_series(name, pin)}
            change = Change(upstream=name, label=pin.label, files=files)
            commit(project, odb, change, command, f"began line {name}/{pin.label}")
        if upstream.default is None and len(project.labels(name)) == 1:
            text_ = edit.set_table(
                project.paths.config.read_bytes(), ["upstream", name], {"default": pin.label}
            )
            atomic.write(project.paths.config, text_)
    return pin
