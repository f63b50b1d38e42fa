"""Reads diffs as people leave them: no count, id or depth is trusted, every anomaly is a flag.

Where a line can be part of a change and is not understood, the reading ends as `Damage`: better
set aside than half a patch. The strict reader (`diff/parse.py`) is another one, for our own files.
"""

from __future__ import annotations

import re

import msgspec

from stack.errors import BadPatch
from stack.model.diff.binary import parse_binary
from stack.model.diff.hunks import Kind
from stack.model.diff.linediff import split
from stack.model.diff.reader import Reader
from stack.model.pile.body import is_hunk, is_version, read_hunk, starts_something
from stack.model.pile.heads import NULL, Broken, Open, finish, unquoted
from stack.model.pile.sections import Damage, Flag, Parsed, Section

MOST_HUNKS = 100_000
_STAMP = re.compile(rb"\s+(?:\d{4}-\d\d-\d\d|(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) )[^/]*$")
_FACTS = (
    b"old mode ", b"new mode ", b"new file mode ", b"deleted file mode ", b"rename from ",
    b"rename to ", b"copy from ", b"copy to ", b"similarity index ", b"dissimilarity index ",
    b"index ",
)
_CODEX: dict[bytes, Kind] = {
    b"*** Update File: ": "modify", b"*** Add File: ": "add", b"*** Delete File: ": "delete",
}


class _Reading:
    """One text: its lines, where we stand, the sections so far and the words between them."""

    def __init__(self, data: bytes, first: int, *, whole: bool) -> None:
        self.lines = split(data)
        self.whole = whole
        self.first = first
        self.at = 0
        self.here: Open | None = None
        self.done: list[Section] = []
        self.prose: list[bytes] = []
        self.hunks = 0
        self.unsure = False  # the last hunk may go on after text that stands in between

    def run(self) -> None:
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if line.startswith(b"diff --git "):
                self.open().header = line.rstrip(b"\r\n")[11:]
                self.read_facts()
            elif line.startswith((b"diff --cc ", b"diff --combined ")):
                raise Broken(self.at, "a combined diff of a merge")
            elif line.startswith((b"diff ", b"Index: ")):
                self.open().flags.add(Flag.NO_DIFF_LINE)
                self.at += 1
            elif line.startswith(b"--- ") and self.ahead(1).startswith(b"+++ "):
                self.read_names()
            elif line.startswith(tuple(_CODEX)):
                self.read_codex()
            elif is_hunk(line):
                self.read_hunk()
            elif line.startswith(b"GIT binary patch"):
                self.read_binary()
            elif line.startswith(b"Binary files ") and self.here is not None:
                self.here.broken_binary = True
                self.at += 1
            elif line.startswith(b"***************"):
                raise Broken(self.at, "a context diff: make it again with `diff -u`")
            else:
                self.read_prose(line)
        self.close()

    def ahead(self, count: int) -> bytes:
        at = self.at + count
        return self.lines[at] if at < len(self.lines) else b""

    def open(self) -> Open:
        self.close()
        self.here = Open(self.at)
        self.unsure = False
        return self.here

    def read_facts(self) -> None:
        here = self.here
        assert here is not None
        self.at += 1
        while self.at < len(self.lines):
            text = self.lines[self.at].rstrip(b"\r\n")
            key = next((key for key in _FACTS if text.startswith(key)), None)
            if key is None:
                break
            here.facts[key.strip()] = text[len(key) :]
            self.at += 1

    def read_names(self) -> None:
        here = self.here
        if here is None or here.names is not None or here.hunks or here.binary:
            here = self.open()
            here.flags.add(Flag.NO_DIFF_LINE)
        here.names = (
            self.name(self.lines[self.at][4:], here), self.name(self.lines[self.at + 1][4:], here)
        )
        self.at += 2

    def name(self, raw: bytes, here: Open) -> bytes:
        text = raw.rstrip(b"\r\n")
        if text.startswith(b'"'):
            return unquoted(self.at, text)
        text = text.partition(b"\t")[0]
        if match := _STAMP.search(text):
            text = text[: match.start()]
        return text.rstrip()

    def read_codex(self) -> None:
        line = self.lines[self.at]
        key = next(key for key in _CODEX if line.startswith(key))
        here = self.open()
        here.kind = _CODEX[key]
        name = line[len(key) :].strip()
        here.names = (b"/dev/null" if here.kind == "add" else name,
                      b"/dev/null" if here.kind == "delete" else name)
        here.flags.add(Flag.NO_DIFF_LINE)
        self.at += 1
        if here.kind == "delete":
            raise Broken(self.at - 1, "a file deleted without its content")
        if here.kind == "add" and not is_hunk(self.ahead(0)):
            self.at -= 1
            self.lines[self.at] = b"@@\n"  # the format writes no hunk header there

    def read_hunk(self) -> None:
        here = self.here
        if here is None or here.binary is not None:
            raise Broken(self.at, "a hunk without a file before it")
        self.hunks += 1
        if self.hunks > MOST_HUNKS:
            raise Broken(self.at, f"more than {MOST_HUNKS} hunks")
        added = b"new file mode" in here.facts or here.kind == "add" or (
            here.names is not None and here.names[0] in NULL
        )
        hunk, end, flags = read_hunk(
            self.lines, self.at, self.first, added=added, whole=self.whole
        )
        if not hunk.lines and not (self.ahead(1).startswith(b"@@") or hunk.old_start is None):
            raise Broken(self.at, "a hunk without lines")
        here.flags |= flags
        if hunk.lines:
            here.hunks.append(hunk)
        self.unsure = Flag.COUNTS in flags or Flag.BARE_HUNK in flags
        self.at = end

    def read_binary(self) -> None:
        here = self.here
        if here is None:
            raise Broken(self.at, "binary data without a file before it")
        reader = Reader(self.lines, "", self.first)
        reader.at = self.at
        try:
            here.binary = parse_binary(reader)
        except BadPatch as wrong:
            raise Broken(reader.at - 1, wrong.message.rpartition(": ")[2]) from None
        self.at = reader.at

    def read_prose(self, line: bytes) -> None:
        here = self.here
        if here is not None and (here.hunks or here.binary):
            if self.unsure and line.startswith(b"+") and not line.startswith(b"+++ "):
                raise Broken(self.at, "lines of a change after text that is none")
            if line.strip() and not starts_something(line) and not line.startswith(b"*** "):
                if line.rstrip() == b"--":
                    self.at += 2 if is_version(self.ahead(1)) else 1
                    return
                here.flags.add(Flag.PROSE)
        if line.strip() and not line.startswith((b"*** ", b"===")):
            self.prose.append(line)
        elif self.prose and self.prose[-1].strip():
            self.prose.append(b"\n")
        self.at += 1

    def close(self) -> None:
        here, self.here = self.here, None
        if here is not None and here.header is None and here.names is None:
            if here.hunks or here.binary is not None:
                raise Broken(here.at, "a change whose file is not named")
        elif here is not None:
            self.done.append(finish(here, self.first))


def parse(data: bytes, *, first: int = 1) -> Parsed:
    """The sections of a text; `first` is the number of its first line in its file."""
    flags: set[Flag] = set()
    if data and not data.endswith(b"\n"):
        flags.add(Flag.NO_NEWLINE)
        data += b"\n"
    head = re.search(rb"^(?:diff -|--- \S|\*\*\* )[^\n]*\n", data, re.MULTILINE)
    if head is not None and head[0].endswith(b"\r\n"):
        data = data.replace(b"\r\n", b"\n")
        flags.add(Flag.CR_LF)
    reading = _Reading(data, first, whole=Flag.NO_NEWLINE not in flags)
    damage = None
    try:
        reading.run()
    except Broken as wrong:
        damage = Damage(reading.first + wrong.at, wrong.why)
    sections = tuple(_flagged(section, flags) for section in reading.done)
    return Parsed(sections=sections, prose=b"".join(reading.prose), damage=damage)


def _flagged(section: Section, more: set[Flag]) -> Section:
    return msgspec.structs.replace(section, flags=tuple(sorted({*section.flags, *more})))
