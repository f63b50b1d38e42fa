"""Whether Python text parses, asked again and again of files that change little.

Of a file that is known to parse, only the top-level statements around a change are parsed again:
where they are whole statements by themselves, so is the file. Where they are not, all of it is
parsed, so that the answer is always that of the whole file.
"""

from __future__ import annotations

import ast
from bisect import bisect_left
from codecs import BOM_UTF8
from collections.abc import Sequence

from stack.model.diff.linediff import Change, split

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_KEPT = 256
_HEAD = 2  # lines in which a coding cookie can stand
_known: dict[bytes, list[int]] = {}
"""Files that parse, with the lines (from 0) at which they can be cut between statements."""


def parse(data: bytes) -> ast.Module | None:
    """The syntax tree of a file, or None."""
    try:
        return ast.parse(data)
    except (SyntaxError, ValueError):
        return None


def parses(result: bytes, before: bytes, made: Sequence[Change]) -> bool:
    """Whether `result` parses, which is the file `before` with the changes `made`."""
    cuts = _known.get(before)
    found = None
    if cuts is not None and made and made[0][0] >= _HEAD:
        found = _patched(split(result), cuts, made)
    if found is None:
        tree = parse(result)
        if tree is None:
            return False
        found = _cuts(tree)
    if b"\r" not in result:  # which would end a line for Python, but not for us
        if len(_known) >= _KEPT:
            del _known[next(iter(_known))]
        _known[result] = found
    return True


def _patched(
    lines: Sequence[bytes], cuts: Sequence[int], made: Sequence[Change]
) -> list[int] | None:
    """Where the changed file can be cut; None where its parts do not tell."""
    found: list[int] = []
    done = at = shift = 0
    while at < len(made):
        first = max(bisect_left(cuts, made[at][0]) - 1, 0)
        last, before = first + 1, shift
        while at < len(made) and (last == len(cuts) or made[at][0] <= cuts[last]):
            last = max(last, bisect_left(cuts, made[at][1]))
            shift = made[at][3] - made[at][1]
            at += 1
        low = cuts[first] + before
        high = cuts[last] + shift if last < len(cuts) else len(lines)
        if any(line.startswith(BOM_UTF8) or b"coding" in line for line in lines[low : low + _HEAD]):
            return None  # at the beginning of a text these mean something
        tree = parse(b"".join(lines[low:high]))
        if tree is None:
            return None
        found += [cut + before for cut in cuts[done:first]]
        found += [low + cut for cut in _cuts(tree)]
        done = last
    return found + [cut + shift for cut in cuts[done:]]


def _cuts(tree: ast.Module) -> list[int]:
    """The beginning, and the lines (from 0) at which a statement begins that shares none."""
    found = [0]
    end = 1
    for node in tree.body:
        first = node.lineno
        for decorator in getattr(node, "decorator_list", ()):
            first = min(first, decorator.lineno)
        if first > end:
            found.append(first - 1)
        end = max(end, node.end_lineno or node.lineno)
    return found
