"""A patch as mail: headers, message and diff, read as `git am --keep-non-patch` reads them."""

from __future__ import annotations

import base64
import binascii
import quopri
import re

import msgspec

from stack.errors import BadPatch
from stack.model.mail.headers import (
    ADDRESS,
    charset_of,
    decode,
    decode_header,
    person,
    plain_subject,
)
from stack.model.objects import Person

_NAMED = re.compile(rb"--- \S")
_HEADER = re.compile(rb"[!-9;-~]+:")
_TRAILER = re.compile(r"\A([A-Za-z][A-Za-z0-9-]*):(?: (.*))?\Z")
FROM_LINE = re.compile(rb"\AFrom [0-9a-f]{40} Mon Sep 17 00:00:00 2001\s*\Z")


class Mail(msgspec.Struct, frozen=True, kw_only=True):
    """One patch mail. `raw` is the file's own bytes; `diff_line` is where the diff begins (from 1).

    `body` is the message under the subject without its trailers; `trailers` keep their order.
    """

    author: Person
    subject: str
    body: str
    trailers: tuple[tuple[str, str], ...]
    diff: bytes
    diff_line: int
    raw: bytes

    def trailer(self, name: str) -> str | None:
        """The value of the last trailer of that name."""
        return next((v for k, v in reversed(self.trailers) if k.lower() == name.lower()), None)

    @property
    def message(self) -> bytes:
        """The commit message: subject, body and trailers."""
        return render_message(self.subject, self.body, self.trailers)


def render_message(subject: str, body: str, trailers: tuple[tuple[str, str], ...]) -> bytes:
    """The commit message that a subject, a body and trailers make."""
    parts = [subject]
    if body:
        parts.append(body)
    if trailers:
        parts.append(_render_trailers(trailers))
    return ("\n\n".join(parts) + "\n").encode("utf-8", "surrogateescape")


def _render_trailers(trailers: tuple[tuple[str, str], ...]) -> str:
    lines = []
    for name, value in trailers:
        first, *rest = value.split("\n")
        lines.append(f"{name}: {first}" if first else f"{name}:")
        lines += [line if line.startswith("\t") else f" {line}" for line in rest]
    return "\n".join(lines)


def split_message(message: bytes) -> tuple[str, str, tuple[tuple[str, str], ...]]:
    """Subject, body and trailers of a commit message; `render_message` is the inverse."""
    text = message.decode("utf-8", "surrogateescape").strip("\n")
    head, _, rest = text.partition("\n\n")
    subject = " ".join(line.strip() for line in head.split("\n"))
    rest = rest.strip("\n")
    before, _, last = rest.rpartition("\n\n")
    trailers = _parse_trailers(last)
    if trailers is None:
        return subject, rest, ()
    return subject, before.rstrip("\n"), trailers


def _parse_trailers(paragraph: str) -> tuple[tuple[str, str], ...] | None:
    """The trailers of a paragraph that is nothing but trailers, else None.

    A continuation line loses one leading space; one that begins with a tab stays as it is. What
    would not be written again in the same letters (`Fixes:#1`, a bare URL) is not a trailer.
    """
    found: list[tuple[str, str]] = []
    for line in paragraph.split("\n"):
        if line.startswith((" ", "\t")) and found:
            name, value = found[-1]
            found[-1] = (name, f"{value}\n{line.removeprefix(' ')}")
        elif match := _TRAILER.match(line):
            found.append((match[1], match[2] or ""))
        else:
            return None
    trailers = tuple(found)
    return trailers if found and _render_trailers(trailers) == paragraph else None


def parse_mail(raw: bytes, name: str) -> Mail:
    """Read one patch mail; `name` is the file's name for messages.

    Raises `BadPatch` with `name:line` where headers, author, date or diff are missing.
    """
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff") or raw[:8].count(b"\0") == 4:
        raise BadPatch(f"{name}:1: looks like UTF-16", hint="save it as UTF-8")
    lines = raw.split(b"\n")
    at = 1 if lines[0].startswith(b"From ") else 0
    headers, at = _read_headers(lines, at)
    if b"from" not in headers or b"subject" not in headers:
        missing = "From" if b"from" not in headers else "Subject"
        raise BadPatch(
            f"{name}:1: not a patch in mail format: no `{missing}:` header",
            hint="make it with `git format-patch`, or take a plain diff with `stack import`",
        )
    offset = sum(len(line) + 1 for line in lines[:at])
    content = raw[offset:]
    encoding = headers.get(b"content-transfer-encoding", b"").strip().lower()
    if encoding in (b"quoted-printable", b"base64"):
        content = _decode_body(content, encoding, name)
    # Turned to CR LF as a whole on its way (a text in base64 has them by its standard), so no line
    # means it; a patch that does mean it has LF behind its own header lines.
    if lines[0].endswith(b"\r") or (encoding == b"base64" and _all_crlf(content)):
        content = content.replace(b"\r\n", b"\n")
    message, diff, skipped = _split_body(content.split(b"\n"))
    charset = charset_of(headers.get(b"content-type", b""))
    body_text = decode(message, charset)
    in_body, body_text = _in_body_headers(body_text)
    subject = in_body.get("subject") or plain_subject(decode_header(headers[b"subject"]))
    below = ("x\n\n" + body_text.strip("\n")).encode("utf-8", "surrogateescape")
    _, body, trailers = split_message(below)
    who = in_body.get("from") or decode_header(headers[b"from"])
    date = in_body.get("date") or headers.get(b"date", b"").decode("ascii", "replace")
    if not diff.strip():
        raise BadPatch(f"{name}:{len(lines)}: the mail ends without a diff: it is truncated")
    return Mail(
        author=person(who, date, name), subject=subject.strip(), body=body, trailers=trailers,
        diff=diff, diff_line=at + skipped + 1, raw=raw,
    )


def _read_headers(lines: list[bytes], at: int) -> tuple[dict[bytes, bytes], int]:
    headers: dict[bytes, bytes] = {}
    key = b""
    while at < len(lines):
        line = lines[at].rstrip(b"\r")
        at += 1
        if not line:
            break
        if line[:1] in (b" ", b"\t") and key:
            headers[key] += b"\n" + line
        elif _HEADER.match(line):
            name, _, value = line.partition(b":")
            key = name.lower()
            headers.setdefault(key, value.strip())
        else:
            return headers, at - 1
    return headers, at


def _split_body(lines: list[bytes]) -> tuple[bytes, bytes, int]:
    """Message and diff of a mail's body, and how many lines stand before the diff."""
    for number, line in enumerate(lines):
        if _is_break(line):
            start = number
            while start < len(lines) and not (
                lines[start].startswith(b"diff -") or _NAMED.match(lines[start])
            ):
                start += 1
            return b"\n".join(lines[:number]), b"\n".join(lines[start:]), start
    return b"\n".join(lines), b"", len(lines)


def _is_break(line: bytes) -> bool:
    """Where git ends a message: `diff -`, `Index: `, `--- file`, or a bare `---`."""
    if line.startswith((b"diff -", b"Index: ")):
        return True
    return line.startswith(b"---") and (
        not line[3:].strip() or (line[3:4] == b" " and not line[4:5].isspace())
    )


def _decode_body(content: bytes, encoding: bytes, name: str) -> bytes:
    if encoding == b"quoted-printable":
        return quopri.decodestring(content)
    try:
        return base64.b64decode(content, validate=False)
    except binascii.Error:
        raise BadPatch(f"{name}:1: the base64 body is damaged") from None


def _all_crlf(content: bytes) -> bool:
    return 0 < content.count(b"\n") == content.count(b"\r\n")


def _in_body_headers(text: str) -> tuple[dict[str, str], str]:
    """`From:`, `Subject:` and `Date:` lines that open the message win over the mail's own."""
    found: dict[str, str] = {}
    lines = text.lstrip("\n").split("\n")
    at = 0
    while at < len(lines):
        key, colon, value = lines[at].partition(": ")
        key = key.lower()
        if not colon or key not in ("from", "subject", "date") or key in found:
            break
        if key == "from" and not ADDRESS.search(value):
            break
        found[key] = value
        at += 1
    if not found or (at < len(lines) and lines[at].strip()):
        return {}, text
    return found, "\n".join(lines[at:])
