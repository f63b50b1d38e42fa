"""What a pile of diffs is made of: sections and hunks as somebody left them, anomalies as flags."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from stack.model.diff.hunks import Binary, Kind


class Flag(StrEnum):
    """Everything that a diff can have that `git diff` would not write; kept, never passed over."""

    BARE_HUNK = "a hunk without line numbers"
    COUNTS = "hunk counts differ from the body"
    NO_INDEX = "no index line"
    ZERO_IDS = "all-zero ids on a modification"
    WORD_IDS = "words as ids"
    NO_DIFF_LINE = "no diff line"
    ABSOLUTE = "absolute paths"
    TWO_NAMES = "two names without a rename"
    DEPTH = "paths of another depth"
    BLANK_CONTEXT = "blank context lines without their space"
    PROSE = "text after a hunk"
    NO_NEWLINE = "no newline at the end of the diff"
    NO_CONTEXT = "no context"
    CR_LF = "line ends of the diff were CR LF"
    ELIDED = "context that skips lines"
    EQUAL_PLACES = "one of several equal places, taken where its line number says"
    HEADING = "one of several equal places, taken where its heading says"
    MOVED = "hunks at other lines than they say"
    TWO_STATES = "it fits the base and what stood, and nothing shows which was meant"
    OTHER_RESULT = "its result is not the blob that it names"
    PARTLY_THERE = "some hunks stand there already"
    REVERSED = "taken in reverse, as its series says"


class PileHunk(msgspec.Struct, frozen=True, kw_only=True):
    """One hunk as it stands. `old_start` is None where it has no numbers.

    `counted` is the shorter reading that the header's counts allow, where what follows may be text
    that is no part of the diff. `cut` says that the file ends before the lines that are counted,
    `stripped` that empty context was put back at its end, as the counts ask.
    """

    lines: tuple[tuple[bytes, bytes], ...]
    old_start: int | None = None
    new_start: int | None = None
    heading: bytes = b""
    at: int = 0
    counted: tuple[tuple[bytes, bytes], ...] | None = None
    cut: bool = False
    stripped: bool = False

    @property
    def old(self) -> list[bytes]:
        return [text for sign, text in self.lines if sign != b"+"]

    @property
    def new(self) -> list[bytes]:
        return [text for sign, text in self.lines if sign != b"-"]


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """What a diff does to one file; `old` and `new` are the raw names, empty for /dev/null.

    `old_id` and `new_id` are hex beginnings of blob ids, empty where there are none to trust.
    """

    kind: Kind
    old: bytes
    new: bytes
    old_mode: int | None = None
    new_mode: int | None = None
    old_id: str = ""
    new_id: str = ""
    hunks: tuple[PileHunk, ...] = ()
    binary: Binary | None = None
    flags: tuple[Flag, ...] = ()
    at: int = 0
    strip: int | None = None

    @property
    def name(self) -> bytes:
        """The raw name that says most of the file."""
        return self.new or self.old


class Damage(msgspec.Struct, frozen=True):
    """Where a file cannot be read any further (line from 1), and why."""

    line: int
    why: str

    def __str__(self) -> str:
        return f"damaged at line {self.line}: {self.why}"


class Parsed(msgspec.Struct, frozen=True, kw_only=True):
    """A tolerant reading of one text: its sections, the words around them, and the damage."""

    sections: tuple[Section, ...] = ()
    prose: bytes = b""
    damage: Damage | None = None


def reverse(section: Section) -> Section:
    """The section that undoes another (`-R` of a quilt series)."""
    kinds: dict[str, Kind] = {"add": "delete", "delete": "add"}
    swap = {b"+": b"-", b"-": b"+", b" ": b" "}

    def turned(lines: tuple[tuple[bytes, bytes], ...]) -> tuple[tuple[bytes, bytes], ...]:
        return tuple((swap[sign], text) for sign, text in lines)

    hunks = tuple(
        msgspec.structs.replace(
            hunk, lines=turned(hunk.lines), old_start=hunk.new_start, new_start=hunk.old_start,
            counted=turned(hunk.counted) if hunk.counted is not None else None,
        )
        for hunk in section.hunks
    )
    return msgspec.structs.replace(
        section, kind=kinds.get(section.kind, section.kind), old=section.new, new=section.old,
        old_mode=section.new_mode, new_mode=section.old_mode, old_id=section.new_id,
        new_id=section.old_id, hunks=hunks, binary=None, flags=(*section.flags, Flag.REVERSED),
    )
