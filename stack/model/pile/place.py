"""Puts the hunks of a pile into a text: by number where it is known, else only where they fit once.

Of several equal places the heading decides, then the hunks before and after, and last the line
number, if every other hunk of the section stands exactly where it says; each is a flag. A hunk is
never put where its context and removed lines do not stand, but they may skip lines (`elide`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import msgspec

from stack.model.pile.elide import Edit, elided
from stack.model.pile.lines import Lines
from stack.model.pile.sections import Flag, PileHunk

MOST_WAYS = 60
_LOOSE = "it has no context, and this is not known to be the file that it was made for"


class Placing(msgspec.Struct, frozen=True, kw_only=True):
    """A text with the hunks in it; `there` are the hunks (from 1) that stood there already."""

    data: bytes
    flags: frozenset[Flag] = frozenset()
    there: tuple[int, ...] = ()


class Unfit(msgspec.Struct, frozen=True, kw_only=True):
    """The first hunk (from 1) that has no place, and why; `line` is its line in the diff."""

    hunk: int
    line: int
    why: str


def place(
    text: Lines, hunks: Sequence[PileHunk], *, known: bool = False, elide: bool = False,
    there: bool = False, exact: bool = False, wanted: Callable[[bytes], bool] | None = None,
) -> Placing | Unfit:
    """Put hunks into a text.

    `known` says that it is the very text that they were made for, `exact` asks that each stands
    where it says, `elide` allows context that skips lines, `there` hunks that stand there already.
    Where several places are as good, `wanted` is asked of the results.
    """
    flags: set[Flag] = set()
    edits: list[Edit | None] = []
    already: list[int] = []
    spots: list[list[int]] = []
    chosen: list[PileHunk] = []
    for number, hunk in enumerate(hunks, 1):
        found, hunk = _spots(text, hunk)
        chosen.append(hunk)
        if exact and _said(hunk) not in found:
            return _unfit(number, hunk, "it does not stand where it says")
        if there and _is_there(text, hunk, found):
            already.append(number)
            spots.append([])
            continue
        if not found and elide and (edit := elided(text.lines, text.where, hunk)) is not None:
            flags.add(Flag.ELIDED)
            edits.append(edit)
            spots.append([])
            continue
        if not found:
            return _unfit(number, hunk, _why(text, hunk))
        spots.append(found)
    pairs = [(hunk, found) for hunk, found in zip(chosen, spots, strict=True) if found]
    settled = all(_said(hunk) in found for hunk, found in pairs)
    loose = next((n for n, (hunk, _) in enumerate(pairs) if not hunk.old), None)
    if loose is not None and text.lines and not known:
        held = settled and any(hunk.old for hunk, _ in pairs)
        if not held:  # only hunks beside it that stand where they say could vouch for its number
            return _unfit(loose + 1, pairs[loose][0], _LOOSE)
        flags.add(Flag.NO_CONTEXT)
    for number, (hunk, found) in enumerate(zip(chosen, spots, strict=True), 1):
        if not found:
            continue
        at = _choose(text, number - 1, chosen, spots, flags, known=known, settled=settled)
        if at is None and wanted is not None:
            return _tried(text, chosen, spots, wanted) or _unfit(number, hunk, "ambiguous")
        if at is None:
            shown = ", ".join(str(one + 1) for one in found[:5])
            more = "" if len(found) <= 5 else ", ..."
            why = f"its lines stand in {len(found)} places ({shown}{more}): ambiguous"
            return _unfit(number, hunk, why)
        spots[number - 1] = [at]
        if hunk.old_start is not None and at != _said(hunk) and not known:
            flags.add(Flag.MOVED)
        edits.append(_edit(hunk, at))
    if already:
        flags.add(Flag.PARTLY_THERE)
    ordered = sorted((edit for edit in edits if edit is not None), key=lambda edit: edit.start)
    for left, right in itertools.pairwise(ordered):
        if left.stop > right.start:
            return _unfit(1, hunks[0], "its hunks want the same lines")
    return Placing(data=_made(text, ordered), flags=frozenset(flags), there=tuple(already))


def _edit(hunk: PileHunk, at: int) -> Edit:
    stop = at + len(hunk.old)
    return Edit(start=at, stop=stop, parts=((at, stop, tuple(hunk.new)),))


def _tried(
    text: Lines, hunks: Sequence[PileHunk], spots: Sequence[Sequence[int]],
    wanted: Callable[[bytes], bool],
) -> Placing | None:
    """The places, one after the other, whose result is the wanted one."""
    if any(not found for found in spots):
        return None
    edits = [[_edit(hunk, at) for at in found[:MOST_WAYS]]
             for hunk, found in zip(hunks, spots, strict=True)]
    ways = 0
    waiting: list[tuple[Edit, ...]] = [()]
    while waiting:
        so_far = waiting.pop()
        if len(so_far) == len(edits):
            ways += 1
            data = _made(text, so_far)
            if wanted(data):
                return Placing(data=data)
            if ways >= MOST_WAYS:
                return None
            continue
        done = so_far[-1].stop if so_far else 0
        fits = [one for one in edits[len(so_far)] if one.start >= done]
        if len(waiting) + len(fits) > 50 * MOST_WAYS:
            return None
        waiting += [(*so_far, one) for one in reversed(fits)]
    return None


def _unfit(number: int, hunk: PileHunk, why: str) -> Unfit:
    return Unfit(hunk=number, line=hunk.at, why=why)


def _made(text: Lines, edits: Sequence[Edit]) -> bytes:
    out: list[bytes] = []
    at = 0
    for edit in edits:
        for start, stop, new in edit.parts:
            out += text.lines[at:start]
            out += new
            at = stop
    out += text.lines[at:]
    return b"".join(out)


def _said(hunk: PileHunk) -> int | None:
    """The line (from 0) at which a hunk says that it begins."""
    if hunk.old_start is None:
        return None
    return hunk.old_start - any(sign != b"+" for sign, _ in hunk.lines)


def _spots(text: Lines, hunk: PileHunk) -> tuple[list[int], PileHunk]:
    """The places of a hunk, and the hunk in the reading that has them.

    Where it makes the end of a file without a newline, only the end of this one is a place.
    """
    found, hunk = _standing(text, hunk)
    new = hunk.new
    if all(line.endswith(b"\n") for line in new):
        return found, hunk
    size = len(hunk.old) if all(line.endswith(b"\n") for line in new[:-1]) else -1
    return [at for at in found if size >= 0 and at + size == len(text.lines)], hunk


def _standing(text: Lines, hunk: PileHunk) -> tuple[list[int], PileHunk]:
    """Where the old lines of a hunk stand."""
    if not hunk.old:
        said = _said(hunk)
        if not text.lines:
            return [0], hunk
        if said is not None and said <= len(text.lines):
            return [said], hunk
        return [], hunk
    found = text.spots(hunk.old)
    if not found and hunk.counted is not None:
        shorter = msgspec.structs.replace(hunk, lines=hunk.counted, counted=None)
        if shorter.old and (found := text.spots(shorter.old)):
            return found, shorter
    if not found and (ended := _without_end(text, hunk)) is not None:
        return [len(text.lines) - len(ended.old)], ended
    return found, hunk


def _without_end(text: Lines, hunk: PileHunk) -> PileHunk | None:
    """The hunk for a text whose last line has no newline, where the diff does not say so."""
    if not text.lines or text.lines[-1].endswith(b"\n"):
        return None
    lines = list(hunk.lines)
    last = next((at for at in range(len(lines) - 1, -1, -1) if lines[at][0] != b"+"), None)
    if last is None or lines[last][0] != b" ":
        return None
    lines[last] = (b" ", lines[last][1].removesuffix(b"\n"))
    if last != len(lines) - 1:
        return None
    made = msgspec.structs.replace(hunk, lines=tuple(lines))
    size = len(made.old)
    return made if text.lines[-size:] == made.old else None


def _is_there(text: Lines, hunk: PileHunk, found: list[int]) -> bool:
    """Whether what a hunk makes stands there already, and what it was made of does not."""
    new = hunk.new
    changed = [line for sign, line in hunk.lines if sign != b" "]
    if not changed or not new:
        return False
    context = sum(sign == b" " and bool(line.strip()) for sign, line in hunk.lines)
    added = [line for sign, line in hunk.lines if sign == b"+" and line.strip()]
    if not added and context < 2:
        return False
    places = text.spots(new)
    if not places:
        return False
    if not found:
        return True
    # a hunk without context on one side fits before and after it was put in
    open_end = hunk.lines[0][0] == b"+" or hunk.lines[-1][0] == b"+"
    removes = any(sign == b"-" for sign, _ in hunk.lines)
    return open_end and not removes and bool(added) and len(places) == 1


def _choose(
    text: Lines, at: int, hunks: Sequence[PileHunk], spots: Sequence[Sequence[int]],
    flags: set[Flag], *, known: bool, settled: bool,
) -> int | None:
    """The one place of a hunk, or None where several are as good."""
    hunk, found = hunks[at], list(spots[at])
    said = _said(hunk)
    if known and said in found:
        return said
    if len(found) == 1:
        return found[0]
    if hunk.heading:
        under = [spot for spot in found if text.under(spot, hunk.heading)]
        if len(under) == 1:
            flags.add(Flag.HEADING)
            return under[0]
        found = under or found
    size = len(hunk.old)
    last = max((n for n, one in enumerate(spots[:at]) if len(one) == 1), default=None)
    before = 0 if last is None else spots[last][0] + len(hunks[last].old)
    after = min((one[0] for one in spots[at + 1 :] if len(one) == 1), default=len(text.lines))
    between = [spot for spot in found if spot >= before and spot + size <= after]
    if len(between) == 1:
        flags.add(Flag.EQUAL_PLACES)
        return between[0]
    if settled and said is not None and said in found:
        flags.add(Flag.EQUAL_PLACES)
        return said
    return None


def _why(text: Lines, hunk: PileHunk) -> str:
    old = hunk.old
    if not old:
        return _LOOSE
    lacking = next((line for line in old if line not in text.where), None)
    if lacking is None and text.spots(old):
        return "it has the end of a file in the middle of this one"
    if lacking is None:
        return "its lines do not stand together in this file"
    shown = ascii(lacking.strip().decode("utf-8", "replace")[:60])[1:-1]
    return f"this file has no line `{shown}`"
