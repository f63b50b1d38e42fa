"""What a revision means: the pin of a commit, a tag, a branch or a release."""

from __future__ import annotations

import re

import msgspec

from stack.errors import SourceError, UsageError
from stack.flows.base import local_path, ref_of
from stack.flows.events import Emit, Progress, Said
from stack.model.line.line import Pin, Sdist
from stack.repo import mirror as mirrors
from stack.repo import sdist as sdists
from stack.repo.client import Git
from stack.repo.odb import ObjectStore
from stack.store import archive_notes, lock
from stack.store.project import Project, names


def resolve_pin(
    project: Project, name: str, revision: str, emit: Emit, *, label: str | None = None,
    fetched: dict[str, str] | None = None,
) -> Pin:
    """The pin that a revision means: a line's, or asked of local repository, mirror and index.

    A release whose archive was read before needs no network, unless there is a mirror that could
    tell its commit. `fetched` has the upstreams that were fetched already, with what went wrong:
    callers with many revisions share one. Raises `SourceError` with every source's reason where
    none knows the revision.
    """
    fetched = {} if fetched is None else fetched
    name, upstream = project.upstream(name)
    for existing in project.labels(name):
        series = project.series(name, existing)
        if names(series, revision):
            return msgspec.structs.replace(series.pin, label=label or series.pin.label)
    repository = mirrors.ensure_repository(project.paths.repository(name))
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
        if found is None and not mirror.exists and upstream.sdist and _is_release(revision):
            archive = sdists.held(project.paths.sdists, upstream.sdist, revision.removeprefix("v"))
            if archive and (pin := archive_notes.known(archive)):
                return msgspec.structs.replace(pin, label=label or revision.removeprefix("v"))
        if found is None and name not in fetched:
            try:
                fetch_upstream(project, name, emit)
                found = mirror.resolve(revision)
                fetched[name] = f"git: {upstream.git} has no such revision"
            except SourceError as wrong:
                fetched[name] = f"git: {wrong.message}"
        if found is None:
            reasons.append(fetched[name])
        if found is not None:
            return _git_pin(mirror.git, found, revision, label)
    if upstream.sdist is not None and _is_release(revision):
        try:
            return _sdist_pin(project, upstream.sdist, revision, label, repository, emit)
        except SourceError as wrong:
            reasons.append(f"sdist: {wrong.message}")
    raise SourceError(
        f"no source of {name} knows `{revision}`", context=reasons,
        hint=f"stack upstream fetch {name}, or give a full commit, tag or release",
    )


def _is_release(revision: str) -> bool:
    return re.match(r"v?\d+(\.\d+)+", revision) is not None


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
        lambda what, done, total: emit(
            Progress(what, done / 1e6, total / 1e6 if total else None, "MB")
        ),
    )
    made = label or version
    if known := archive_notes.known(archive):
        return msgspec.structs.replace(known, label=made)
    emit(Progress(f"reading {archive.name}"))
    with ObjectStore(repository) as odb:
        tree, short = sdists.read(archive, odb)
        sdist = Sdist(version=version, sha256=sdists.digest(archive), short=short)
        commit_ = sdists.base_commit(package, sdist, tree, odb)
        odb.write()  # so that the archive is read once for its pin and its base
    repository.run("update-ref", ref_of(made, "sdist"), commit_)
    pin = Pin(label=made, tree=tree, sdist=sdist)
    archive_notes.keep(archive, pin)
    return pin


def newest_release(project: Project, name: str, emit: Emit) -> str:
    """The newest release of an upstream: of the tags at hand, else of the index.

    Raises `SourceError` with every source's reason where none has a release.
    """
    name, upstream = project.upstream(name)
    reasons: list[str] = []
    path = local_path(project, upstream)
    objects = mirrors.objects_of(path) if path else None
    mirror = mirrors.Mirror(project.paths.mirror(name), upstream.git) if upstream.git else None
    asked = [("path", Git(objects.parent))] if objects is not None else []
    if mirror is not None and mirror.exists:
        asked.append(("git", mirror.git))
    for kind, git in asked:
        if found := _newest_tag(git):
            emit(Said(f"{name}: the newest release of the {kind} source is {found}"))
            return found
        reasons.append(f"{kind}: no tag is a release")
    if upstream.sdist is not None:
        try:
            if found := sdists.newest(upstream.sdist):
                emit(Said(f"{name}: the newest release on the index is {found}"))
                return found
            reasons.append(f"sdist: the index has no release of {upstream.sdist}")
        except SourceError as wrong:
            reasons.append(f"sdist: {wrong.message}")
    elif mirror is not None and not mirror.exists:
        fetch_upstream(project, name, emit)
        if found := _newest_tag(mirror.git):
            return found
        reasons.append(f"git: {upstream.git} has no tag that is a release")
    raise SourceError(
        f"no source of {name} has a release", context=reasons,
        hint=f"stack rebase --onto {name}@REV",
    )


def _newest_tag(git: Git) -> str | None:
    """The tag of the highest version that is not a pre-release."""
    listed = git.run("for-each-ref", "--format=%(refname:strip=2)", "refs/tags").text.split()
    found = [tag for tag in listed if re.fullmatch(r"(v\d+|v?\d+(\.\d+)+)(\.?post\d+)?", tag)]
    numbers = {tag: tuple(int(part) for part in re.findall(r"\d+", tag)) for tag in found}
    return max(found, key=lambda tag: numbers[tag], default=None)


def fetch_upstream(project: Project, name: str, emit: Emit) -> str:
    """Bring the mirror of an upstream up to date; what was done."""
    _, upstream = project.upstream(name)
    if upstream.git is None:
        raise UsageError(f"upstream `{name}` has no git URL", hint=f"stack upstream add {name} URL")
    mirror = mirrors.Mirror(project.paths.mirror(name), upstream.git)
    with lock.hold(mirror.folder.with_suffix(".lock"), f"fetching {name}", wait=3600):
        mirror.fetch(
            lambda label, done, total: emit(Progress(f"{name}: {label}", done, total, "%"))
        )
    count = mirror.git.run("rev-list", "--all", "--count").text
    return f"{name}: {count} commits from {upstream.git}"
