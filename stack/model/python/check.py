"""What a clean merge of Python text cannot tell: code that no longer parses, or that nobody runs.

Each finding is a sentence for people. Nothing here runs or imports the code that it looks at.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from stack.model.diff.linediff import Change, changes, split
from stack.model.python.imports import Exports, missing_imports
from stack.model.python.parse import DEFINITIONS, parse, parses

Run = tuple[bytes, ...]
Runs = dict[Run, list[int]]
_OPENS = re.compile(rb"\s*(?:async\s+def|def|class)\s+(\w+)")


def suspects(
    before: bytes, after: bytes, target: bytes, result: bytes, exports: Exports, *,
    own: Sequence[Change] | None = None, made: Sequence[Change] | None = None,
) -> list[str]:
    """What is suspicious of a file that a patch (`before` to `after`) changed at a new place.

    `target` and `result` are the file there without and with the patch; `own` and `made` are the
    changes of the two pairs, for who knows them. Only what the merge made is reported: what was so
    without it, or is so in the patch's own file, is nobody's doing.
    """
    own_lines, lines = split(after), split(result)
    own = changes(split(before), own_lines) if own is None else own
    made = changes(split(target), lines) if made is None else made
    if not parses(result, target, made):
        if parse(target) is not None or not target:
            return [f"does not parse: {_syntax(result)}"]
        return []
    added = _added(made, lines)
    new = b"".join(line for run in added for line in run)
    found: list[str] = []
    if b"def " in new or b"class " in new:
        found += _shadowed(target, result)
    if b"import" in new:
        found += missing_imports(target, result, made, exports)
    return found + _elsewhere(_added(own, own_lines), own_lines, added, lines)


def _syntax(data: bytes) -> str:
    try:
        ast.parse(data)
    except SyntaxError as wrong:
        return f"line {wrong.lineno}: {wrong.msg}"
    except ValueError as wrong:
        return str(wrong)
    return ""


def _scopes(tree: ast.Module) -> Iterator[tuple[str, list[ast.stmt]]]:
    """Every module and class body with its qualified name."""
    waiting: list[tuple[str, ast.Module | ast.ClassDef]] = [("", tree)]
    while waiting:
        name, node = waiting.pop()
        yield name, node.body
        waiting += [
            (f"{name}.{child.name}".lstrip("."), child)
            for child in node.body
            if isinstance(child, ast.ClassDef)
        ]


def _definitions(tree: ast.Module) -> dict[tuple[str, str], list[ast.stmt]]:
    """The definitions of each name in each scope, without overloads and property setters."""
    found: dict[tuple[str, str], list[ast.stmt]] = {}
    for scope, body in _scopes(tree):
        for node in body:
            if isinstance(node, DEFINITIONS) and not _chained(node):
                found.setdefault((scope, node.name), []).append(node)
    return found


def _chained(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    """Whether a second definition of the name is meant: overloads, setters, registrations."""
    for decorator in node.decorator_list:
        inner = decorator.func if isinstance(decorator, ast.Call) else decorator
        if isinstance(inner, ast.Attribute) and inner.attr in (
            "setter",
            "deleter",
            "getter",
            "register",
            "overload",
        ):
            return True
        if isinstance(inner, ast.Name) and inner.id == "overload":
            return True
    return node.name == "_"


def _shadowed(target: bytes, result: bytes) -> list[str]:
    old, tree = parse(target), parse(result)
    if tree is None:
        return []
    counts = {key: len(nodes) for key, nodes in _definitions(old).items()} if old else {}
    found = []
    for (scope, name), nodes in _definitions(tree).items():
        if len(nodes) > max(1, counts.get((scope, name), 0)):
            where = f"{scope}.{name}".lstrip(".")
            found.append(
                f"`{where}` at line {nodes[0].lineno} is shadowed by another at line "
                f"{nodes[-1].lineno}"
            )
    return found


def _elsewhere(
    mine: Runs, own_lines: list[bytes], added: Runs, lines: list[bytes]
) -> list[str]:
    """Added lines that stand in another function or class than in the patch's own file."""
    own: ast.Module | None = None
    here: ast.Module | None = None
    found = []
    for text, places in added.items():
        if len(places) > 1 or len(mine.get(text, ())) != 1 or not b"".join(text).strip():
            continue  # of two equal runs nobody can tell which is which
        at, there = places[0], mine[text][0]
        if _around(own_lines, there) == _around(lines, at):
            continue  # by the look of the text; only where it differs is the file parsed
        own, here = own or parse(b"".join(own_lines)), here or parse(b"".join(lines))
        if own is None or here is None:
            return []
        was, now = _scope_at(own, there), _scope_at(here, at)
        if was != now:
            found.append(
                f"line {at}: stands in {now or 'the module'}, but in {was or 'the module'} "
                "in the patch's own file"
            )
    return found


def _around(lines: list[bytes], at: int) -> list[bytes]:
    """The names of the functions and classes around line `at` (from 1), by indentation alone."""
    depth = _depth(lines[at - 1])
    found: list[bytes] = []
    for line in reversed(lines[: at - 1]):
        if not depth:
            break
        if line.strip() and _depth(line) < depth:
            depth = _depth(line)
            if match := _OPENS.match(line):
                found.append(match[1])
    return found


def _depth(line: bytes) -> int:
    return len(line) - len(line.lstrip(b" \t"))


def _added(made: Sequence[Change], after: Sequence[bytes]) -> Runs:
    """The runs of added lines, with the lines (from 1) at which each of them begins."""
    found: Runs = {}
    for _, _, c, d in made:
        if c < d:
            first = next((n for n in range(c, d) if after[n].strip()), c)
            found.setdefault(tuple(after[c:d]), []).append(first + 1)
    return found


def _scope_at(tree: ast.Module, line: int) -> str:
    """The qualified name of the innermost function or class that holds a line."""
    name = ""
    body: list[ast.stmt] = tree.body
    while True:
        inner = next(
            (
                node
                for node in body
                if isinstance(node, DEFINITIONS)
                and _first(node) <= line <= (node.end_lineno or node.lineno)
            ),
            None,
        )
        if inner is None:
            return name
        if _first(inner) == line or inner.lineno == line:
            return name
        name = f"{name}.{inner.name}".lstrip(".")
        body = inner.body


def _first(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
