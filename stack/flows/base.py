"""The base of a line: whichever source can serve the pin, in the project's own repository."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from stack.errors import SourceError, UsageError
from stack.flows.events import Emit, Progress, Said
from stack.model.line.line import Pin, Series
from stack.model.project.settings import SourceKind, Upstream
from stack.repo import mirror as mirrors
from stack.repo import sdist as sdists
from stack.repo.client import Git
from stack.repo.odb import ObjectStore
from stack.store import lock
from stack.store.project import Project

# So many objects may be missing from a local repository (files left out for their size), and no
# more than one to ten that are there: the worktree goes without them.
_SPARE = 50
ORDER: tuple[SourceKind, ...] = ("path", "git", "sdist")


class Base(msgspec.Struct, frozen=True, kw_only=True):
    """A pin's base commit in the project's repository, and the source that served it."""

    git: Git
    commit: str
    tree: str
    source: SourceKind


class Unserved(Exception):
    """Why one source cannot serve a pin."""


def open_base(
    project: Project, series: Series, emit: Emit, *, source: SourceKind | None = None
) -> Base:
    """The base of a line, fetched if need be.

    The sources are asked in the order path, git, sdist: first without the network, then with it.
    `source` forces one. Raises `SourceError` with every source's reason when none can serve.
    """
    _, upstream = project.upstream(series.upstream)
    project.paths.ensure_state()
    repository = mirrors.ensure_repository(project.paths.repository(series.upstream))
    held = _held(repository, series, source)
    if held is not None:
        return held
    reasons: dict[str, str] = {}
    for online in (False, True):
        for kind in (source,) if source else ORDER:
            try:
                serve = _SERVE[kind]
                commit = serve(project, series, upstream, repository, emit, online)
                base = _checked(repository, series.pin, commit, kind)
            except Unserved as why:
                reasons[kind] = str(why)
                continue
            except SourceError as wrong:
                if source:
                    raise
                reasons[kind] = wrong.message
                continue
            repository.run("update-ref", ref_of(series.pin.label, kind), base.commit)
            for other in ORDER[: ORDER.index(kind)]:
                if other in reasons and "not configured" not in reasons[other] and online:
                    emit(Said(f"{series.id}: {other}: {reasons[other]}; using the {kind}"))
            return base
    raise SourceError(
        f"no source can serve {series.id} ({series.pin.revision[:12]})",
        context=[f"{kind}: {reasons[kind]}" for kind in ORDER if kind in reasons],
        hint=f"stack upstream add {series.upstream} URL | PATH | pypi:PACKAGE names another source",
    )


def _held(repository: Git, series: Series, source: SourceKind | None) -> Base | None:
    """A base that an earlier run brought and that is still whole."""
    kinds = (source,) if source else ORDER
    refs = [ref_of(series.pin.label, kind) for kind in kinds]
    for kind, commit in zip(kinds, mirrors.commits(repository, refs), strict=True):
        if commit is not None and commit[1] == series.pin.tree:
            return Base(git=repository, commit=commit[0], tree=commit[1], source=kind)
    return None


def ref_of(label: str, kind: SourceKind) -> str:
    """Where the project's repository keeps the base of a pin."""
    return f"refs/stack/base/{label}/{kind}"


def _checked(repository: Git, pin: Pin, commit: str, kind: SourceKind) -> Base:
    tree = repository.run("rev-parse", "--verify", "--quiet", f"{commit}^{{tree}}").text
    if tree != pin.tree:
        raise SourceError(
            f"the {kind} source has tree {tree} at {commit[:12]}, but the pin's tree is {pin.tree}"
        )
    return Base(git=repository, commit=commit, tree=tree, source=kind)


def _from_path(
    project: Project, series: Series, upstream: Upstream, repository: Git, emit: Emit, online: bool
) -> str:
    path = local_path(project, upstream)
    if path is None:
        raise Unserved("not configured" if not upstream.path else f"{upstream.path} is not set")
    if series.pin.commit is None:
        raise Unserved("only the release archive names this pin")
    objects = mirrors.objects_of(path)
    if objects is None:
        raise Unserved(f"{path} is not a git repository")
    if not mirrors.has_commit(Git(objects.parent), series.pin.commit):
        raise Unserved(f"{path} has no commit {series.pin.commit[:12]}")
    mirrors.ensure_repository(project.paths.repository(series.upstream), [objects])
    missing, there = mirrors.missing_objects(repository, series.pin.tree)
    if len(missing) > min(_SPARE, there / 10):
        raise Unserved(f"{path} lacks {len(missing)} objects of the pin: a partial clone")
    return series.pin.commit


def _from_git(
    project: Project, series: Series, upstream: Upstream, repository: Git, emit: Emit, online: bool
) -> str:
    if upstream.git is None:
        raise Unserved("not configured")
    if series.pin.commit is None:
        raise Unserved("only the release archive names this pin")
    mirror = mirrors.Mirror(project.paths.mirror(series.upstream), upstream.git)
    here = mirror.exists and mirrors.has_commit(mirror.git, series.pin.commit)
    if not here and not online:
        raise Unserved("the commit is not in the mirror yet")
    with lock.hold(mirror.folder.with_suffix(".lock"), f"fetching {series.upstream}", wait=3600,
                   on_wait=lambda who: emit(Said(f"waiting for the mirror: {who}"))):
        if not here:
            mirror.fetch(_report(emit, series.upstream))
            if not mirrors.has_commit(mirror.git, series.pin.commit):
                raise Unserved(f"{upstream.git} has no commit {series.pin.commit[:12]}")
        mirror.fetch_blobs(series.pin.tree, _report(emit, series.upstream))
    mirrors.ensure_repository(
        project.paths.repository(series.upstream), [mirror.folder / "objects"]
    )
    return series.pin.commit


def _from_sdist(
    project: Project, series: Series, upstream: Upstream, repository: Git, emit: Emit, online: bool
) -> str:
    if upstream.sdist is None:
        raise Unserved("not configured")
    sdist = series.pin.sdist
    if sdist is None:
        raise Unserved("the pin names no release archive")
    folder = project.paths.sdists
    if not online and sdists.held(folder, upstream.sdist, sdist.version) is None:
        raise Unserved("the archive is not in the cache yet")

    def report(label: str, done: float, total: float | None) -> None:
        emit(Progress(label, done / 1e6, total / 1e6 if total else None, "MB"))

    archive = sdists.fetch(upstream.sdist, sdist.version, sdist.sha256, folder, report)
    emit(Progress(f"reading {archive.name}"))
    with ObjectStore(repository) as odb:
        commit = sdists.import_pin(archive, upstream.sdist, sdist, series.pin.tree, odb)
        odb.write()
    return commit


_SERVE: dict[SourceKind, Callable[[Project, Series, Upstream, Git, Emit, bool], str]] = {
    "path": _from_path, "git": _from_git, "sdist": _from_sdist,
}


def local_path(project: Project, upstream: Upstream) -> Path | None:
    """The local repository of an upstream; None where none is configured, or its variable unset."""
    if not upstream.path:
        return None
    text = upstream.path
    if text.startswith("$"):
        text = os.environ.get(text[1:].strip("{}"), "")
        if not text:
            return None
    return project.paths.root / Path(text).expanduser()


def _report(emit: Emit, name: str) -> mirrors.Report:
    return lambda label, done, total: emit(Progress(f"{name}: {label}", done, total, "%"))


def forced(text: str | None) -> SourceKind | None:
    """`--from` as a source kind."""
    if text is None:
        return None
    if text not in ORDER:
        raise UsageError(f"no source `{text}`", hint="--from git|path|sdist")
    return text
