"""Where a section of a pile went, or why it has no place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from stack.model.objects import Entry
from stack.model.pile.sections import Flag
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


_WORDS: Mapping[How, str] = {
    "increment": "on what stood", "snapshot": "a snapshot of the base", "older": "a step back",
    "merged": "merged", "foreign": "merged from another base", "elided": "by elided context",
    "new": "new", "replaced": "a newer whole", "deleted": "deleted", "renamed": "renamed",
    "mode": "mode", "binary": "binary",
}


def how_text(fits: Sequence[Fit]) -> str:
    """How the files of an input went, in a few words."""
    counts = Counter(_WORDS[fit.how] for fit in fits if fit.how != "there")
    texts = [f"{count} {what}" if len(fits) > 1 else what for what, count in counts.items()]
    there = sum(fit.how == "there" for fit in fits)
    return ", ".join([*texts, *([f"{there} there already"] if there else [])])
