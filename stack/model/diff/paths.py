"""The paths and modes that a diff names; nothing outside the tree, nothing into `.git`."""

from __future__ import annotations

import re

from stack.model.diff.hunks import Kind
from stack.model.diff.reader import Reader, show

_ESCAPES = {b"a": 7, b"b": 8, b"t": 9, b"n": 10, b"v": 11, b"f": 12, b"r": 13, b'"': 34, b"\\": 92}
# U+200C to U+200F, U+202A to U+202E, U+206A to U+206F, U+FEFF (git's utf8.c: is_hfs_dotgit).
_LEFT_OUT = re.compile(rb"\xe2\x80[\x8c-\x8f\xaa-\xae]|\xe2\x81[\xaa-\xaf]|\xef\xbb\xbf")


def paths_of(
    reader: Reader, header: bytes, facts: dict[bytes, bytes], kind: Kind,
    named: tuple[bytes, bytes] | None,
) -> tuple[bytes, bytes]:
    if kind in ("rename", "copy"):
        sides = []
        for side in (b"from", b"to"):
            raw = facts.get(kind.encode() + b" " + side)
            if raw is None:
                raise reader.bad(f"a {kind} without its `{kind} {side.decode()}` line")
            name = unquote(reader, raw)[0] if raw.startswith(b'"') else raw
            sides.append(safe_path(reader, name))
        if named is not None and [strip_prefix(reader, name) for name in named] != sides:
            raise reader.bad(f"two names for one file: {show(sides[1])} and {show(named[1])}")
        return sides[0], sides[1]
    if named is not None:
        old, new = named
        if kind == "add" and old != b"/dev/null":
            raise reader.bad("a new file whose `---` line is not /dev/null")
        if kind == "delete" and new != b"/dev/null":
            raise reader.bad("a deleted file whose `+++` line is not /dev/null")
        paths = [strip_prefix(reader, name) for name in (old, new) if name != b"/dev/null"]
        if not paths or paths[0] != paths[-1]:
            raise reader.bad(f"two names for one file: {show(old)} and {show(new)}")
        if (said := _header_path(reader, header.removeprefix(b"diff --git "))) != paths[0]:
            raise reader.bad(f"two names for one file: {show(said)} and {show(paths[0])}")
        return paths[0], paths[-1]
    path = _header_path(reader, header.removeprefix(b"diff --git "))
    return path, path


def _header_path(reader: Reader, rest: bytes) -> bytes:
    """The path in `a/PATH b/PATH`, both the same, where no other line names it."""
    if rest.startswith(b'"'):
        first, after = unquote(reader, rest)
        second = after.lstrip()
        second = unquote(reader, second)[0] if second.startswith(b'"') else second
        if strip_prefix(reader, first) == strip_prefix(reader, second):
            return strip_prefix(reader, first)
    middle = len(rest) // 2
    left, right = rest[:middle], rest[middle + 1 :]
    if rest[middle : middle + 1] == b" " and left[left.find(b"/") :] == right[right.find(b"/") :]:
        return strip_prefix(reader, left)
    raise reader.bad(f"cannot tell the file in `diff --git {show(rest)}`")


def strip_prefix(reader: Reader, name: bytes) -> bytes:
    """Take off the first component (`a/`, `b/`), as `git apply -p1` does."""
    if name.startswith(b"/"):
        raise reader.bad(f"an absolute path: {show(name)}")
    head, slash, path = name.partition(b"/")
    if not slash or head in (b"..", b"."):
        raise reader.bad(f"a path without the leading `a/` or `b/`: {show(name)}")
    return safe_path(reader, path)


def safe_path(reader: Reader, path: bytes) -> bytes:
    parts = path.split(b"/")
    if b".." in parts or b"." in parts or b"" in parts or path.startswith(b"/"):
        raise reader.bad(f"a path outside the tree: {show(path)}")
    if any(is_git(part) for part in parts):
        raise reader.bad(f"a path into .git: {show(path)}")
    if b"\0" in path:
        raise reader.bad("a path with a NUL byte")
    return path


def is_git(part: bytes) -> bool:
    """Whether some file system takes this name for `.git`.

    Letters of any case; on NTFS blanks and dots behind it, a stream, its short name; on HFS+ with
    any of the code points between that it leaves out.
    """
    plain = _LEFT_OUT.sub(b"", part).lower()
    return plain.partition(b":")[0].rstrip(b" .") in (b".git", b"git~1")


def mode_of(reader: Reader, text: bytes | None) -> int | None:
    if text is None:
        return None
    mode = int(text, 8) if re.fullmatch(rb"[0-7]{6}", text) else 0
    if mode == 0o160000:
        raise reader.bad("a change of a submodule, which a patch cannot carry")
    if mode not in (0o100644, 0o100755, 0o120000):
        raise reader.bad(f"a file mode that git does not have: {show(text)}")
    return mode


def unquote(reader: Reader, text: bytes) -> tuple[bytes, bytes]:
    """Undo git's C-style quoting of the name that `text` begins with; the name and the rest."""
    out = bytearray()
    at = 1
    while at < len(text):
        letter = text[at : at + 1]
        if letter == b'"':
            return bytes(out), text[at + 1 :]
        if letter == b"\\":
            code = text[at + 1 : at + 2]
            if code in _ESCAPES:
                out.append(_ESCAPES[code])
                at += 2
                continue
            octal = text[at + 1 : at + 4]
            if re.fullmatch(rb"[0-3][0-7]{2}", octal):
                out.append(int(octal, 8))
                at += 4
                continue
            break
        out += letter
        at += 1
    raise reader.bad(f"a quoted name that does not end: {show(text)}")
