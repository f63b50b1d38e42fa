"""The headers of a patch mail: encoded words, subjects, authors and dates, as git reads them."""

from __future__ import annotations

import base64
import binascii
import calendar
import email.utils
import quopri
import re

from stack.errors import BadPatch
from stack.model.objects import Person

_REPLY = re.compile(r"[\s:]+|re:", re.IGNORECASE)
_TAG = re.compile(r"\[[^]]*\]\s?")
_ENCODED = re.compile(r"=\?([!-~]+?)\?([bq])\?([^?\s]*)\?=", re.IGNORECASE)
ADDRESS = re.compile(r"<([^<>]*)>|(?<!\S)([^\s<>()]+@[^\s<>()]+)")


def charset_of(content_type: bytes) -> str:
    match = re.search(rb'charset="?([\w.:-]+)', content_type, re.IGNORECASE)
    return match[1].decode("ascii") if match else "utf-8"


def decode(data: bytes, charset: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        pass
    try:
        return data.decode("latin-1" if charset.lower() == "utf-8" else charset)
    except (UnicodeError, LookupError):
        return data.decode("latin-1")


def decode_header(value: bytes) -> str:
    """Unfold a header and decode its RFC 2047 words; blanks between two are no text."""
    text = re.sub(r"\r?\n[ \t]", " ", decode(value, "utf-8"))
    out: list[str] = []
    held, held_charset, done = b"", "", 0
    for match in _ENCODED.finditer(text):
        between = text[done : match.start()]
        charset, data = match[1].lower(), _decode_word(match[2], match[3])
        if data is None:
            continue
        if held_charset and not between.strip() and charset == held_charset:
            held += data  # a letter may be cut in two
        else:
            out += [decode(held, held_charset or "utf-8")]
            out += [between] if between.strip() or not held_charset else []
            held, held_charset = data, charset
        done = match.end()
    return "".join([*out, decode(held, held_charset or "utf-8"), text[done:]])


def _decode_word(method: str, text: str) -> bytes | None:
    try:
        raw = text.encode("ascii")
        if method in "qQ":
            return quopri.decodestring(raw, header=True)
        return base64.b64decode(raw + b"=" * (-len(raw) % 4))
    except (UnicodeEncodeError, binascii.Error):
        return None


def plain_subject(text: str) -> str:
    """A subject without `Re:` and without tags that say PATCH; other tags stay, as git has it."""
    kept, at = "", 0
    while at < len(text):
        if match := _REPLY.match(text, at):
            at = match.end()
        elif match := _TAG.match(text, at):
            kept += "" if "PATCH" in match[0] else match[0]
            at = match.end()
        else:
            break
    return kept + text[at:]


def person(who: str, date: str, name: str) -> Person:
    match = ADDRESS.search(who)
    if match is None:
        raise BadPatch(f"{name}:1: no e-mail address in `From: {who}`")
    address = (match[1] or match[2] or "").strip()
    real = " ".join(f"{who[: match.start()]} {who[match.end() :]}".split())
    if real[:1] == "(" and real[-1:] == ")":
        real = real[1:-1]
    if len(real) > 1 and real[0] == real[-1] == '"':
        real = re.sub(r"\\(.)", r"\1", real[1:-1])
    try:
        parsed = email.utils.parsedate_tz(date)
        if parsed is None:
            raise ValueError(date)
        zone = parsed[9] or 0  # a date without a zone means the same everywhere
        seconds = calendar.timegm((*parsed[:6], 0, 0, 0)) - zone
    except (ValueError, OverflowError, IndexError, TypeError):
        raise BadPatch(f"{name}:1: no date, or one that cannot be read: `Date: {date}`") from None
    minutes = abs(zone) // 60
    stamp = f"{seconds} {'-' if zone < 0 else '+'}{minutes // 60:02d}{minutes % 60:02d}"
    clean = re.sub(r"[<>\n]", "", real or address).strip()
    return Person(_bytes(clean), _bytes(address), stamp.encode())


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
