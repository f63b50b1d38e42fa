"""What the patches of a pile import and do not have: made by another of them, or by nobody."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

import msgspec

from stack.flows.pile.replay import Step
from stack.flows.pile.world import World
from stack.model.objects import FOLDER, SYMLINK
from stack.model.python.imports import names_of
from stack.model.python.parse import parse
from stack.repo.odb import ObjectStore
from stack.repo.replay import show

_MOST_SHOWN = 3
_BUILT = ("_C", "_version", "_moe_C", "_rocm_C")  # made by a build, so in no tree


class Need(msgspec.Struct, frozen=True):
    """A module, or a name in one, that the file `path` of input `file` imports."""

    file: str
    path: str
    module: str
    name: str = ""
    by: str | None = None
    later: bool = False

    def __str__(self) -> str:
        what = f"{self.module}.{self.name}" if self.name else self.module
        if self.by is None:
            return f"{self.path} imports {what}, which nothing defines"
        return f"needs {self.by} for {what}"


def needs(
    world: World, steps: Sequence[Step], packages: Sequence[str]
) -> dict[str, list[Need]]:
    """What each input lacks in the tree that it makes, by input."""
    roots = {package.rpartition("/")[2]: package.rpartition("/")[0] for package in packages}
    if not roots:
        roots = _packages(world)
    finder = _Finder(world.odb, roots)
    trees = [step.after for step in steps]
    found: dict[str, list[Need]] = {}
    for at, step in enumerate(steps):
        for path, (before, after) in world.odb.changed(step.before, step.after).items():
            if not path.endswith(b".py") or after is None or after.mode in (FOLDER, SYMLINK):
                continue
            was = world.odb.blob(before.oid) if before and before.mode != FOLDER else b""
            new = world.odb.blob(after.oid)
            if not any(b"import" in line for line in {*new.split(b"\n")} - {*was.split(b"\n")}):
                continue
            package = finder.package(path)
            for module, name in sorted(imports(new, package) - imports(was, package)):
                if finder.has(steps[0].before, module, name) is not False:
                    continue
                maker = next(
                    (other for other, tree in enumerate(trees) if finder.has(tree, module, name)),
                    None,
                )
                if maker == at:
                    continue
                found.setdefault(step.one.file, []).append(Need(
                    file=step.one.file, path=show(path), module=module, name=name,
                    by=None if maker is None else steps[maker].one.file,
                    later=maker is not None and maker > at,
                ))
    return found


def text_of(found: Sequence[Need]) -> str:
    """Needs as words for a reason."""
    texts = list(dict.fromkeys(map(str, found)))
    more = f"; and {len(texts) - _MOST_SHOWN} more" if len(texts) > _MOST_SHOWN else ""
    return "; ".join(texts[:_MOST_SHOWN]) + more


def _packages(world: World) -> dict[str, str]:
    """The top folders that are import packages, where nobody says which are."""
    found: dict[str, str] = {}
    for name, entry in world.odb.tree(world.tree).items():
        if entry.mode == FOLDER and b"__init__.py" in world.odb.tree(entry.oid):
            found[name.decode("utf-8", "replace")] = ""
    return found


class _Finder:
    """Whether a tree has a module, or a name in one; answers are kept per tree."""

    def __init__(self, odb: ObjectStore, roots: Mapping[str, str]) -> None:
        self.odb, self.roots = odb, roots
        self._names: dict[str, frozenset[str] | None] = {}

    def package(self, path: bytes) -> list[str]:
        """The dotted package in which a file stands."""
        folder = path.decode("utf-8", "replace").rpartition("/")[0]
        for parent in self.roots.values():
            if parent and folder.startswith(parent + "/"):
                folder = folder[len(parent) + 1 :]
        return folder.split("/") if folder else []

    def has(self, tree: str, module: str, name: str) -> bool | None:
        """None for a module of others, whose tree is not here."""
        root = module.partition(".")[0]
        if root not in self.roots or any(
            part.startswith(_BUILT) for part in (*module.split("."), name)
        ):
            return None
        parent = self.roots[root]
        path = "/".join(part for part in (parent, *module.split(".")) if part).encode()
        file = self.odb.find(tree, path + b".py")
        if file is not None:
            known = self._of(file.oid)
            return not name or known is None or name in known
        folder = self.odb.find(tree, path)
        if folder is None or folder.mode != FOLDER:
            return False
        if not name:
            return True
        inside = self.odb.tree(folder.oid)
        if name.encode() in inside or name.encode() + b".py" in inside:
            return True
        init = inside.get(b"__init__.py")
        if init is None:
            return False
        known = self._of(init.oid)
        return known is None or name in known

    def _of(self, oid: str) -> frozenset[str] | None:
        if oid not in self._names:
            self._names[oid] = names_of(self.odb.blob(oid))
        return self._names[oid]


def imports(data: bytes, package: Sequence[str]) -> set[tuple[str, str]]:
    """Module and name (or none) of every import of a Python file in `package`.

    An import under `try` or `if TYPE_CHECKING` is left out: it may be absent.
    """
    tree = parse(data)
    found: set[tuple[str, str]] = set()
    waiting: list[ast.AST] = [tree] if tree is not None else []
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            found |= {(alias.name, "") for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            found |= {(module, alias.name) for alias in node.names if alias.name != "*"}
        elif isinstance(node, ast.Try):
            waiting += [*node.orelse, *node.finalbody]
        elif not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
            waiting += ast.iter_child_nodes(node)
    return found
