"""Begin a project: its `stack.toml`, its upstreams and its lines."""

from __future__ import annotations

import re
from pathlib import Path

from stack.errors import SourceError, StateError, UsageError
from stack.flows.base import local_path
from stack.flows.events import Emit, Progress
from stack.flows.transaction import Change, commit, workspace_of, writing
from stack.model import edit
from stack.model.line import Pin, Sdist
from stack.model.settings import Upstream
from stack.repo import mirror as mirrors
from stack.repo import sdist as sdists
from stack.repo.client import Git
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


def fetch_upstream(project: Project, name: str, emit: Emit) -> str:
    """Bring the mirror of an upstream up to date; what was done."""
    _, upstream = project.upstream(name)
    if upstream.git is None:
        raise UsageError(f"upstream `{name}` has no git URL", hint=f"stack upstream add {name} URL")
    mirror = mirrors.Mirror(project.paths.mirror(name), upstream.git)
    with lock.hold(mirror.folder.with_suffix(".lock"), f"fetching {name}", wait=3600):
        mirror.fetch(lambda label, done, total: emit(Progress(f"{name}: {label}", done, total, "%")))
    count = mirror.git.run("rev-list", "--all", "--count").text
    return f"{name}: {count} commits from {upstream.git}"


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
        repository = mirrors.ensure_repository(project.paths.repository(name))
        pin = _resolve(project, name, upstream, repository, revision, label, emit)
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


def _resolve(
    project: Project, name: str, upstream: Upstream, repository: Git, revision: str,
    label: str | None, emit: Emit,
) -> Pin:
    """The pin that a revision means, asking the local repository, the mirror, the index in turn."""
    reasons: list[str] = []
    path = local_path(project, upstream)
    objects = mirrors.objects_of(path) if path else None
    if objects is not None:
        git = Git(objects.parent)
        if found := mirrors.resolve(git, revision):
            return _git_pin(git, found, revision, label)
        reasons.append(f"path: {path} has no revision {revision}")
    if upstream.git is not None:
        mirror = mirrors.Mirror(project.paths.mirror(name), upstream.git)
        found = mirror.resolve(revision)
        if found is None:
            try:
                fetch_upstream(project, name, emit)
                found = mirror.resolve(revision)
                reasons.append(f"git: {upstream.git} has no revision {revision}")
            except SourceError as wrong:
                reasons.append(f"git: {wrong.message}")
        if found is not None:
            return _git_pin(mirror.git, found, revision, label)
    if upstream.sdist is not None and re.match(r"v?\d", revision):
        try:
            return _sdist_pin(project, upstream.sdist, revision, label, repository, emit)
        except SourceError as wrong:
            reasons.append(f"sdist: {wrong.message}")
    raise SourceError(
        f"no source of {name} knows `{revision}`", context=reasons,
        hint=f"stack upstream fetch {name}, or give a full commit, tag or release",
    )


def _git_pin(git: Git, commit_: str, revision: str, label: str | None) -> Pin:
    tree = git.run("rev-parse", f"{commit_}^{{tree}}").text
    typed = revision.removeprefix("v") if not re.fullmatch(r"[0-9a-f]{7,40}", revision) else ""
    made = label or re.sub(r"[^a-z0-9._+-]+", "-", typed.lower()).strip("-") or commit_[:7]
    return Pin(label=made, commit=commit_, tree=tree)


def _sdist_pin(
    project: Project, package: str, revision: str, label: str | None, repository: Git, emit: Emit
) -> Pin:
    version = revision.removeprefix("v")
    archive = sdists.fetch(
        package, version, None, project.paths.sdists,
        lambda what, done, total: emit(Progress(what, done / 1e6, total / 1e6 if total else None, "MB")),
    )
    with ObjectStore(repository) as odb:
        tree, short = sdists.read(archive, odb)
    sdist = Sdist(version=version, sha256=sdists.digest(archive), short=short)
    return Pin(label=label or version, tree=tree, sdist=sdist)
