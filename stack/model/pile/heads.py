"""The head of a section in a pile: what is done, to which file, with which modes and ids."""

from __future__ import annotations

import re

from stack.errors import BadPatch
from stack.model.diff.hunks import Binary, Kind
from stack.model.diff.paths import is_git, unquote
from stack.model.diff.reader import Reader, show
from stack.model.objects import SYMLINK
from stack.model.pile.sections import Flag, PileHunk, Section

NULL = (b"/dev/null", b"dev/null", b"nul")
_MODES = (0o100644, 0o100755, 0o120000)
_HEX = re.compile(rb"[0-9a-f]{4,64}")


class Broken(Exception):
    """The reading ends here."""

    def __init__(self, at: int, why: str) -> None:
        super().__init__(why)
        self.at, self.why = at, why


class Open:
    """A section on its way in."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.header: bytes | None = None
        self.facts: dict[bytes, bytes] = {}
        self.names: tuple[bytes, bytes] | None = None
        self.kind: Kind | None = None
        self.hunks: list[PileHunk] = []
        self.binary: Binary | None = None
        self.flags: set[Flag] = set()
        self.broken_binary = False


def finish(here: Open, first: int) -> Section:
    """A section with its kind, names, modes and ids told from what stood there."""
    facts = here.facts
    kind: Kind = here.kind or "modify"
    for fact, means in (
        (b"new file mode", "add"), (b"deleted file mode", "delete"), (b"rename from", "rename"),
        (b"copy from", "copy"),
    ):
        if fact in facts:
            kind = means  # type: ignore[assignment]
    old, new = here.names or _header_names(here)
    if kind in ("rename", "copy"):
        old = _plain(here.at, facts[kind.encode() + b" from"])
        new = _plain(here.at, facts.get(kind.encode() + b" to", b"")) or new
    elif kind == "modify":
        kind = "add" if old in NULL else "delete" if new in NULL else kind
    old, new = b"" if old in NULL else old, b"" if new in NULL else new
    if here.broken_binary and here.binary is None:
        raise Broken(here.at, f"{show(new or old)}: a binary file without its data")
    for name in (old, new):
        _refuse_path(here.at, name)
    if b"/" in (old[:1], new[:1]):
        here.flags.add(Flag.ABSOLUTE)
    modes = _modes(here, kind)
    old_id, new_id = _ids(here, kind)
    idle = modes[1] is None or modes[0] == modes[1]
    if kind == "modify" and not (here.hunks or here.binary) and idle:
        raise Broken(here.at, f"{show(new or old)}: a file without hunks")
    if kind in ("add", "delete") and not here.hunks and here.binary is None:
        said = new_id if kind == "add" else old_id
        if said and not said.startswith("e69de29"[: len(said)]):
            raise Broken(here.at, f"{show(new or old)}: its content is missing")
    return Section(
        kind=kind, old=old, new=new, old_mode=modes[0], new_mode=modes[1], old_id=old_id,
        new_id=new_id, hunks=tuple(here.hunks), binary=here.binary,
        flags=tuple(here.flags), at=first + here.at,
    )


def _plain(at: int, text: bytes) -> bytes:
    return unquoted(at, text) if text.startswith(b'"') else text


def unquoted(at: int, text: bytes) -> bytes:
    """A name in git's C-style quotes; `Broken` where they do not end."""
    try:
        return unquote(Reader([text], "", 1), text)[0]
    except BadPatch as wrong:
        raise Broken(at, wrong.message.rpartition(": ")[2]) from None


def _header_names(here: Open) -> tuple[bytes, bytes]:
    """The two names of a `diff --git` line, where no other line has them."""
    rest = here.header or b""
    if rest.startswith(b'"'):
        name = unquoted(here.at, rest)
        return name, name
    for at in (at for at, letter in enumerate(rest) if letter == 0x20):
        left, right = rest[:at], rest[at + 1 :]
        if left.partition(b"/")[2] == right.partition(b"/")[2] and b"/" in left:
            return left, right
    left, _, right = rest.partition(b" ")
    return left, right or left


def _refuse_path(at: int, name: bytes) -> None:
    parts = name.split(b"/")
    if b".." in parts:
        raise Broken(at, f"a path outside the tree: {show(name)}")
    if any(is_git(part) for part in parts):
        raise Broken(at, f"a path into .git: {show(name)}")


def _modes(here: Open, kind: Kind) -> tuple[int | None, int | None]:
    facts = here.facts
    index = facts.get(b"index", b"").partition(b" ")[2]
    said = (
        facts.get(b"deleted file mode", facts.get(b"old mode", index)),
        facts.get(b"new file mode", facts.get(b"new mode", b"")),
    )
    found: list[int | None] = []
    for text in said:
        if not text:
            found.append(None)
            continue
        mode = int(text, 8) if re.fullmatch(rb"[0-7]{6}", text) else 0
        if mode == 0o160000:
            raise Broken(here.at, "a change of a submodule, which a patch cannot carry")
        if mode not in _MODES:
            raise Broken(here.at, f"a file mode that git does not have: {show(text)}")
        found.append(mode)
    if SYMLINK in found and kind == "modify" and found[1] not in (None, found[0]):
        raise Broken(here.at, "a file turned into a link, or a link into a file, in one step")
    return found[0], found[1]


def _ids(here: Open, kind: Kind) -> tuple[str, str]:
    """The ids of the index line that can be trusted; the flags say what the others are."""
    index = here.facts.get(b"index")
    if index is None:
        if kind not in ("rename", "copy") or here.hunks:
            here.flags.add(Flag.NO_INDEX)
        return "", ""
    before, dots, after = index.partition(b" ")[0].partition(b"..")
    ids = []
    for text, absent in ((before, kind == "add"), (after, kind == "delete")):
        if not dots or not _HEX.fullmatch(text):
            here.flags.add(Flag.WORD_IDS)
            ids.append("")
        elif not text.strip(b"0"):
            if not absent:
                here.flags.add(Flag.ZERO_IDS)
            ids.append("")
        else:
            ids.append(text.decode())
    return ids[0], ids[1]
