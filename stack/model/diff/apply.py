"""Puts hunks into a file: exactly where they say, or at the one other place where they fit.

There is no fuzz. A hunk counts as standing where it says only in the very blob that it was made
for; in any other blob its context and removed lines must occur exactly once. The anchors are
git's: a hunk that starts at the first line, or has no context after its changes, keeps to the
beginning or the end of the file. They forbid places, they never choose among several.
"""

from __future__ import annotations

import msgspec

from stack.model.diff.hunks import Hunk
from stack.model.diff.linediff import split
from stack.model.objects import object_id


class Placed(msgspec.Struct, frozen=True):
    """A patched file: its bytes and, hunk by hunk, by how many lines each had to move."""

    data: bytes
    offsets: tuple[int, ...]


class Misfit(msgspec.Struct, frozen=True, kw_only=True):
    """Why a hunk does not fit: its number from 1, where it looked and what stands there."""

    hunk: int
    at: int
    why: str
    expected: tuple[bytes, ...] = ()
    found: tuple[bytes, ...] = ()


def apply_hunks(data: bytes, hunks: tuple[Hunk, ...], *, old_id: str | None) -> Placed | Misfit:
    """Apply `hunks` to a file's `data`; `old_id` is the blob for which the patch was made."""
    lines = split(data)
    exact = old_id is not None and old_id == object_id("blob", data)
    out: list[bytes] = []
    done = 0
    offsets: list[int] = []
    for number, hunk in enumerate(hunks, 1):
        old = hunk.old
        said = hunk.old_start - 1 if old else hunk.old_start
        place = _find(lines, old, hunk, said, exact, done)
        if isinstance(place, str):
            return _misfit(lines, old, number, said, place)
        out += lines[done:place]
        out += hunk.new
        done = place + len(old)
        offsets.append(place - said)
    out += lines[done:]
    return Placed(b"".join(out), tuple(offsets))


def _find(
    lines: list[bytes], old: list[bytes], hunk: Hunk, said: int, exact: bool, done: int
) -> int | str:
    """The line (from 0) at which a hunk fits, or why it fits nowhere."""
    if said >= done and lines[said : said + len(old)] == old and (exact or not lines):
        return said
    if not old:
        return "it has no context, and this is not the file that it was made for"
    places = _occurrences(lines, old, done)
    if len(places) > 1:
        shown = ", ".join(str(at + 1) for at in places[:5])
        return f"its lines stand in {len(places)} places ({shown}): ambiguous"
    if not places:
        return "its lines do not stand in this file"
    starts, ends = _anchors(hunk)
    if starts and places[0] != 0:
        return "its lines are not at the beginning of the file"
    if ends and places[0] + len(old) != len(lines):
        return "its lines are not at the end of the file"
    return places[0]


def _anchors(hunk: Hunk) -> tuple[bool, bool]:
    """Whether a hunk is bound to the beginning and to the end of its file."""
    return hunk.old_start <= 1, hunk.lines[-1][0] != b" "


def _occurrences(lines: list[bytes], old: list[bytes], start: int) -> list[int]:
    """Every place at or after `start` where `old` stands."""
    places = []
    first, size = old[0], len(old)
    at = start
    last = len(lines) - size
    while at <= last:
        try:
            at = lines.index(first, at, last + 1)
        except ValueError:
            break
        if lines[at : at + size] == old:
            places.append(at)
        at += 1
    return places


def _misfit(lines: list[bytes], old: list[bytes], number: int, said: int, why: str) -> Misfit:
    """Show the first line that differs at the place that the hunk names."""
    here = lines[said : said + len(old)]
    differs = next((n for n, line in enumerate(old) if here[n : n + 1] != [line]), 0)
    wanted, whole = b"".join(old), b"".join(lines)
    if wanted not in whole and wanted.replace(b"\r\n", b"\n") in whole.replace(b"\r\n", b"\n"):
        why = "only its line endings (CR LF against LF) keep it from fitting"
    return Misfit(
        hunk=number, at=said + differs + 1, why=why,
        expected=tuple(old[differs : differs + 3]), found=tuple(here[differs : differs + 3]),
    )
