"""Inputs of a pile that had no place in their turn, until what they need is there."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping

from stack.flows.pile.read import Input
from stack.flows.pile.route import Route
from stack.flows.pile.world import World
from stack.model.objects import SYMLINK, Entry
from stack.model.pile.sections import PileHunk, Section

MOST_TRIES = 40  # of one input, so that a long pile in the wrong order ends in bounded time
Key = tuple[str, int]  # upstream and turn
Part = tuple[int, Input, str, list[Route], str]


class Waiting:
    """What waits for a change of its paths; the earliest is tried first, none without end."""

    def __init__(self, worlds: Mapping[str, World]) -> None:
        self.worlds = worlds
        self.parts: dict[Key, Part] = {}
        self._on: dict[tuple[str, bytes], dict[Key, list[Section]]] = {}
        self._awake: dict[str, list[Key]] = {}
        self._tries: Counter[Key] = Counter()

    def add(
        self, turn: int, one: Input, name: str, routes: list[Route], digest: str
    ) -> None:
        """Let an input wait."""
        key = (name, turn)
        self.parts[key] = (turn, one, name, routes, digest)
        for route in routes:
            for path in {route.path, route.old}:
                here = self._on.setdefault((name, path), {})
                here.setdefault(key, []).append(route.section)

    def drop(self, key: Key) -> None:
        """Let an input wait no more."""
        *_, routes, _ = self.parts.pop(key)
        for route in routes:
            for path in {route.path, route.old}:
                self._on.get((key[0], path), {}).pop(key, None)

    def wake(self, name: str, now: Mapping[bytes, Entry | None]) -> None:
        """Some paths have changed: try what names such a state, or could stand in it."""
        for path, entry in now.items():
            for key, sections in self._on.get((name, path), {}).items():
                if any(self._may(section, name, entry) for section in sections):
                    heapq.heappush(self._awake.setdefault(name, []), key)

    def _may(self, section: Section, name: str, entry: Entry | None) -> bool:
        """Whether a section may have a place in a state: it names it, or its lines are there."""
        if entry is None or SYMLINK in (entry.mode, section.old_mode):
            return True
        if section.old_id:
            return entry.oid.startswith(section.old_id)
        where = self.worlds[name].lines(entry.oid).where
        return any(
            all(line in where for hunk in section.hunks for line in lines(hunk))
            for lines in (_old, _new)
        )

    def wake_all(self, name: str) -> None:
        """The pile is at its end: try everything once more."""
        self._awake[name] = sorted(key for key in self.parts if key[0] == name)

    def next(self, name: str) -> Key | None:
        """The earliest input to try again; it sleeps until it is woken anew."""
        awake = self._awake.get(name, [])
        while awake:
            key = heapq.heappop(awake)
            while awake and awake[0] == key:
                heapq.heappop(awake)
            self._tries[key] += 1
            if key in self.parts and self._tries[key] <= MOST_TRIES:
                return key
        return None


def _old(hunk: PileHunk) -> list[bytes]:
    return hunk.old


def _new(hunk: PileHunk) -> list[bytes]:
    return hunk.new
