"""The names that Python files import from modules, and those that the modules do not have."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache

from stack.model.diff.linediff import Change, split
from stack.model.python.parse import DEFINITIONS, parse

Exports = Callable[[str], "AbstractSet[str] | None"]
"""The names of a module by its dotted name; None for a module that is not in the tree."""

_FROM = re.compile(rb"\bfrom[ \t]+([A-Za-z_][\w.]*)[ \t\\\r\n]+import\b[ \t]*")
_NAMES = re.compile(rb"\s*(?:\w+(?:\s+as\s+\w+)?\s*,\s*)*(?:\w+(?:\s+as\s+\w+)?)?\s*(?:#.*)?")
_COMMENT = re.compile(rb"#[^\n]*")
_NAME = re.compile(rb"\s*([A-Za-z_]\w*)")


def missing_imports(
    before: bytes, after: bytes, made: Sequence[Change], exports: Exports
) -> list[str]:
    """The names that `made`, the changes of a file, import anew and that the tree does not have.

    What the changed lines seem to import is looked at first; only where some of that is missing
    are both files parsed, and what is said is what the parse says.
    """
    if any(_lack(one, exports) for one in _written(split(after), made)):
        return _all_missing(before, after, exports)
    return []


def _lack(one: tuple[str, str], exports: Exports) -> str | None:
    """What is missing of an import of a name from a module."""
    module, name = one
    names = exports(module)
    if names is not None and name not in names and exports(f"{module}.{name}") is None:
        return f"imports `{name}`, which {module} does not have"
    if names is None and "." in module and exports(module.partition(".")[0]) is not None:
        return f"imports {module}, which is not in the tree"
    return None


def _written(lines: Sequence[bytes], made: Sequence[Change]) -> Iterator[tuple[str, str]]:
    """Module and name of what looks like an import in or around the changed lines."""
    for _, _, c, d in made:
        if c == d:
            continue
        first = c  # the line above may have begun a list of names
        while first > 0 and not _FROM.search(lines[first]) and _NAMES.fullmatch(
            lines[first].rstrip(b"\r\n")
        ):
            first -= 1
        head = b"".join(lines[first:d])
        if b"import" not in head:
            continue
        text = head + b"".join(lines[d : d + 200])
        for match in _FROM.finditer(text):
            if match.start() >= len(head):
                break
            rest = text[match.end() :]
            if rest.startswith(b"("):
                listed = _COMMENT.sub(b"", rest[1:]).partition(b")")[0]
            else:
                listed = rest.replace(b"\\\n", b" ").partition(b"\n")[0]
            for part in listed.split(b","):
                if name := _NAME.match(part):
                    yield match[1].decode(), name[1].decode()


def _all_missing(before: bytes, after: bytes, exports: Exports) -> list[str]:
    """What a parse of both files says."""
    known = {one[:2] for one in _imports(before)}
    found = []
    for module, name, line in _imports(after):
        if (module, name) not in known and (lack := _lack((module, name), exports)):
            found.append(f"line {line}: {lack}")
    return found


@lru_cache(64)
def _imports(data: bytes) -> tuple[tuple[str, str, int], ...]:
    """Module, name and line of every `from MODULE import NAME`; a forecast asks again and again."""
    tree = parse(data)
    return () if tree is None else tuple(
        (node.module, alias.name, node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and not node.level
        for alias in node.names
        if alias.name != "*"
    )


@lru_cache(64)
def names_of(data: bytes) -> frozenset[str] | None:
    """The names that a module defines at its top level; None where only running it would tell."""
    tree = parse(data)
    if tree is None:
        return None
    found: set[str] = set()
    waiting: list[ast.stmt] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, DEFINITIONS):
            found.add(node.name)
            if node.name == "__getattr__":
                return None
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                if alias.name == "*":
                    return None
                found.add(alias.asname or alias.name.partition(".")[0])
        elif isinstance(node, (ast.If, ast.Try, ast.With, ast.For, ast.While)):
            waiting += node.body
            waiting += getattr(node, "orelse", [])
            waiting += getattr(node, "finalbody", [])
            for handler in getattr(node, "handlers", []):
                waiting += handler.body
        else:
            targets = (
                node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            )
            for one in targets:
                found |= {n.id for n in ast.walk(one) if isinstance(n, ast.Name)} if one else set()
            if isinstance(node, ast.Expr) and "globals()" in ast.unparse(node):
                return None
    return frozenset(found)
