"""What a patch does, file by file and hunk by hunk, as pure values."""

from __future__ import annotations

from typing import Literal

import msgspec

Kind = Literal["modify", "add", "delete", "rename", "copy"]


class Hunk(msgspec.Struct, frozen=True, kw_only=True):
    """One hunk. `lines` are `(sign, text)` with the text's own line end, sign one of ` +-`.

    `at` is the number of its `@@` line in the patch file, counted from 1.
    """

    old_start: int
    new_start: int
    lines: tuple[tuple[bytes, bytes], ...]
    section: bytes = b""
    at: int = 0

    @property
    def old(self) -> list[bytes]:
        return [text for sign, text in self.lines if sign != b"+"]

    @property
    def new(self) -> list[bytes]:
        return [text for sign, text in self.lines if sign != b"-"]

    @property
    def added(self) -> int:
        return sum(sign == b"+" for sign, _ in self.lines)

    @property
    def removed(self) -> int:
        return sum(sign == b"-" for sign, _ in self.lines)


class Binary(msgspec.Struct, frozen=True):
    """The forward half of a `GIT binary patch`: the whole new content, or a delta."""

    method: Literal["literal", "delta"]
    data: bytes


class FilePatch(msgspec.Struct, frozen=True, kw_only=True):
    """What a patch does to one file; `old` and `new` are its paths before and after."""

    kind: Kind
    old: bytes
    new: bytes
    old_mode: int | None = None
    new_mode: int | None = None
    old_id: str | None = None
    hunks: tuple[Hunk, ...] = ()
    binary: Binary | None = None
    at: int = 0

    @property
    def path(self) -> bytes:
        return self.old if self.kind == "delete" else self.new
