"""Reads the diff of a patch file strictly: every line of it must be accounted for.

git and GNU patch drop lines that stand after a hunk's count, and exit 0; here the file is refused
with the number of the line.
"""

from __future__ import annotations

import re

from stack.model.diff.binary import parse_binary
from stack.model.diff.hunks import Binary, FilePatch, Hunk, Kind
from stack.model.diff.paths import mode_of, paths_of, strip_prefix, unquote
from stack.model.diff.reader import Reader, show
from stack.model.objects import SYMLINK

_RANGE = rb"(\d{1,9})(?:,(\d{1,9}))?"
_HUNK = re.compile(rb"@@ -" + _RANGE + rb" \+" + _RANGE + rb" @@(.*)\Z", re.DOTALL)
_MORE = re.compile(rb"diff --git |@@ -|\+|-(?!-)")
_EMPTY = b"e69de29"  # how the id of an empty blob begins
_FACTS = (
    b"old mode ", b"new mode ", b"new file mode ", b"deleted file mode ", b"rename from ",
    b"rename to ", b"copy from ", b"copy to ", b"similarity index ", b"dissimilarity index ",
    b"index ",
)
_FILE_START = (b"diff --git ", b"--- ", b"-- ")


def parse_diff(data: bytes, name: str, *, first: int = 1) -> tuple[FilePatch, ...]:
    """The file patches of a diff in git's format.

    `name` and `first` (the number of the diff's first line in its file) are for messages. Raises
    `BadPatch` with `name:line` for anything that is not wholly understood.
    """
    lines = data.splitlines(keepends=True) if b"\r" not in data else split_lines(data)
    reader = Reader(lines, name, first)
    files: list[FilePatch] = []
    while (line := reader.peek()) is not None:
        if line.startswith(b"diff --git "):
            files.append(_parse_file(reader))
        elif line.startswith((b"diff --cc ", b"diff --combined ")):
            raise reader.bad("a combined diff of a merge cannot be applied")
        elif line.startswith(b"--- "):
            files.append(_parse_plain_file(reader))
        elif line.rstrip() == b"--":  # the signature of a mail
            _read_signature(reader)
        elif line.startswith(b"@@ "):
            raise reader.bad("a hunk without a file: no `---` and `+++` lines before it")
        elif line.strip():
            raise reader.bad(f"not a part of a diff: {show(line)}")
        else:
            reader.at += 1
    if not files:
        raise reader.bad("no diff found")
    return tuple(files)


def _read_signature(reader: Reader) -> None:
    """Skip what stands after the diff of a mail; nothing there may be a part of the diff."""
    while (line := reader.peek()) is not None:
        if _MORE.match(line):
            raise reader.bad(f"more of a diff after the signature `-- `: {show(line)}")
        reader.at += 1


def split_lines(data: bytes) -> list[bytes]:
    """Lines end in a newline only; a lone return is content."""
    lines = data.split(b"\n")
    tail = lines.pop()
    return [line + b"\n" for line in lines] + ([tail] if tail else [])


def _parse_file(reader: Reader) -> FilePatch:
    start = reader.first + reader.at
    header = reader.take().rstrip(b"\r\n")
    facts: dict[bytes, bytes] = {}
    old_id: str | None = None
    while (line := reader.peek()) is not None:
        text = line.rstrip(b"\r\n")
        for key in _FACTS:
            if text.startswith(key):
                facts[key.strip()] = text[len(key) :]
                break
        else:
            break
        reader.at += 1
    if index := facts.get(b"index"):
        ids, _, mode = index.partition(b" ")
        before = ids.partition(b"..")[0]
        if re.fullmatch(rb"[0-9a-f]{40}", before):
            old_id = before.decode()
        if mode:
            facts.setdefault(b"old mode", mode)
    kind = _kind_of(reader, facts)
    nxt = reader.peek()
    named = _file_names(reader) if nxt is not None and nxt.startswith(b"--- ") else None
    reader.at -= 1  # what is wrong with names and modes stands in the lines just read
    old, new = paths_of(reader, header, facts, kind, named)
    old_mode, new_mode = (mode_of(reader, facts.get(key)) for key in (b"old mode", b"new mode"))
    if new_mode and old_mode and (old_mode == SYMLINK) != (new_mode == SYMLINK):
        raise reader.bad("a file turned into a link, or a link into a file, in one step")
    reader.at += 1
    hunks: tuple[Hunk, ...] = ()
    binary: Binary | None = None
    if named is not None:
        hunks = _parse_hunks(reader)
    elif nxt is not None and nxt.startswith(b"GIT binary patch"):
        binary = parse_binary(reader)
    elif nxt is not None and nxt.startswith(b"Binary files "):
        raise reader.bad(
            "a binary file without its data", hint="make the patch again with `git diff --binary`"
        )
    elif nxt is not None and nxt.startswith(b"@@ "):
        raise reader.bad("a hunk without `---` and `+++` lines before it")
    elif _needs_content(kind, facts):
        raise reader.bad("a file without hunks" + (": it is truncated" if nxt is None else ""))
    return FilePatch(
        kind=kind, old=old, new=new, old_mode=old_mode, new_mode=new_mode, old_id=old_id,
        hunks=hunks, binary=binary, at=start,
    )


def _kind_of(reader: Reader, facts: dict[bytes, bytes]) -> Kind:
    """What a file's header lines say is done; the two modes go where both kinds have them."""
    found: list[Kind] = []
    if b"new file mode" in facts:
        found.append("add")
        facts[b"new mode"] = facts[b"new file mode"]
    if b"deleted file mode" in facts:
        found.append("delete")
        facts[b"old mode"] = facts[b"deleted file mode"]
    if b"rename from" in facts or b"rename to" in facts:
        found.append("rename")
    if b"copy from" in facts or b"copy to" in facts:
        found.append("copy")
    if len(found) > 1:
        raise reader.bad(f"a file that is said to be both {found[0]} and {found[1]}")
    return found[0] if found else "modify"


def _needs_content(kind: Kind, facts: dict[bytes, bytes]) -> bool:
    """Whether a file without hunks must have lost them."""
    ids = facts.get(b"index", b"").partition(b" ")[0]
    before, _, after = ids.partition(b"..")
    if kind in ("add", "delete"):
        return bool(ids) and not (after if kind == "add" else before).startswith(_EMPTY)
    return bool(ids) or (kind == "modify" and b"new mode" not in facts)


def _parse_plain_file(reader: Reader) -> FilePatch:
    """A file without a `diff --git` line: only `---`, `+++` and hunks."""
    start = reader.first + reader.at
    old, new = _file_names(reader)
    kind: Kind = "modify"
    if old == b"/dev/null":
        kind = "add"
    elif new == b"/dev/null":
        kind = "delete"
    reader.at -= 1
    paths = [strip_prefix(reader, name) for name in (old, new) if name != b"/dev/null"]
    if not paths or paths[0] != paths[-1]:
        raise reader.bad(f"two names for one file: {show(old)} and {show(new)}")
    reader.at += 1
    hunks = _parse_hunks(reader)
    return FilePatch(
        kind=kind, old=paths[0], new=paths[-1], new_mode=0o100644 if kind == "add" else None,
        hunks=hunks, at=start,
    )


def _file_names(reader: Reader) -> tuple[bytes, bytes]:
    names = []
    for mark in (b"--- ", b"+++ "):
        line = reader.take()
        if not line.startswith(mark):
            raise reader.bad(f"expected a `{mark.decode()}` line, found {show(line)}", back=1)
        name = line[4:].rstrip(b"\r\n")
        if name.startswith(b'"'):
            name = unquote(reader, name)[0]
        else:
            name = name.partition(b"\t")[0]
        names.append(name)
    return names[0], names[1]


def _parse_hunks(reader: Reader) -> tuple[Hunk, ...]:
    hunks: list[Hunk] = []
    while (line := reader.peek()) is not None and line.startswith(b"@@ "):
        hunks.append(_parse_hunk(reader))
    if not hunks:
        raise reader.bad("a file without hunks")
    after = reader.peek()
    if after is not None and after[:1] in (b"+", b"-", b" ") and not after.startswith(_FILE_START):
        raise reader.bad("the hunk goes on after the lines that its header counts")
    return tuple(hunks)


def _parse_hunk(reader: Reader) -> Hunk:
    at = reader.first + reader.at
    match = _HUNK.match(reader.peek() or b"")
    if match is None:
        raise reader.bad(f"a hunk header without line numbers: {show(reader.peek() or b'')}")
    reader.at += 1
    old_left, new_left = (int(match[n]) if match[n] is not None else 1 for n in (2, 4))
    lines: list[tuple[bytes, bytes]] = []
    ended = b""  # the signs that no line may have any more
    if not old_left and not new_left:
        raise reader.bad("a hunk without lines", back=1)
    while old_left > 0 or new_left > 0:
        line = reader.take()
        sign = line[:1]
        if line in (b"\n", b"\r\n"):  # an editor stripped the blank before an empty context line
            sign, line = b" ", b" " + line
        if sign not in (b" ", b"+", b"-"):
            raise reader.bad(
                "the hunk ends before the lines that its header counts: truncated", back=1
            )
        if sign in ended:
            raise reader.bad("a line after the one that has no newline at the end of file", back=1)
        old_left -= sign != b"+"
        new_left -= sign != b"-"
        if old_left < 0 or new_left < 0:
            raise reader.bad("the hunk's lines do not add up to the counts in its header", back=1)
        lines.append((sign, line[1:]))
        follows = reader.peek()
        if follows is not None and follows.startswith(b"\\"):
            reader.at += 1
            lines[-1] = (sign, line[1:].removesuffix(b"\n"))
            ended += {b" ": b" +-", b"+": b" +", b"-": b" -"}[sign]
        elif not line.endswith(b"\n"):
            raise reader.bad("the patch ends in the middle of a line: it is truncated", back=1)
    return Hunk(
        old_start=int(match[1]), new_start=int(match[3]), lines=tuple(lines),
        section=match[5].strip(), at=at,
    )
