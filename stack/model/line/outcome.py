"""What happened to one patch, in closed words; control flow and wording both use them."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Outcome(StrEnum):
    """Six answers to "did it apply", the same in every verb."""

    CLEAN = "clean"  # exactly, or at one unambiguous other place
    MODIFIED = "modified"  # a three-way merge had to help
    EMPTY = "empty"  # it changes nothing
    UPSTREAMED = "upstreamed"  # its effect is there already
    CONFLICT = "conflict"
    NOT_TRIED = "not-tried"  # a patch before it stopped the run

    @property
    def sigil(self) -> str:
        return {"clean": "+", "modified": "~", "empty": "0", "upstreamed": "=", "conflict": "!",
                "not-tried": "."}[self.value]


class Clash(msgspec.Struct, frozen=True, kw_only=True):
    """Where a patch does not fit: file, hunk (from 1; 0 for the file itself), line and reason."""

    path: str
    hunk: int
    line: int
    patch_line: int
    why: str
    expected: tuple[str, ...] = ()
    found: tuple[str, ...] = ()

    def describe(self) -> list[str]:
        """The lines that an error shows under its message."""
        where = f"{self.path}:{self.line}" if self.line else self.path
        what = f"hunk {self.hunk} (line {self.patch_line} of the patch)" if self.hunk else "file"
        lines = [f"{where}: {what}: {self.why}"]
        lines += [f"  expected  {line}" for line in self.expected]
        lines += [f"  found     {line}" for line in self.found or ("(nothing)",) if self.expected]
        return lines


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One patch of a replay: what happened, and the commit and tree after it."""

    name: str
    outcome: Outcome
    commit: str | None = None
    tree: str | None = None
    offsets: tuple[str, ...] = ()
    clashes: tuple[Clash, ...] = ()
    paths: tuple[str, ...] = ()
