"""The replay engine: a series of patches becomes a chain of commits, all of it in memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from stack.model.diff.apply import Misfit, apply_hunks
from stack.model.diff.binary import apply_delta
from stack.model.diff.hunks import Binary, FilePatch, Hunk, Kind
from stack.model.line.outcome import Clash, Outcome, Step
from stack.model.mail.mail import Mail
from stack.model.objects import FILE, FOLDER, SUBMODULE, SYMLINK, Commit, Entry, object_id
from stack.repo.odb import ObjectStore


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """A patch ready to replay: its name in the line, its mail and its parsed diff."""

    name: str
    mail: Mail
    files: tuple[FilePatch, ...]


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """The tree that a patch makes, or the clashes that keep it from doing so."""

    tree: str | None
    clashes: tuple[Clash, ...] = ()
    offsets: tuple[str, ...] = ()


def replay(odb: ObjectStore, base: str, items: Sequence[Item]) -> list[Step]:
    """Apply `items` in order on the commit `base`; stops at the first conflict.

    New commits have the author as committer and the author's date, so that their ids depend on
    nothing but the patches and the base. Objects stay in `odb` until it is written.
    """
    steps: list[Step] = []
    parent, tree = base, odb.commit(base).tree
    stopped = False
    for item in items:
        paths = tuple(show(file.path) for file in item.files)
        if stopped:
            steps.append(Step(name=item.name, outcome=Outcome.NOT_TRIED, paths=paths))
            continue
        applied = apply_patch(odb, tree, item.files)
        if applied.tree is None:
            outcome = Outcome.CONFLICT
            if _is_there(odb, tree, item.files):
                outcome = Outcome.UPSTREAMED
            else:
                stopped = True
            steps.append(
                Step(
                    name=item.name, outcome=outcome, paths=paths,
                    clashes=applied.clashes if stopped else (),
                )
            )
            continue
        if applied.tree == tree:
            steps.append(
                Step(name=item.name, outcome=Outcome.EMPTY, commit=parent, tree=tree, paths=paths)
            )
            continue
        parent, tree = make_commit(odb, applied.tree, parent, item.mail), applied.tree
        steps.append(
            Step(
                name=item.name, outcome=Outcome.CLEAN, commit=parent, tree=tree, paths=paths,
                offsets=applied.offsets,
            )
        )
    return steps


def make_commit(odb: ObjectStore, tree: str, parent: str, mail: Mail) -> str:
    """The id of the commit that a patch mail makes of `tree` on `parent`."""
    commit = Commit(
        tree=tree, parents=(parent,), author=mail.author, committer=mail.author,
        message=mail.message,
    )
    return odb.add("commit", commit.render())


def apply_patch(odb: ObjectStore, tree: str, files: Sequence[FilePatch]) -> Applied:
    """Apply the files of one patch to `tree`, all or nothing.

    As in git, renames and copies are taken from the tree before the patch, so that swaps come out
    right; other parts of the same patch for one file are applied one after the other.
    """
    changes: dict[bytes, Entry | None] = {}
    clashes: list[Clash] = []
    offsets: list[str] = []
    leaving = {file.old for file in files if file.kind in ("rename", "delete")}
    for file in files:
        made = _apply_file(odb, tree, file, changes, leaving)
        if isinstance(made, Clash):
            clashes.append(made)
            continue
        entry, moved = made
        if file.kind == "rename" and changes.get(file.old) is None:
            changes[file.old] = None
        changes[file.path] = entry
        offsets += moved
    if clashes:
        return Applied(tree=None, clashes=tuple(clashes))
    try:
        return Applied(tree=odb.edit(tree, changes), offsets=tuple(offsets))
    except NotADirectoryError:
        return Applied(tree=None, clashes=(_through_link(odb, tree, files),))
    except IsADirectoryError as wrong:
        return Applied(tree=None, clashes=(_onto_folder(files, wrong.args[0]),))


def _apply_file(
    odb: ObjectStore, tree: str, file: FilePatch, changes: Mapping[bytes, Entry | None],
    leaving: Collection[bytes],
) -> tuple[Entry | None, list[str]] | Clash:
    """The new entry of a file and the offsets of its hunks, or the clash.

    `changes` is what the parts of the patch before this one did, `leaving` the paths that it
    vacates.
    """
    before = odb.find(tree, file.old)
    if file.old in changes and file.kind not in ("rename", "copy"):
        before = changes[file.old]
    if file.kind in ("add", "rename", "copy") and file.new not in leaving:
        taken = changes[file.new] if file.new in changes else odb.find(tree, file.new)
        if taken is not None and taken.mode != FOLDER:  # a folder may be on its way out
            if file.kind == "add":
                return _clash(file, "the patch makes this file, but it is there already")
            return _clash(file, f"{show(file.new)} is there already")
    if file.kind == "add":
        before = Entry(file.new_mode or FILE, "")
        data = b""
    elif before is None or before.mode in (FOLDER, SUBMODULE):
        return _clash(file, "no such file in this tree")
    else:
        data = odb.blob(before.oid)
    if file.old_mode and (file.old_mode == SYMLINK) != (before.mode == SYMLINK):
        return _clash(file, "a symbolic link on one side and a file on the other")
    offsets: list[str] = []
    if file.binary is not None:
        new = _apply_binary(file, data)
        if new is None:
            return _clash(file, "the binary content is not the one that the patch was made for")
    else:
        placed = apply_hunks(data, file.hunks, old_id=file.old_id)
        if isinstance(placed, Misfit):
            return _misfit(file, placed)
        new = placed.data
        offsets = [
            f"{show(file.path)}: hunk {number} at {offset:+d} lines"
            for number, offset in enumerate(placed.offsets, 1)
            if offset
        ]
    if file.kind == "delete":
        if new:
            return _clash(file, "the patch deletes this file, but it has other content too")
        return None, offsets
    mode = file.new_mode or before.mode
    if mode == before.mode and new == data and file.kind != "add":
        return Entry(mode, before.oid), offsets
    return Entry(mode, odb.add("blob", new)), offsets


def _apply_binary(file: FilePatch, data: bytes) -> bytes | None:
    assert file.binary is not None
    if file.binary.method == "literal":
        if file.kind == "modify" and file.old_id not in (None, object_id("blob", data)):
            return None
        return file.binary.data
    return apply_delta(data, file.binary.data)


def _is_there(odb: ObjectStore, tree: str, files: Sequence[FilePatch]) -> bool:
    """Whether the whole effect of a patch stands in the tree already: it applies in reverse."""
    for file in files:
        now = odb.find(tree, file.path)
        if now is not None and file.new_mode not in (None, now.mode):
            return False
        if file.binary is not None and (
            now is None or file.binary != Binary("literal", odb.blob(now.oid))
        ):
            return False
    undone = [reverse(file) for file in reversed(files) if file.binary is None]
    return apply_patch(odb, tree, undone).tree is not None


def reverse(file: FilePatch) -> FilePatch:
    """The file patch that undoes `file`."""
    kinds: dict[str, Kind] = {"add": "delete", "delete": "add"}
    swap = {b"+": b"-", b"-": b"+", b" ": b" "}
    hunks = tuple(
        Hunk(
            old_start=hunk.new_start, new_start=hunk.old_start, at=hunk.at,
            lines=tuple((swap[sign], text) for sign, text in hunk.lines),
        )
        for hunk in file.hunks
    )
    return msgspec.structs.replace(
        file, kind=kinds.get(file.kind, file.kind), old=file.new, new=file.old,
        old_mode=file.new_mode, new_mode=file.old_mode, old_id=None, hunks=hunks, binary=None,
    )


def _through_link(odb: ObjectStore, tree: str, files: Sequence[FilePatch]) -> Clash:
    for file in files:
        parts = file.path.split(b"/")
        for depth in range(1, len(parts)):
            entry = odb.find(tree, b"/".join(parts[:depth]))
            if entry is not None and entry.mode != FOLDER:
                return _clash(file, f"{show(b'/'.join(parts[:depth]))} is not a folder")
    return _clash(files[0], "a path leads through something that is not a folder")


def _onto_folder(files: Sequence[FilePatch], name: bytes) -> Clash:
    for file in files:
        if file.path == name or file.path.endswith(b"/" + name):
            return _clash(file, "the patch makes this file, but a folder is there already")
    return _clash(files[0], "a folder stands where a file has to go")


def _clash(file: FilePatch, why: str) -> Clash:
    return Clash(path=show(file.path), hunk=0, line=0, patch_line=file.at, why=why)


def _misfit(file: FilePatch, misfit: Misfit) -> Clash:
    return Clash(
        path=show(file.path), hunk=misfit.hunk, line=misfit.at,
        patch_line=file.hunks[misfit.hunk - 1].at, why=misfit.why,
        expected=tuple(show(line) for line in misfit.expected),
        found=tuple(show(line) for line in misfit.found),
    )


def show(data: bytes) -> str:
    """Bytes of a patch or a path as text for people: control characters and bad bytes escaped."""
    text = data.decode("utf-8", "surrogateescape").rstrip("\r\n")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\t" else ascii(c)[1:-1] for c in text)
