"""A three-way merge of one file, region by region.

Changes of the two sides that overlap or touch are one region; it is clean where both sides made
the same of it, else it is a conflict. Lines that both sides agree on at the ends of a conflict are
taken out of it, as git's "zealous" merge does. Nothing is ever placed by likeness.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import msgspec

from stack.model.diff.linediff import Change, changes, split

OURS, THEIRS = "<<<<<<<", ">>>>>>>"


class Region(msgspec.Struct, frozen=True, kw_only=True):
    """A place where both sides changed the same lines differently; each side is bytes of lines.

    `target` is what stands where the patch has to go, `patch` what the patch makes of `base`.
    `line` is where it begins in the merged text, from 1.
    """

    base: bytes
    target: bytes
    patch: bytes
    line: int = 0

    @property
    def key(self) -> str:
        """The identity of the question: its three sides, wherever it stands."""
        state = hashlib.sha256()
        for side in (self.base, self.target, self.patch):
            state.update(b"%d\0" % len(side) + side)
        return state.hexdigest()[:32]


class Merge(msgspec.Struct, frozen=True, kw_only=True):
    """A merged file. `regions` are the conflicts without an answer; `answered` those that had one.

    `data` has conflict markers where `regions` stand. `there` are the patch's changes that the
    target has word for word, as lines `base[a:b]` and `patch[c:d]` counted from 0.
    """

    data: bytes
    regions: tuple[Region, ...]
    answered: tuple[Region, ...]
    there: tuple[Change, ...]


Answer = Callable[[Region], bytes | None]


def merge(
    base: bytes, target: bytes, patch: bytes, *, answer: Answer = lambda region: None,
    names: tuple[str, str] = ("target", "patch"),
) -> Merge:
    """Merge what `patch` did to `base` into `target`; `answer` is asked for every conflict."""
    old, ours, theirs = split(base), split(target), split(patch)
    return merge_lines(
        old, ours, theirs, changes(old, ours), changes(old, theirs), answer=answer, names=names
    )


def merge_lines(
    old: list[bytes], ours: list[bytes], theirs: list[bytes], left: list[Change],
    right: list[Change], *, answer: Answer = lambda region: None,
    names: tuple[str, str] = ("target", "patch"),
) -> Merge:
    """`merge` of files that are split and compared already: `left` and `right` are the changes."""
    out: list[bytes] = []
    regions: list[Region] = []
    answered: list[Region] = []
    there: list[Change] = []
    at = 0
    line = 1

    def put(lines: Sequence[bytes]) -> None:
        nonlocal line
        out.extend(lines)
        line += len(lines)

    for start, stop, here, own in _regions(left, right):
        put(old[at:start])
        at = stop
        mine = _side(old, ours, here, start, stop)
        yours = _side(old, theirs, own, start, stop)
        was = old[start:stop]
        if not own or mine == yours:
            there += own
            put(mine)
        elif not here:
            put(yours)
        else:
            head, tail, inner = _trim(was, mine, yours)
            put(head)
            region = Region(
                base=b"".join(inner[0]), target=b"".join(inner[1]), patch=b"".join(inner[2]),
                line=line,
            )
            reply = answer(region)
            if reply is None:
                regions.append(region)
                put(_marked(region, names))
            else:
                answered.append(region)
                put(split(reply))
            put(tail)
    put(old[at:])
    return Merge(
        data=b"".join(out), regions=tuple(regions), answered=tuple(answered), there=tuple(there)
    )


def _regions(
    left: list[Change], right: list[Change]
) -> list[tuple[int, int, list[Change], list[Change]]]:
    """Group the changes of both sides that overlap or touch, as stretches of the base."""
    groups: list[tuple[int, int, list[Change], list[Change]]] = []
    i = j = 0
    while i < len(left) or j < len(right):
        take_left = j >= len(right) or (i < len(left) and left[i][0] <= right[j][0])
        first = left[i] if take_left else right[j]
        start, stop = first[0], first[1]
        mine: list[Change] = []
        yours: list[Change] = []
        while True:
            if i < len(left) and left[i][0] <= stop:
                stop = max(stop, left[i][1])
                mine.append(left[i])
                i += 1
            elif j < len(right) and right[j][0] <= stop:
                stop = max(stop, right[j][1])
                yours.append(right[j])
                j += 1
            else:
                break
        groups.append((start, stop, mine, yours))
    return groups


def _side(
    old: list[bytes], new: list[bytes], own: list[Change], start: int, stop: int
) -> list[bytes]:
    """What one side has in place of `old[start:stop]`."""
    lines: list[bytes] = []
    at = start
    for a, b, c, d in own:
        lines += old[at:a]
        lines += new[c:d]
        at = b
    lines += old[at:stop]
    return lines


def _trim(
    base: list[bytes], mine: list[bytes], yours: list[bytes]
) -> tuple[list[bytes], list[bytes], tuple[list[bytes], list[bytes], list[bytes]]]:
    """Take the lines that both sides begin and end with out of a conflict."""
    size = min(len(mine), len(yours))
    head = 0
    while head < size and mine[head] == yours[head]:
        head += 1
    tail = 0
    while tail < size - head and mine[-1 - tail] == yours[-1 - tail]:
        tail += 1
    same_head = 0
    while same_head < min(head, len(base)) and base[same_head] == mine[same_head]:
        same_head += 1
    same_tail = 0
    while (
        same_tail < min(tail, len(base) - same_head)
        and base[-1 - same_tail] == mine[-1 - same_tail]
    ):
        same_tail += 1
    inner = (
        base[same_head : len(base) - same_tail], mine[head : len(mine) - tail],
        yours[head : len(yours) - tail],
    )
    return mine[:head], mine[len(mine) - tail :], inner


def _marked(region: Region, names: tuple[str, str]) -> list[bytes]:
    """A conflict with markers, in git's diff3 style."""
    parts = [f"{OURS} {names[0]}\n".encode(), *_whole(region.target)]
    parts += [b"||||||| before the patch\n", *_whole(region.base), b"=======\n"]
    parts += [*_whole(region.patch), f"{THEIRS} {names[1]}\n".encode()]
    return parts


def _whole(side: bytes) -> list[bytes]:
    """Lines of a side; a missing last newline is made up, so that a marker starts its own line."""
    lines = split(side)
    if lines and not lines[-1].endswith(b"\n"):
        lines[-1] += b"\n"
    return lines
