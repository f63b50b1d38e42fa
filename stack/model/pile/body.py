"""Where a hunk of a pile ends: its header's counts are one witness, the lines another."""

from __future__ import annotations

import re

import msgspec

from stack.model.pile.sections import Flag, PileHunk

_RANGE = rb"(\d{1,9})(?:,(\d{1,9}))?"
_NUMBERED = re.compile(rb"@@+ *-" + _RANGE + rb" +\+" + _RANGE + rb" *@@(.*)", re.DOTALL)
_STARTS = (
    b"diff ", b"Index: ", b"*** Update File: ", b"*** Add File: ", b"*** Delete File: ",
    b"*** End Patch", b"*** End of File", b"*** Move to: ", b"GIT binary patch", b"Only in ",
    b"Binary files ",
)
_VERSION = re.compile(rb"\d+\.\d+[\w.() -]*\s*")


class _Row(msgspec.Struct, frozen=True):
    sign: bytes
    text: bytes
    blank: bool


def is_hunk(line: bytes) -> bool:
    """Whether a line begins a hunk, with numbers or without."""
    return line.startswith(b"@@")


def read_hunk(
    lines: list[bytes], at: int, first: int, *, added: bool, whole: bool = True
) -> tuple[PileHunk, int, set[Flag]]:
    """The hunk whose header is `lines[at]`, the index behind it, and what is odd of it.

    `first` is the number of `lines[0]` in its file; `added` says that the hunk makes a new file,
    where nothing may be left out on the word of a count; `whole`, that the last line has an end.
    """
    header = lines[at].rstrip(b"\r\n")
    flags: set[Flag] = set()
    match = _NUMBERED.match(header)
    want: tuple[int, int] | None = None
    heading = header.strip(b"@ \t")
    start: tuple[int | None, int | None] = (None, None)
    if match:
        want = (int(match[2]) if match[2] is not None else 1,
                int(match[4]) if match[4] is not None else 1)
        start, heading = (int(match[1]), int(match[3])), match[5].strip()
    else:
        flags.add(Flag.BARE_HUNK)
    rows, end, full = _rows(lines, at + 1, want)
    kept = _trimmed(rows, want, full)
    back: list[_Row] = []
    if want is not None and end >= len(lines) and not whole and not added:
        back = _stripped(kept, want)
        kept += back
    counted = None
    if want is not None and _size(kept) != want:
        flags.add(Flag.COUNTS)
        if full is not None and full < len(kept) and not added and _may_be_text(kept[full:]):
            counted = tuple((row.sign, row.text) for row in kept[:full])
    if any(row.blank for row in kept):
        flags.add(Flag.BLANK_CONTEXT)
    if kept and all(row.sign != b" " for row in kept) and not added:
        flags.add(Flag.NO_CONTEXT)
    cut = want is not None and end >= len(lines) and _is_cut(kept, want, whole=whole)
    hunk = PileHunk(
        lines=tuple((row.sign, row.text) for row in kept), old_start=start[0],
        new_start=start[1], heading=heading, at=first + at, counted=counted, cut=cut,
        stripped=bool(back),
    )
    return hunk, end, flags


def _stripped(rows: list[_Row], want: tuple[int, int]) -> list[_Row]:
    """The empty context lines that somebody stripped off the end of a file with its last newline.

    Only where with them as much context ends the hunk as begins it: a change that was lost there
    would have had context of its own behind it.
    """
    old, new = _size(rows)
    missing = want[0] - old
    before, after = _context(rows)
    if missing != want[1] - new or missing <= 0 or not after or after + missing != before:
        return []
    return [_Row(b" ", b"\n", True)] * missing


def _context(rows: list[_Row]) -> tuple[int, int]:
    """How many context lines begin and end a hunk."""
    signs = [row.sign for row in rows]
    before = next((at for at, sign in enumerate(signs) if sign != b" "), len(signs))
    after = next((at for at, sign in enumerate(reversed(signs)) if sign != b" "), len(signs))
    return before, after


def _is_cut(rows: list[_Row], want: tuple[int, int], *, whole: bool) -> bool:
    """Whether the last hunk of a file has lost lines at its end.

    Only context can be missing where both counts lack as many lines and as much context ends the
    hunk as begins it; then the counts are wrong, and nothing is lost.
    """
    old, new = _size(rows)
    missing = want[0] - old, want[1] - new
    if max(missing) <= 0:
        return False
    before, after = _context(rows)
    return not whole or missing[0] != missing[1] or not after or after < before


def _rows(
    lines: list[bytes], at: int, want: tuple[int, int] | None
) -> tuple[list[_Row], int, int | None]:
    """All lines that can be the hunk's, the index behind them, and how many the counts want."""
    rows: list[_Row] = []
    old = new = 0
    full: int | None = None
    while at < len(lines):
        line = lines[at]
        if want is not None and full is None and (old, new) == want:
            full = len(rows)
        sign = line[:1]
        if sign == b"\\":
            if rows:
                last = rows[-1]
                rows[-1] = _Row(last.sign, last.text.removesuffix(b"\n"), last.blank)
            at += 1
            continue
        done = want is not None and (old, new) == want
        if line in (b"\n", b"\r\n"):
            rows.append(_Row(b" ", line, True))
            old, new, at = old + 1, new + 1, at + 1
            continue
        if sign not in (b" ", b"+", b"-") or _is_start(lines, at, (old, new), want, done=done):
            break
        rows.append(_Row(sign, line[1:], False))
        old, new, at = old + (sign != b"+"), new + (sign != b"-"), at + 1
    if want is not None and full is None and (old, new) == want:
        full = len(rows)
    return rows, at, full


def _is_start(
    lines: list[bytes], at: int, now: tuple[int, int], want: tuple[int, int] | None, *, done: bool
) -> bool:
    """Whether a line with a sign is none of the hunk's: the names of the next file, a signature."""
    line = lines[at]
    if line.rstrip() == b"--" and line.startswith(b"--"):
        after = lines[at + 1] if at + 1 < len(lines) else b""
        return done or not after.strip() or is_version(after)
    if not line.startswith(b"--- ") or at + 1 >= len(lines):
        return False
    if not lines[at + 1].startswith(b"+++ "):
        return False
    if want is not None and not done and want == (now[0] + 1, now[1] + 1):
        return False  # a removed `-- ` and an added `++ ` end the hunk, as its counts say
    return at + 2 >= len(lines) or lines[at + 2].startswith((b"@@", b"\n", b"\r\n"))


def _trimmed(rows: list[_Row], want: tuple[int, int] | None, full: int | None) -> list[_Row]:
    """Without the empty lines at the end that no count asks for."""
    if full is not None and all(row.blank for row in rows[full:]):
        return rows[:full]
    kept = list(rows)
    while kept and kept[-1].blank:
        old, new = _size(kept)
        if want is not None and old <= want[0] and new <= want[1]:
            break
        kept.pop()
    return kept


def _may_be_text(rest: list[_Row]) -> bool:
    """Whether lines behind the counted ones could be words: after an empty line, without `+`."""
    if any(row.sign == b"+" for row in rest):
        return False
    return rest[0].blank or all(row.sign == b" " for row in rest)


def _size(rows: list[_Row]) -> tuple[int, int]:
    return sum(row.sign != b"+" for row in rows), sum(row.sign != b"-" for row in rows)


def starts_something(line: bytes) -> bool:
    """Whether a line begins a new part of a diff."""
    return line.startswith(_STARTS)


def is_version(line: bytes) -> bool:
    """Whether a line is what git writes under the `-- ` at the end of a mail."""
    return _VERSION.fullmatch(line) is not None
