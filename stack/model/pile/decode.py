"""The texts inside a file of a pile: plain, compressed, base64 of that, or fenced in Markdown.

Decoding is strict. A lenient decoder turns damage into plausible code, so whatever is not wholly
understood is `Damage` with its line, and nothing may grow beyond `ROOM` bytes.
"""

from __future__ import annotations

import base64
import binascii
import bz2
import lzma
import re
import zlib

import msgspec

from stack.model.pile.sections import Damage

ROOM = 64 << 20
_SAID = (b"diff", b"patch", b"udiff")  # what a fence says that it holds
_ARCHIVES = (b"PK\x03\x04", b"\x28\xb5\x2f\xfd", b"7z\xbc\xaf\x27\x1c")  # zip, zstd, 7z
MOST_LINES = 2_000_000
_LAYERS = 4
_PIECE = 1 << 16
_BASE64 = re.compile(rb"[A-Za-z0-9+/]+={0,2}")
_FENCE = re.compile(rb"^([ \t]{0,8})(`{3,}|~{3,})[ \t]*([^\n`]*?)[ \t]*\r?$", re.MULTILINE)
_DIFF = re.compile(
    rb"^(?:diff -|--- \S|Index: |@@|\*\*\* (?:Begin Patch|Update File|Add File|Delete File))",
    re.MULTILINE,
)


class Text(msgspec.Struct, frozen=True, kw_only=True):
    """A text with the number of its first line in the file, and the words around it."""

    data: bytes
    first: int = 1
    around: bytes = b""


class _Unpacker:
    """One of the standard library's decompressors, under one roof."""

    def __init__(self, data: bytes) -> None:
        self._gzip: zlib._Decompress | None = None
        self._other: bz2.BZ2Decompressor | lzma.LZMADecompressor | None = None
        if data.startswith(b"\x1f\x8b"):
            self.kind, self._gzip = "gzip", zlib.decompressobj(wbits=31)
        elif data.startswith(b"BZh"):
            self.kind, self._other = "bzip2", bz2.BZ2Decompressor()
        else:
            self.kind, self._other = "xz", lzma.LZMADecompressor()

    def more(self, piece: bytes, room: int) -> bytes:
        if self._gzip is not None:
            return self._gzip.decompress(self._gzip.unconsumed_tail + piece, room)
        assert self._other is not None
        return self._other.decompress(piece, room)

    @property
    def waiting(self) -> bool:
        """Whether there is more to come of what it was given."""
        if self._gzip is not None:
            return bool(self._gzip.unconsumed_tail)
        assert self._other is not None
        return not self._other.needs_input and not self._other.eof

    @property
    def ended(self) -> bool:
        return bool(self._gzip.eof if self._gzip else self._other and self._other.eof)

    @property
    def rest(self) -> bytes:
        return bytes(self._gzip.unused_data if self._gzip else
                     self._other.unused_data if self._other else b"")


def decode(data: bytes, *, name: str = "", base64_said: bool = False) -> list[Text] | Damage:
    """The texts of a file. `name` (its suffix) tells Markdown, `base64_said` that its name says so.

    No other suffix is trusted.
    """
    lines: list[int] | None = None  # where each base64 line ends in the decoded bytes
    for _ in range(_LAYERS):
        if len(data) > ROOM:
            return Damage(1, f"more than {ROOM >> 20} MiB")
        if _is_compressed(data):
            found = _decompress(data, lines)
            lines = None
        elif _looks_base64(data) or base64_said:
            base64_said = False
            decoded = _base64(data)
            if isinstance(decoded, Damage):
                return decoded
            found, lines = decoded
        else:
            return _texts(data, name)
        if isinstance(found, Damage):
            return found
        data = found
    return Damage(1, f"packed more than {_LAYERS} times")


def is_packed(data: bytes) -> bool:
    """Whether a file is compressed, or base64 of a diff or of compressed data."""
    return _is_compressed(data) or _looks_base64(data)


def is_meant(data: bytes) -> bool:
    """Whether a file was meant to hold a diff, damaged or not."""
    archive = data.startswith(_ARCHIVES) or data[257:262] == b"ustar"
    return archive or is_packed(data) or _DIFF.search(data) is not None


def _texts(data: bytes, name: str) -> list[Text] | Damage:
    if data.startswith(_ARCHIVES) or data[257:262] == b"ustar":
        return Damage(1, "an archive: unpack it first")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) or data[:8].count(b"\0") == 4:
        return Damage(1, "looks like UTF-16: save it as UTF-8")
    if (nul := data.find(b"\0")) >= 0:
        return Damage(data.count(b"\n", 0, nul) + 1, "a NUL byte")
    if data.count(b"\n") > MOST_LINES:
        return Damage(MOST_LINES, f"more than {MOST_LINES} lines")
    data = data.removeprefix(b"\xef\xbb\xbf")
    if name.lower().endswith((".md", ".markdown")) or (
        _FENCE.search(data) and not data.startswith((b"diff ", b"--- ", b"From "))
    ):
        fenced = _fenced(data)
        if fenced:
            return fenced
    return [Text(data=data)]


def _is_compressed(data: bytes) -> bool:
    return data.startswith((b"\x1f\x8b", b"\xfd7zXZ\x00")) or (
        data.startswith(b"BZh") and data[4:10] == b"1AY&SY"
    )


def _decompress(data: bytes, lines: list[int] | None) -> bytes | Damage:
    """Unpack piece by piece, so that damage has a place and nothing grows beyond its room."""
    out: list[bytes] = []
    size = 0
    at = 0
    while data:
        unpacker = _Unpacker(data)
        offset = 0
        while not unpacker.ended:
            piece = b"" if unpacker.waiting else data[offset : offset + _PIECE]
            if not piece and not unpacker.waiting:
                return Damage(_line(lines, at + len(data)), f"the {unpacker.kind} data ends early")
            try:
                got = unpacker.more(piece, ROOM + 1 - size)
            except (zlib.error, OSError, lzma.LZMAError, EOFError):
                where = _line(lines, at + _first_bad(data, offset))
                return Damage(where, f"the {unpacker.kind} data is broken here or before")
            offset += len(piece)
            size += len(got)
            out.append(got)
            if size > ROOM:
                return Damage(1, f"unpacks to more than {ROOM >> 20} MiB")
        rest = unpacker.rest + data[offset:]
        at += len(data) - len(rest)
        data = rest.lstrip(b"\0")
        if data and not _is_compressed(data):
            return Damage(_line(lines, at), f"something else behind the {unpacker.kind} data")
    return b"".join(out)


def _first_bad(data: bytes, good: int) -> int:
    """The offset at which a decompressor first refuses, looked for in steps of 64 bytes."""
    unpacker = _Unpacker(data)
    size = 0
    for offset in range(0, min(good + _PIECE, len(data)), 64):
        try:
            size += len(unpacker.more(data[offset : offset + 64], ROOM + 1 - size))
        except (zlib.error, OSError, lzma.LZMAError, EOFError):
            return offset
        if size > ROOM or unpacker.ended:
            break
    return min(good + _PIECE, len(data))


def _line(lines: list[int] | None, offset: int) -> int:
    """The line of a base64 text that holds a decoded byte; 1 where there was no text."""
    if not lines:
        return 1
    return next((n for n, end in enumerate(lines, 1) if end >= offset), len(lines))


def _looks_base64(data: bytes) -> bool:
    """Whether a text is meant as base64: nearly all of it is, and it begins like packed data."""
    head = data[:4096].strip().split()
    if not head or data.startswith((b"diff ", b"--- ", b"From ", b"Index: ", b"@@")):
        return False
    first = head[0]
    if len(first) < 8 or not _BASE64.fullmatch(first):
        return False
    packed = first.startswith((b"H4sI", b"QlpoO", b"QlpoN", b"Qlpo", b"/Td6WFo"))
    if packed and len(first) > 30:
        return True  # whatever follows: what is no base64 there is damage
    like = sum(bool(_BASE64.fullmatch(word)) for word in head) >= 0.9 * len(head)
    return like and (packed or _decodes_to_diff(first)) and data[:4096].count(b" ") <= 2


def _decodes_to_diff(first: bytes) -> bool:
    try:
        return bool(_DIFF.match(base64.b64decode(first[: len(first) // 4 * 4], validate=True)))
    except binascii.Error:
        return False


def _base64(data: bytes) -> tuple[bytes, list[int]] | Damage:
    """Decode strictly: equal lines, the last one shorter at most, padding only at the end."""
    rows = data.replace(b"\r\n", b"\n").split(b"\n")
    while rows and not rows[-1].strip():
        rows.pop()
    if not rows:
        return Damage(1, "nothing where base64 should be")
    width = len(rows[0].strip())
    out: list[bytes] = []
    ends: list[int] = []
    held = b""
    size = 0
    for number, row in enumerate(rows, 1):
        row = row.strip()
        last = number == len(rows)
        if not _BASE64.fullmatch(row):
            return Damage(number, "not base64")
        if row.endswith(b"=") and not last:
            return Damage(number, "base64 that ends in the middle")
        if (len(row) != width and not last) or len(row) > width:
            return Damage(number, f"{len(row)} letters of base64, not {width} as before")
        held += row
        whole = len(held) if last else len(held) // 4 * 4
        if last and whole % 4:
            return Damage(number, "the base64 ends in the middle of a byte")
        try:
            out.append(base64.b64decode(held[:whole], validate=True))
        except binascii.Error:
            return Damage(number, "not base64")
        held = held[whole:]
        size += len(out[-1])
        ends.append(size)
    return b"".join(out), ends


def _fenced(data: bytes) -> list[Text]:
    """The fenced blocks that hold diffs; what stands around goes with them as words.

    No blocks where something of a diff stands outside of the fences: then they are no frame for it.
    """
    found: list[Text] = []
    outside: list[bytes] = []
    done = 0
    opened: re.Match[bytes] | None = None
    for match in (*_FENCE.finditer(data), None):
        if opened is None:
            opened = match
            continue
        if match is not None and (
            match[3] or match[1] != opened[1] or match[2][:1] != opened[2][:1]
            or len(match[2]) < len(opened[2])
        ):
            continue
        end = len(data) if match is None else match.start()
        block = data[opened.end() + 1 : end]
        if opened[1]:
            block = re.sub(rb"^" + opened[1], b"", block, flags=re.MULTILINE)
        if _DIFF.search(block) or opened[3].lower() in _SAID:
            outside.append(data[done : opened.start()])
            first = data.count(b"\n", 0, opened.end()) + 2
            found.append(Text(data=block, first=first, around=outside[-1]))
            done = end if match is None else match.end()
        opened = None
    outside.append(data[done:])
    if not found or any(_DIFF.search(part) for part in outside):
        return []
    last = found[-1]
    found[-1] = Text(data=last.data, first=last.first, around=last.around + outside[-1])
    return found
