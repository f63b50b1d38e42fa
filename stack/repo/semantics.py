"""The look at Python files after a clean merge, with the trees in which they stand."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from functools import cache, partial
from typing import Self

from stack.model.objects import FOLDER, SYMLINK
from stack.model.python import check as pycheck
from stack.model.python.imports import missing_imports, names_of
from stack.repo.carry import Carried, Merger
from stack.repo.odb import ObjectStore
from stack.repo.replay import show

Names = AbstractSet[str] | None


def suspects(
    merger: Merger, before: str, after: str, target: str, done: Carried
) -> tuple[str, ...]:
    """What is suspicious of a patch (tree `before` to `after`) carried onto the tree `target`.

    Where the very files of the patch were taken, only names that they import anew can be missing.
    """
    odb = merger.odb
    found: list[str] = []
    exports = cache(partial(_exports, odb, done.tree))
    for path, (left, right) in sorted(odb.changed(before, after).items()):
        home = done.moved.get(show(path), show(path)).encode("utf-8", "surrogateescape")
        here = odb.find(done.tree, home)
        if not path.endswith(b".py") or right is None or here is None:
            continue
        if {right.mode, here.mode} & {FOLDER, SYMLINK}:
            continue
        there = odb.find(target, home)
        ids = [
            entry.oid if entry is not None and entry.mode != FOLDER else ""
            for entry in (left, right, there, here)
        ]
        if ids[:2] == ids[2:]:
            texts = missing_imports(
                _blob(odb, ids[0]), odb.blob(ids[1]), merger.changes(*ids[:2]), exports
            )
        elif ids[2] == ids[3]:
            continue
        else:
            own, mine, theirs, new = (_blob(odb, oid) for oid in ids)
            texts = pycheck.suspects(
                own, mine, theirs, new, exports, own=merger.changes(*ids[:2]),
                made=merger.changes(*ids[2:]),
            )
        found += [f"{show(home)}: {text}" for text in texts]
    return tuple(found)


def flaws(odb: ObjectStore, before: str, after: str) -> tuple[tuple[str, str], ...]:
    """What is wrong with the Python files that a patch changes where it was made: path, sentence.

    `before` and `after` are the trees without and with it.
    """
    found: list[tuple[str, str]] = []
    exports = cache(partial(_exports, odb, after))
    for path, (left, right) in sorted(odb.changed(before, after).items()):
        if not path.endswith(b".py") or right is None or right.mode in (FOLDER, SYMLINK):
            continue
        old = odb.blob(left.oid) if left is not None and left.mode != FOLDER else b""
        new = odb.blob(right.oid)
        found += [(show(path), text) for text in pycheck.suspects(old, new, old, new, exports)]
    return tuple(found)


def _blob(odb: ObjectStore, oid: str) -> bytes:
    return odb.blob(oid) if oid else b""


def _exports(odb: ObjectStore, tree: str, module: str) -> Names:
    """Names that `from MODULE import` can have; None for a module that is not in the tree."""
    path = module.replace(".", "/").encode()
    entry = odb.find(tree, path + b".py")
    if entry is not None:
        return _Anything(names_of(odb.blob(entry.oid)))
    folder = odb.find(tree, path)
    if folder is None or folder.mode != FOLDER:
        return None
    inside = odb.tree(folder.oid)
    names = {name.decode("utf-8", "replace").removesuffix(".py") for name in inside}
    init = inside.get(b"__init__.py")
    own = names_of(odb.blob(init.oid)) if init else frozenset()
    return _Anything(None if own is None else own | names)


class _Anything(frozenset[str]):
    """A set of names; one that only running the module would tell holds every name."""

    open = False

    def __new__(cls, names: AbstractSet[str] | None) -> Self:
        made = super().__new__(cls, names or ())
        made.open = names is None
        return made

    def __contains__(self, name: object) -> bool:
        return self.open or super().__contains__(name)
