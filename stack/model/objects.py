"""Git's object formats as pure values: ids, trees, commits and the pack stream."""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping

import msgspec

FILE, EXECUTABLE, SYMLINK, FOLDER, SUBMODULE = 0o100644, 0o100755, 0o120000, 0o040000, 0o160000
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
ZERO = "0" * 40
_PACK_TYPES = {"commit": 1, "tree": 2, "blob": 3}


class Entry(msgspec.Struct, frozen=True):
    """What a tree says of one name: its mode and the id of its object."""

    mode: int
    oid: str


Changed = Mapping[bytes, tuple[Entry | None, Entry | None]]
"""Paths with what stands there on both sides."""


def object_id(kind: str, data: bytes) -> str:
    """The sha1 id that git gives an object of `kind` (`blob`, `tree`, `commit`)."""
    return hashlib.sha1(b"%s %d\0" % (kind.encode(), len(data)) + data).hexdigest()  # noqa: S324


def parse_tree(data: bytes) -> dict[bytes, Entry]:
    """The entries of a tree object by name."""
    entries: dict[bytes, Entry] = {}
    at = 0
    while at < len(data):
        space = data.index(b" ", at)
        end = data.index(b"\0", space)
        oid = data[end + 1 : end + 21].hex()
        entries[data[space + 1 : end]] = Entry(int(data[at:space], 8), oid)
        at = end + 21
    return entries


def render_tree(entries: Mapping[bytes, Entry]) -> bytes:
    """A tree object; git sorts a folder as if its name ended in a slash."""
    parts = []
    ordered = sorted(entries, key=lambda n: n + b"/" if entries[n].mode == FOLDER else n)
    for name in ordered:
        entry = entries[name]
        parts.append(b"%o %s\0" % (entry.mode, name) + bytes.fromhex(entry.oid))
    return b"".join(parts)


def differing(
    before: Mapping[bytes, Entry], after: Mapping[bytes, Entry]
) -> Iterator[tuple[bytes, Entry | None, Entry | None]]:
    """The names in which two trees differ; an edited tree shares the entries of the one before."""
    if before.keys() == after.keys():
        for name, left in before.items():
            right = after[name]
            if left is not right and left != right:
                yield name, left, right
        return
    for name in (*before, *(name for name in after if name not in before)):
        one, other = before.get(name), after.get(name)
        if one is not other and one != other:
            yield name, one, other


class Person(msgspec.Struct, frozen=True):
    """Who and when, as a commit has it: `date` is `SECONDS +HHMM`."""

    name: bytes
    email: bytes
    date: bytes

    def render(self) -> bytes:
        return b"%s <%s> %s" % (self.name, self.email, self.date)


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """A commit without its id."""

    tree: str
    parents: tuple[str, ...]
    author: Person
    committer: Person
    message: bytes

    def render(self) -> bytes:
        lines = [b"tree " + self.tree.encode()]
        lines += [b"parent " + parent.encode() for parent in self.parents]
        lines += [b"author " + self.author.render(), b"committer " + self.committer.render()]
        return b"\n".join(lines) + b"\n\n" + self.message


def parse_commit(data: bytes) -> Commit:
    """Read a commit object; headers that we do not use (signatures, encodings) are left out."""
    head, _, message = data.partition(b"\n\n")
    found: dict[bytes, list[bytes]] = {}
    for line in head.split(b"\n"):
        key, _, value = line.partition(b" ")
        found.setdefault(key, []).append(value)
    return Commit(
        tree=found[b"tree"][0].decode(),
        parents=tuple(parent.decode() for parent in found.get(b"parent", ())),
        author=_parse_person(found[b"author"][0]),
        committer=_parse_person(found[b"committer"][0]),
        message=message,
    )


def _parse_person(line: bytes) -> Person:
    who, _, date = line.rpartition(b"> ")
    name, _, email = who.rpartition(b"<")
    return Person(name.rstrip(b" "), email, date)


def pack(objects: Iterable[tuple[str, bytes]]) -> bytes:
    """A version 2 pack stream of whole objects `(kind, data)`, as `git index-pack` takes it."""
    listed = list(objects)
    parts = [b"PACK" + struct.pack(">II", 2, len(listed))]
    for kind, data in listed:
        size = len(data)
        byte = _PACK_TYPES[kind] << 4 | size & 15
        size >>= 4
        header = bytearray()
        while size:
            header.append(byte | 0x80)
            byte, size = size & 0x7F, size >> 7
        header.append(byte)
        # ids cannot be squeezed: a tree is stored as it is
        parts += [bytes(header), zlib.compress(data, 0 if kind == "tree" else 1)]
    body = b"".join(parts)
    return body + hashlib.sha1(body).digest()  # noqa: S324
