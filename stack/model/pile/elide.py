"""Hunks whose context skips lines: the one way in which their lines follow each other in a file."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import msgspec

from stack.model.pile.sections import PileHunk

_MOST_SKIPPED = 60
_MOST_TRIED = 4000
_FEWEST = 2


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    """What is put into a text: each part replaces the lines `start:stop` by its own."""

    start: int
    stop: int
    parts: tuple[tuple[int, int, tuple[bytes, ...]], ...]


def elided(
    lines: Sequence[bytes], where: Mapping[bytes, list[int]], hunk: PileHunk
) -> Edit | None:
    """Where a hunk stands if its context may skip lines; None unless there is exactly one such way.

    Lines may be skipped between two lines that both stay only, so that it is plain where what is
    added goes and that nothing else is removed.
    """
    old = [(at, text) for at, (sign, text) in enumerate(hunk.lines) if sign != b"+"]
    if sum(bool(text.strip()) for _, text in old) < _FEWEST:
        return None
    if hunk.stripped or not all(text.endswith(b"\n") for text in hunk.new):
        return None  # its end is not sure, or it makes the end of a file
    gaps = [
        hunk.lines[left][0] == b" " and hunk.lines[right][0] == b" " and right == left + 1
        for (left, _), (right, _) in itertools.pairwise(old)
    ]
    if not any(gaps):
        return None
    ways: set[tuple[tuple[int, int, tuple[bytes, ...]], ...]] = set()
    spans: dict[tuple[tuple[int, int, tuple[bytes, ...]], ...], tuple[int, int]] = {}
    tried = 0
    for start in where.get(old[0][1], ()):
        waiting: list[tuple[int, tuple[int, ...]]] = [(1, (start,))]
        while waiting:
            tried += 1
            if tried > _MOST_TRIED:
                return None
            at, places = waiting.pop()
            if at == len(old):
                parts = _parts(hunk, places)
                ways.add(parts)
                spans.setdefault(parts, (places[0], places[-1] + 1))
                if len(ways) > 1:
                    return None
                continue
            last = places[-1]
            if last + 1 < len(lines) and lines[last + 1] == old[at][1]:
                waiting.append((at + 1, (*places, last + 1)))
            elif gaps[at - 1]:
                skipped = sum(b - a - 1 for a, b in itertools.pairwise(places))
                end = last + 2 + _MOST_SKIPPED - skipped
                waiting += [
                    (at + 1, (*places, one))
                    for one in where.get(old[at][1], ())
                    if last + 1 < one < end
                ]
    if len(ways) != 1:
        return None
    (parts,) = ways
    span = spans[parts]
    return Edit(start=span[0], stop=span[1], parts=parts)


def _parts(
    hunk: PileHunk, places: Sequence[int]
) -> tuple[tuple[int, int, tuple[bytes, ...]], ...]:
    """The changes of a hunk whose old lines stand at `places`."""
    parts: list[tuple[int, int, tuple[bytes, ...]]] = []
    at = places[0]  # where the next line would stand
    index = 0
    removed: tuple[int, int] | None = None
    added: list[bytes] = []

    def close() -> None:
        nonlocal removed, added
        if removed is not None or added:
            span = removed or (at, at)
            parts.append((span[0], span[1], tuple(added)))
        removed, added = None, []

    for sign, text in hunk.lines:
        if sign == b"+":
            added.append(text)
            continue
        place = places[index]
        index += 1
        if sign == b" ":
            close()
        else:
            removed = (removed[0] if removed else place, place + 1)
        at = place + 1
    close()
    return tuple(parts)
