"""Capture: edits that somebody made in an installed package become a patch of a line."""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from stack.errors import BuildFailed, Conflict, GitError, StateError, UsageError
from stack.flows.builds import install_into, serve
from stack.flows.builds.environment import site_packages
from stack.flows.builds.shadow import import_name
from stack.flows.events import Emit
from stack.flows.intake import mails
from stack.flows.line.refresh import check_name, identity
from stack.flows.prefixes import Replayed, replayed
from stack.host import packages as installed
from stack.model.mail.mail import render_message
from stack.model.objects import EXECUTABLE, FILE, FOLDER, Commit, Entry
from stack.model.project.build import LayerRecord
from stack.repo.carry import Merger, carry
from stack.repo.format import format_commits, slug
from stack.repo.odb import ObjectStore
from stack.repo.renames import Renames
from stack.store import documents
from stack.store.project import Line, Project

_LEAVINGS = (".orig", ".rej", ".bak", ".swp", ".swo", "~", ".pyc", ".so", ".tmp")
Edits = Mapping[str, bytes | None]


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where edits are looked for: site-packages, and the layers before it with their trees."""

    name: str
    site_packages: Path
    layers: tuple[tuple[Path, str, Mapping[str, str]], ...] = ()


class Captured(msgspec.Struct, frozen=True, kw_only=True):
    """What was edited, by path of the upstream, and what became of it."""

    line: str
    patch: str
    changed: tuple[str, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    left_out: tuple[str, ...]


def place_of_venv(project: Project, line: Line, path: Path) -> Place:
    """An environment of the user's own, with the layer that `install` put there."""
    venv = install_into.open_venv(path)
    found = venv.layer(line.series.upstream)
    layer = ((found[0], found[1].tree, found[1].files),) if found else ()
    return Place(name=str(venv.path), site_packages=venv.site_packages, layers=layer)


def place_of_profile(project: Project, line: Line, profile: str | None) -> Place:
    """A profile's base, with the layer of the line that it runs."""
    name, settings = project.profile(profile)
    base = serve.base_of(project, name, settings)
    now = serve.current(project, name)
    found: list[tuple[Path, str, Mapping[str, str]]] = []
    for one in now.layers if now else ():
        path = project.paths.layers / one.place
        record = path.with_name(f"{path.name}.json")
        made = documents.read(project, record, LayerRecord, hint="stack build makes it again")
        if one.line == line.id and made is not None:
            found.append((path, made.tree, made.files))
    return Place(
        name=f"profile {name}", site_packages=site_packages(base.venv), layers=tuple(found)
    )


def capture(
    project: Project, line: Line, name: str, place: Place, emit: Emit, *,
    subject: str | None = None, why: str | None = None, only: Sequence[str] = (),
    dry_run: bool = False, command: tuple[str, ...] = (),
) -> Captured:
    """Add a patch with the edits of a place behind the active patches of a line.

    An edit is what differs from the package as it was installed (its RECORD; without one, from the
    pin's files). Raises `StateError` where nothing was edited, `BuildFailed` naming edited files
    whose original is not the pin's, `Conflict` where the edits do not fit the line's patches.
    """
    check_name(name)
    if slug(name) != name:  # the name that import would give it
        raise UsageError(f"`{name}` cannot be the name of a patch", hint=f"for one: {slug(name)}")
    if name in {member.name for member in line.series.patch}:
        raise UsageError(f"line {line.id} has a patch `{name}`", hint="give another name")
    with replayed(project, line, line.series.select(), emit) as replay:
        odb, pin, tip = replay.odb, replay.prefixes[0].tree, replay.prefixes[-1].tree
        left_out: list[str] = []
        jumps = [(pin, edits_on_pin(project, line, place, odb, pin, left_out, only))]
        for path, tree, files in place.layers:
            if edits := dict(_in_layer(project, line, path, files, odb, left_out, only)):
                _refuse_unknown(replay, tree, line, place)
                jumps.append((tree, edits))
        after = tip
        for before, edits in jumps:
            after = _carried(odb, before, edits, after, line)
        paths = odb.changed(tip, after)
        captured = Captured(
            line=line.id, patch=name, left_out=tuple(sorted(left_out)),
            changed=_paths(path for path, (a, b) in paths.items() if a and b),
            added=_paths(path for path, (a, b) in paths.items() if not a),
            removed=_paths(path for path, (a, b) in paths.items() if not b),
        )
        if not paths:
            edited = any(edits for _, edits in jumps)
            raise StateError(
                f"{place.name}: its edits are in {line.id} already" if edited
                else f"{place.name}: nothing was edited in the packages of {line.id}",
                context=[f"left out: {text}" for text in captured.left_out],
            )
        if dry_run:
            return captured
        message = _message(subject or name.replace("-", " ").capitalize(), why)
        made = _commit(odb, after, replay.prefixes[-1].commit, message)
        odb.write()
        (mail,) = format_commits(
            replay.git, replay.prefixes[-1].commit, made, context=line.series.context
        )
    with tempfile.TemporaryDirectory(prefix="stack-capture-") as folder:
        file = Path(folder, f"{name}.patch")
        file.write_bytes(mail)
        mails.import_mails(project, line, [file], emit, command=command)
    return captured


def _paths(found: Iterator[bytes]) -> tuple[str, ...]:
    return tuple(sorted(os.fsdecode(path) for path in found))


def edited_tree(odb: ObjectStore, before: str, edits: Edits) -> str:
    """The tree `before` with edits; a file keeps its mode."""
    changes: dict[bytes, Entry | None] = {}
    for path, data in edits.items():
        key = os.fsencode(path)
        old = odb.find(before, key)
        mode = old.mode if old and old.mode in (FILE, EXECUTABLE) else FILE
        changes[key] = None if data is None else Entry(mode, odb.add("blob", data))
    return odb.edit(before, changes)


def _carried(odb: ObjectStore, before: str, edits: Edits, onto: str, line: Line) -> str:
    """The tree `onto` with edits that were made on the tree `before`."""
    after = edited_tree(odb, before, edits)
    done = carry(Merger(odb), before, after, onto, renames=Renames(odb, before, onto))
    if done.trouble:
        raise Conflict(
            f"the edits do not fit on the patches of {line.id}",
            context=[f"{one.path}: {one.why}" for one in done.trouble],
            hint="stack capture --line another line at this pin (stack line add --label), or "
            "--only PATH for the rest",
        )
    return done.tree


def edits_on_pin(
    project: Project, line: Line, place: Place, odb: ObjectStore, pin: str, left_out: list[str],
    only: Sequence[str],
) -> dict[str, bytes | None]:
    """The edits in site-packages, by path of the upstream."""
    found: dict[str, bytes | None] = {}
    foreign: list[str] = []
    for package in project.settings.upstream[line.series.upstream].packages:
        name = import_name(package)
        parent = package.removesuffix(name)
        owner = installed.owner(place.site_packages, name)
        expected = installed.listed(owner, [name]) if owner else {}
        files = _files(place.site_packages / name, name)
        if not files:
            raise StateError(f"{place.site_packages}: has no package `{name}`")
        listed = expected or dict.fromkeys(_of_tree(odb, pin, package, name), "")
        for path in sorted({*files, *listed}):
            theirs = odb.find(pin, os.fsencode(parent + path))
            original = odb.blob(theirs.oid) if theirs and theirs.mode != FOLDER else None
            data = files[path].read_bytes() if path in files else None
            if data == original or (expected and data is not None
                                    and _digest(data) == expected.get(path)):
                continue
            if (path not in listed and original is None and _is_leaving(path)) or (
                path.endswith("/_version.py") and original is None
            ):
                left_out.append(path)
            elif not only or parent + path in only or path in only:
                if expected.get(path) and (
                    original is None or _digest(original) != expected[path]
                ):
                    foreign.append(path)
                elif not (data is None and original is None):
                    found[parent + path] = data
    if foreign:
        raise BuildFailed(
            f"{place.name}: {len(foreign)} edited files were not the pin's even before",
            context=[f"{path}: installed with another text than {line.id} has" for path in foreign],
            hint="--only PATH takes the others; or name a line at the installed revision",
        )
    return found


def _in_layer(
    project: Project, line: Line, layer: Path, record: Mapping[str, str], odb: ObjectStore,
    left_out: list[str], only: Sequence[str],
) -> Iterator[tuple[str, bytes | None]]:
    """The edits in a layer, by path of the upstream."""
    for package in project.settings.upstream[line.series.upstream].packages:
        name = import_name(package)
        parent = package.removesuffix(name)
        files = _files(layer / name, name)
        mine = {path: digest for path, digest in record.items() if path.startswith(name + "/")}
        for path in sorted({*files, *mine}):
            data = files[path].read_bytes() if path in files else None
            digest = hashlib.sha256(data).hexdigest() if data is not None else ""
            if digest == mine.get(path):
                continue
            if path not in mine and _is_leaving(path):
                left_out.append(path)
            elif not only or parent + path in only or path in only:
                yield parent + path, data


def _refuse_unknown(replay: Replayed, tree: str, line: Line, place: Place) -> None:
    try:
        replay.odb.tree(tree)
    except GitError:
        raise StateError(
            f"{place.name}: its layer is of a state of {line.id} that is not here any more",
            hint="run `stack use` or `stack install` again, then make the edits again",
        ) from None


def _files(folder: Path, name: str) -> dict[str, Path]:
    """The files of an import package, links left out, by path in site-packages."""
    found: dict[str, Path] = {}
    for here, folders, names in os.walk(folder):
        folders[:] = sorted(
            one for one in folders if one != "__pycache__" and not Path(here, one).is_symlink()
        )
        for one in names:
            path = Path(here, one)
            if path.is_file() and not path.is_symlink():
                found[f"{name}/{path.relative_to(folder).as_posix()}"] = path
    return found


def _of_tree(odb: ObjectStore, tree: str, package: str, name: str) -> Iterator[str]:
    """The Python files of a package at the pin, by path in site-packages."""
    entry = odb.find(tree, package.encode())
    waiting = [(name, entry.oid)] if entry and entry.mode == FOLDER else []
    while waiting:
        at, oid = waiting.pop()
        for child, inner in odb.tree(oid).items():
            path = f"{at}/{os.fsdecode(child)}"
            if inner.mode == FOLDER:
                waiting.append((path, inner.oid))
            elif path.endswith(".py"):
                yield path


def _digest(data: bytes) -> str:
    """The sha256 as RECORD writes it."""
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


def _is_leaving(path: str) -> bool:
    return path.endswith(_LEAVINGS) or Path(path).name.startswith(".")


def _message(subject: str, why: str | None) -> bytes:
    trailers = [("Why", why)] if why else []
    trailers += [("Upstream-Status", "Pending"), ("Patch-Id", secrets.token_hex(8))]
    return render_message(subject, "", tuple(trailers))


def _commit(odb: ObjectStore, tree: str, parent: str, message: bytes) -> str:
    """A commit by the person that git knows."""
    who = identity()
    commit = Commit(tree=tree, parents=(parent,), author=who, committer=who, message=message)
    return odb.add("commit", commit.render())
