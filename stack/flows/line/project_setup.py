"""Begin a project: its `stack.toml`, its upstreams and its lines."""

from __future__ import annotations

import re
from pathlib import Path

from stack.errors import StateError, UsageError
from stack.flows.events import Emit
from stack.flows.line.apply import refuse_unexported
from stack.flows.pins import resolve_pin
from stack.flows.transaction import Change, commit, read_receipt, workspace_of, writing
from stack.model.line import edit
from stack.model.line.line import Pin
from stack.repo import mirror as mirrors
from stack.repo.odb import ObjectStore
from stack.store import atomic, lock
from stack.store.paths import CONFIG
from stack.store.project import SERIES, Line, Project, names

_BEGINNING = b"""\
# What this project keeps alive. Next: stack upstream add NAME URL|PATH|pypi:PACKAGE
schema = 1
"""
_ATTRIBUTES = b"""\
# Two people's new entries at the end of a series are both kept; a patch file is never merged.
series.toml merge=union
*.patch -text -merge
"""
_NAME = re.compile(r"[a-z0-9][a-z0-9._+-]{0,79}\Z")


def init(folder: Path) -> Path:
    """Write a first `stack.toml` in `folder`; refuses where one stands."""
    config, attributes = folder / CONFIG, folder / "patches" / ".gitattributes"
    if config.exists():
        raise StateError(f"{config}: there is a project already", hint="stack upstream add")
    folder.mkdir(parents=True, exist_ok=True)
    if not attributes.exists():
        atomic.write(attributes, _ATTRIBUTES)
    atomic.write(config, _BEGINNING)  # last: where it stands, a project was begun whole
    return config


def add_upstream(project: Project, name: str, where: str, folder: Path) -> dict[str, str]:
    """Name a source of an upstream: a git URL, the path of a repository, or `pypi:PACKAGE`.

    A relative path is looked up from `folder`. A second call with the same name adds another
    source. The keys that were written.
    """
    if not _NAME.match(name):
        raise UsageError(f"`{name}` cannot name an upstream", hint="small letters, digits, . _ -")
    values: dict[str, str] = {}
    if where.startswith("pypi:"):
        values["sdist"] = where.removeprefix("pypi:")
    elif re.match(r"[a-z][a-z0-9+.-]*://|[\w.-]+@[\w.-]+:", where):
        values["git"] = where
    else:
        path = (folder / Path(where).expanduser()).resolve()
        objects = mirrors.objects_of(path)
        if objects is None:
            raise UsageError(
                f"{where}: neither a URL, nor pypi:PACKAGE, nor a git repository",
                hint="stack upstream add NAME URL|PATH|pypi:PACKAGE",
            )
        values["path"] = str(path)
    project.paths.ensure_state()
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


def set_default(project: Project, line: Line) -> bool:
    """Make a line its upstream's default in `stack.toml`; false where it was."""
    upstream, label = line.series.upstream, line.series.pin.label
    if project.settings.upstream[upstream].default == label:
        return False
    project.paths.ensure_state()
    with lock.hold(project.paths.lock, f"line default {line.id}", wait=30):
        text = edit.set_table(
            project.paths.config.read_bytes(), ["upstream", upstream], {"default": label}
        )
        atomic.write(project.paths.config, text)
    return True


def remove_line(
    project: Project, line: Line, emit: Emit, *, dry_run: bool = False,
    command: tuple[str, ...] = (),
) -> None:
    """Remove a line's files, workspace and receipt in one change, which `undo` takes back.

    Raises `StateError` where the workspace holds work of its own, or where `stack.toml` names the
    line.
    """
    upstream, label = line.series.upstream, line.series.pin.label
    _refuse_named(project, line)
    if dry_run:
        workspace = workspace_of(project, upstream, label)
        refuse_unexported(project, line, workspace, read_receipt(project, upstream, label))
        return
    with writing(project, f"line remove {line.id}", emit):
        workspace = workspace_of(project, upstream, label)
        refuse_unexported(project, line, workspace, read_receipt(project, upstream, label))
        with ObjectStore(workspace.repository) as odb:
            change = Change(upstream=upstream, label=label, files=None, head=None, receipt=None)
            commit(project, odb, change, command, f"removed line {line.id}")
        if project.settings.upstream[upstream].default == label:  # the last of its upstream
            text = edit.drop_key(
                project.paths.config.read_bytes(), ["upstream", upstream], "default"
            )
            atomic.write(project.paths.config, text)


def _refuse_named(project: Project, line: Line) -> None:
    """What in `stack.toml` would name nothing any more."""
    upstream, label = line.series.upstream, line.series.pin.label
    for name, profile in project.settings.profile.items():
        if line.id in {project.find(text).id for text in profile.lines}:
            raise StateError(
                f"stack.toml: profile {name} names line {line.id}",
                hint=f"take it out of `lines` of [profile.{name}] first",
            )
    if project.settings.upstream[upstream].default == label and len(project.labels(upstream)) > 1:
        raise StateError(
            f"stack.toml: {line.id} is the default line of {upstream}",
            hint=f"stack line default {upstream}/LABEL names another one first",
        )
