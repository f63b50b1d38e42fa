"""Line differences: unique common lines as anchors (patience), the rest by longest matches."""

from __future__ import annotations

import difflib
from bisect import bisect_left
from collections.abc import Sequence

Change = tuple[int, int, int, int]
"""Lines `old[a:b]` became `new[c:d]`."""

_STRIDE = 32  # equal lines at both ends are skipped by so many at once


def split(data: bytes) -> list[bytes]:
    """The lines of a file with their ends; only a newline ends a line."""
    if b"\r" not in data:
        return data.splitlines(keepends=True)
    lines = data.split(b"\n")
    tail = lines.pop()
    return [line + b"\n" for line in lines] + ([tail] if tail else [])


def changes(old: Sequence[bytes], new: Sequence[bytes]) -> list[Change]:
    """What differs, in order; between two changes stands at least one common line."""
    out: list[Change] = []
    _compare(old, new, 0, len(old), 0, len(new), out)
    joined: list[Change] = []
    for change in out:
        if joined and joined[-1][1] == change[0] and joined[-1][3] == change[2]:
            last = joined.pop()
            change = (last[0], change[1], last[2], change[3])
        joined.append(change)
    return joined


def _compare(
    old: Sequence[bytes], new: Sequence[bytes], a: int, b: int, c: int, d: int, out: list[Change]
) -> None:
    while a + _STRIDE <= b and c + _STRIDE <= d and (
        old[a : a + _STRIDE] == new[c : c + _STRIDE]
    ):
        a += _STRIDE
        c += _STRIDE
    while a < b and c < d and old[a] == new[c]:
        a += 1
        c += 1
    while a + _STRIDE <= b and c + _STRIDE <= d and (
        old[b - _STRIDE : b] == new[d - _STRIDE : d]
    ):
        b -= _STRIDE
        d -= _STRIDE
    while a < b and c < d and old[b - 1] == new[d - 1]:
        b -= 1
        d -= 1
    if a == b or c == d:
        if a < b or c < d:
            out.append((a, b, c, d))
        return
    anchors = _anchors(old, new, a, b, c, d)
    if not anchors:
        _leftover(old, new, a, b, c, d, out)
        return
    for i, j in anchors:
        if i >= a and j >= c:
            if i > a or j > c:
                _compare(old, new, a, i, c, j, out)
            a, c = i + 1, j + 1
    _compare(old, new, a, b, c, d, out)


def _anchors(
    old: Sequence[bytes], new: Sequence[bytes], a: int, b: int, c: int, d: int
) -> list[tuple[int, int]]:
    """The longest rising chain of lines that stand exactly once on each side."""
    left = _once(old, a, b)
    right = _once(new, c, d)
    pairs = [(at, right[line]) for line, at in left.items() if line in right]
    pairs.sort()
    tails: list[int] = []
    ends: list[int] = []
    back: list[int] = []
    for index, (_, j) in enumerate(pairs):
        place = bisect_left(tails, j)
        if place == len(tails):
            tails.append(j)
            ends.append(index)
        else:
            tails[place] = j
            ends[place] = index
        back.append(ends[place - 1] if place else -1)
    chain: list[tuple[int, int]] = []
    at = ends[-1] if ends else -1
    while at >= 0:
        chain.append(pairs[at])
        at = back[at]
    return chain[::-1]


def _once(lines: Sequence[bytes], start: int, stop: int) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    again: set[bytes] = set()
    for at in range(start, stop):
        line = lines[at]
        if line in found:
            again.add(line)
        else:
            found[line] = at
    for line in again:
        del found[line]
    return found


def _leftover(
    old: Sequence[bytes], new: Sequence[bytes], a: int, b: int, c: int, d: int, out: list[Change]
) -> None:
    """A stretch without unique common lines: the longest matching blocks decide."""
    if set(old[a:b]).isdisjoint(new[c:d]):
        out.append((a, b, c, d))
        return
    matcher = difflib.SequenceMatcher(None, old[a:b], new[c:d], autojunk=False)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag != "equal":
            out.append((a + i1, a + i2, c + j1, c + j2))
