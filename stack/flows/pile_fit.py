"""Where a section of a pile went, or why it has no place."""

from __future__ import annotations

from typing import Literal

import msgspec

from stack.model.objects import Entry
from stack.model.pile import Flag
from stack.repo.replay import show

How = Literal[
    "increment", "snapshot", "older", "merged", "foreign", "elided", "there", "new", "replaced",
    "deleted", "renamed", "mode", "binary",
]
Prefer = Literal["", "snapshot", "increment"]


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """Where a section went: the entries that it makes, how, and what was odd.

    `on` is whose state it was made on, `sure` says that its result is the blob that it names,
    `torn` that both the present state and the base would have taken it; `says` is the kind of diff
    that it shows its input to be.
    """

    entries: dict[bytes, Entry | None]
    how: How
    flags: frozenset[Flag] = frozenset()
    on: str = ""
    sure: bool = False
    torn: bool = False
    says: Prefer = ""


class Misfit(msgspec.Struct, frozen=True):
    """Why a section has no place; `line` is in the diff."""

    path: bytes
    line: int
    why: str

    def __str__(self) -> str:
        return f"{show(self.path)}: line {self.line}: {self.why}"
