"""The look at Python files after a clean merge, with the trees in which they stand."""

from __future__ import annotations

from stack.model import pycheck
from stack.model.objects import FOLDER, SYMLINK
from stack.repo.odb import ObjectStore
from stack.repo.replay import show


def suspects(
    odb: ObjectStore, before: str, after: str, target: str, result: str
) -> tuple[str, ...]:
    """What is suspicious of a patch (tree `before` to `after`) carried from `target` to `result`."""
    found: list[str] = []
    cache: dict[str, set[str] | None] = {}

    def exports(module: str) -> set[str] | None:
        if module not in cache:
            cache[module] = _exports(odb, result, module)
        return cache[module]

    for path, (left, right) in sorted(odb.changed(target, result).items()):
        if not path.endswith(b".py") or right is None or right.mode in (FOLDER, SYMLINK):
            continue
        sides = []
        for tree in (before, after):
            entry = odb.find(tree, path)
            sides.append(odb.blob(entry.oid) if entry and entry.mode != FOLDER else b"")
        old = odb.blob(left.oid) if left is not None and left.mode != FOLDER else b""
        new = odb.blob(right.oid)
        if sides == [old, new]:
            continue  # the very files that the patch was made on
        found += [f"{show(path)}: {text}" for text in pycheck.suspects(*sides, old, new, exports)]
    return tuple(found)


def _exports(odb: ObjectStore, tree: str, module: str) -> set[str] | None:
    """Names that `from MODULE import` can have: definitions and submodules; None if not in the tree."""
    path = module.replace(".", "/").encode()
    entry = odb.find(tree, path + b".py")
    if entry is not None:
        return _Anything(pycheck.names_of(odb.blob(entry.oid)))
    folder = odb.find(tree, path)
    if folder is None or folder.mode != FOLDER:
        return None
    inside = odb.tree(folder.oid)
    names = {name.decode("utf-8", "replace").removesuffix(".py") for name in inside}
    init = inside.get(b"__init__.py")
    own = pycheck.names_of(odb.blob(init.oid)) if init else set()
    return _Anything(None if own is None else own | names)


class _Anything(set[str]):
    """A set of names; one that only running the module would tell holds every name."""

    def __init__(self, names: set[str] | None) -> None:
        super().__init__(names or ())
        self.open = names is None

    def __contains__(self, name: object) -> bool:
        return self.open or super().__contains__(name)
