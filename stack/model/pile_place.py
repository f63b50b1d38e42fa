"""Puts the hunks of a pile into a text: by number where it is known, else only where they fit once.

Of several equal places the heading decides, then the hunks before and after, and last the line
number, if every other hunk of the section stands exactly where it says; each is a flag. A hunk is
never put where its context and removed lines do not stand, but they may skip lines (`elide`).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

import msgspec

from stack.model.linediff import split
from stack.model.pile import Flag, PileHunk
from stack.model.pile_elide import Edit, elided

MOST_PLACES = 2000
_HEADING = re.compile(rb"[A-Za-z_$]")
_PYTHON = re.compile(rb"[ \t]*(?:class|(?:async[ \t]+)?def)[ \t]")


class Lines:
    """A text as lines, with the places of each."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.lines = split(data)
        self._where: dict[bytes, list[int]] | None = None

    @property
    def where(self) -> dict[bytes, list[int]]:
        if self._where is None:
            found: dict[bytes, list[int]] = {}
            for at, line in enumerate(self.lines):
                found.setdefault(line, []).append(at)
            self._where = found
        return self._where

    def spots(self, wanted: Sequence[bytes]) -> list[int]:
        """Where these lines stand one after the other; at most `MOST_PLACES` are looked at."""
        if not wanted:
            return []
        rarest, places = 0, self.where.get(wanted[0], [])
        for offset, line in enumerate(wanted):
            here = self.where.get(line, [])
            if len(here) < len(places) or not here:
                rarest, places = offset, here
            if not here:
                return []
        size = len(wanted)
        wanted = list(wanted)
        return [
            at - rarest
            for at in places[:MOST_PLACES]
            if at >= rarest and self.lines[at - rarest : at - rarest + size] == wanted
        ]

    def under(self, spot: int, heading: bytes) -> bool:
        """Whether git would write this heading over a hunk that begins at `spot`."""
        for pattern in (_HEADING, _PYTHON):
            for at in range(min(spot, len(self.lines)) - 1, -1, -1):
                line = self.lines[at]
                if pattern.match(line):
                    if line.strip().startswith(heading.strip()):
                        return True
                    break
        return False


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
    there: bool = False, exact: bool = False,
) -> Placing | Unfit:
    """Put hunks into a text.

    `known` says that it is the very text that they were made for, `exact` asks that each stands
    where it says, `elide` allows context that skips lines, `there` hunks that stand there already.
    """
    flags: set[Flag] = set()
    edits: list[Edit | None] = []
    already: list[int] = []
    spots: list[list[int]] = []
    chosen: list[PileHunk] = []
    for number, hunk in enumerate(hunks, 1):
        found, hunk = _spots(text, hunk, known=known)
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
    settled = all(
        _said(hunk) in found for hunk, found in zip(chosen, spots, strict=True) if found
    )
    for number, (hunk, found) in enumerate(zip(chosen, spots, strict=True), 1):
        if not found:
            continue
        at = _choose(text, number - 1, chosen, spots, flags, known=known, settled=settled)
        if at is None:
            shown = ", ".join(str(one + 1) for one in found[:5])
            more = "" if len(found) <= 5 else ", ..."
            why = f"its lines stand in {len(found)} places ({shown}{more}): ambiguous"
            return _unfit(number, hunk, why)
        spots[number - 1] = [at]
        if hunk.old_start is not None and at != _said(hunk) and not known:
            flags.add(Flag.MOVED)
        edits.append(Edit(start=at, stop=at + len(hunk.old), parts=((at, at + len(hunk.old),
                                                                      tuple(hunk.new)),)))
    if already:
        flags.add(Flag.PARTLY_THERE)
    ordered = sorted((edit for edit in edits if edit is not None), key=lambda edit: edit.start)
    for left, right in itertools.pairwise(ordered):
        if left.stop > right.start:
            return _unfit(1, hunks[0], "its hunks want the same lines")
    return Placing(data=_made(text, ordered), flags=frozenset(flags), there=tuple(already))


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
    return hunk.old_start - 1 if hunk.old else hunk.old_start


def _spots(text: Lines, hunk: PileHunk, *, known: bool) -> tuple[list[int], PileHunk]:
    """The places of a hunk, and the hunk in the reading that has them."""
    if not hunk.old:
        said = _said(hunk)
        if not text.lines:
            return [0], hunk
        if known and said is not None and said <= len(text.lines):
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
    before = max((one[0] + len(hunks[n].old) for n, one in enumerate(spots[:at]) if len(one) == 1),
                 default=0)
    after = min((one[0] for one in spots[at + 1 :] if len(one) == 1), default=len(text.lines))
    between = [spot for spot in found if spot >= before and spot + len(hunk.old) <= after]
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
        return "it has no context, and this is not known to be the file that it was made for"
    lacking = next((line for line in old if line not in text.where), None)
    if lacking is None:
        return "its lines do not stand together in this file"
    shown = ascii(lacking.strip().decode("utf-8", "replace")[:60])[1:-1]
    return f"this file has no line `{shown}`"
