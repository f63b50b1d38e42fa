"""A text as lines that are found by what they say."""

from __future__ import annotations

import re
from collections.abc import Sequence

from stack.model.diff.linediff import split

MOST_PLACES = 2000
_HEADING = re.compile(rb"[A-Za-z_$]")
_PYTHON = re.compile(rb"[ \t]*(?:class|(?:async[ \t]+)?def)[ \t]")


class Lines:
    """A text as lines, with the places of each."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.lines = split(data)
        self._where: dict[bytes, list[int]] | None = None

    @property
    def where(self) -> dict[bytes, list[int]]:
        if self._where is None:
            found: dict[bytes, list[int]] = {}
            for at, line in enumerate(self.lines):
                found.setdefault(line, []).append(at)
            self._where = found
        return self._where

    def spots(self, wanted: Sequence[bytes]) -> list[int]:
        """Where these lines stand one after the other; at most `MOST_PLACES` are looked at."""
        if not wanted:
            return []
        where = self.where
        rarest, places = 0, where.get(wanted[0], [])
        for offset, line in enumerate(wanted):
            here = where.get(line)
            if here is None:
                return []
            if len(here) < len(places):
                rarest, places = offset, here
        size = len(wanted)
        wanted = list(wanted)
        return [
            at - rarest
            for at in places[:MOST_PLACES]
            if at >= rarest and self.lines[at - rarest : at - rarest + size] == wanted
        ]

    def under(self, spot: int, heading: bytes) -> bool:
        """Whether git would write this heading over a hunk that begins at `spot`."""
        for pattern in (_HEADING, _PYTHON):
            for at in range(min(spot, len(self.lines)) - 1, -1, -1):
                line = self.lines[at]
                if pattern.match(line):
                    if line.strip().startswith(heading.strip()):
                        return True
                    break
        return False
