"""Binary patches: git's base85 blocks, and the deltas that they may hold."""

from __future__ import annotations

import base64
import re
import zlib

from stack.model.diff.hunks import Binary
from stack.model.diff.reader import Reader

_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_B85_LENGTH = {_ALPHABET[at : at + 1]: at + 1 for at in range(52)}


def parse_binary(reader: Reader) -> Binary:
    reader.take()
    forward = _parse_binary_part(reader)
    nxt = reader.peek()
    if nxt is not None and nxt.startswith((b"literal ", b"delta ")):
        _parse_binary_part(reader)
    return forward


def _parse_binary_part(reader: Reader) -> Binary:
    head = re.fullmatch(rb"(literal|delta) (\d{1,10})", reader.take().rstrip(b"\r\n"))
    if head is None:
        raise reader.bad("a binary patch that is neither literal nor delta", back=1)
    method, size = head[1], int(head[2])
    packed = bytearray()
    while (line := reader.take().rstrip(b"\r\n")) != b"":
        length = _B85_LENGTH.get(line[:1])
        try:
            part = base64.b85decode(line[1:])
        except ValueError:
            length = None
            part = b""
        if length is None or len(part) < length:
            raise reader.bad("damaged binary data", back=1)
        packed += part[:length]
    inflate = zlib.decompressobj()
    try:
        data = inflate.decompress(bytes(packed), size + 1)
    except zlib.error:
        raise reader.bad("damaged binary data", back=1) from None
    if len(data) != size or not inflate.eof:
        raise reader.bad(f"binary data of {len(data)} bytes where {size} are announced", back=1)
    return Binary("literal" if method == b"literal" else "delta", data)


def apply_delta(base: bytes, delta: bytes) -> bytes | None:
    """What a git delta makes of `base`; None where it was made for something else, or damaged."""
    try:
        return _apply_delta(base, delta)
    except IndexError:
        return None


def _apply_delta(base: bytes, delta: bytes) -> bytes | None:
    size, at = _size(delta, 0)
    want, at = _size(delta, at)
    if size != len(base):
        return None
    out = bytearray()
    while at < len(delta):
        code = delta[at]
        at += 1
        if code & 0x80:
            fields = []
            for bit in range(7):
                fields.append(delta[at] if code & 1 << bit else 0)
                at += bool(code & 1 << bit)
            start = int.from_bytes(bytes(fields[:4]), "little")
            length = int.from_bytes(bytes(fields[4:]), "little") or 0x10000
            out += base[start : start + length]
        else:
            out += delta[at : at + code]
            at += code
    return bytes(out) if len(out) == want else None


def _size(delta: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = delta[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, at
