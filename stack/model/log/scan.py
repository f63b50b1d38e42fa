"""Finds the few lines of a huge log that can matter, block by block and in bounded memory.

The standard `re` engine tests an alternation at about 60 MB/s, but a pattern that begins with one
or two fixed bytes at about 1 GB/s. So every pattern is reduced to literals that each of its
matches contains, and these are grouped by a few rare beginnings: one fast search for each.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from stack.model.log.literals import SHORTEST, required

BLOCK = 1 << 20
_SAMPLE = 1 << 18
_LONG_ENOUGH = 6
"""Of a longer literal any rest of this many bytes may be searched for."""

_SCAN_COST, _FIRST_COST, _HIT_COST = 0.45, 3.0, 22.0
"""Nanoseconds for a byte passed over, for a first of two bytes, and for a whole beginning found
(CPython 3.11): they only choose between ways to search, never what is found."""


class Candidate(NamedTuple):
    """A line on which the patterns with these indexes may match; `number` counts from 1."""

    number: int
    line: bytes
    patterns: frozenset[int]


class Search(NamedTuple):
    """An expression; the patterns that may match, `always` or by the text of its first group."""

    expression: re.Pattern[bytes]
    always: frozenset[int]
    patterns: dict[bytes, frozenset[int]]


class Needles:
    """Searches that find every line on which one of the patterns can match."""

    def __init__(self, patterns: Sequence[bytes]) -> None:
        self._wanted: list[tuple[int, list[bytes]]] = []
        self._raw: list[Search] = []
        self._ready: list[Search] | None = None
        for index, pattern in enumerate(patterns):
            alternatives = required(pattern)
            if all(alternatives):
                self._wanted += [(index, runs) for runs in alternatives]
            else:
                whole = re.compile(pattern, re.MULTILINE)
                self._raw.append(Search(whole, frozenset([index]), {}))

    def searches(self, sample: bytes) -> Sequence[Search]:
        """Compiled searches, with beginnings that are rare in `sample`.

        A short log is not worth the choice: it gets searches that are made once.
        """
        if len(sample) < _SAMPLE:
            if self._ready is None:
                options = [_tails(runs) for _, runs in self._wanted]
                chosen = _cover(options, _costs(options, b""))
                self._ready = self._compile(options, chosen)
            return self._ready
        sample = sample[:_SAMPLE]
        options = [_tails(runs) for _, runs in self._wanted]
        cost = _costs(options, sample)
        chosen = _cover(options, cost)
        while _drop_common(options, chosen, sample):
            chosen = _cover(options, cost)
        return self._compile(options, chosen)

    def _compile(
        self, options: Sequence[dict[bytes, bytes]], chosen: Sequence[bytes]
    ) -> list[Search]:
        found = list(self._raw)
        taken: set[int] = set()
        for beginning in chosen:
            owners: dict[bytes, set[int]] = {}
            for i, tails in enumerate(options):
                if i not in taken and beginning in tails:
                    taken.add(i)
                    owners.setdefault(tails[beginning], set()).add(self._wanted[i][0])
            # Of two words that begin alike only the shorter can be seen: it stands for both.
            patterns = {
                word: frozenset[int]().union(*(o for w, o in owners.items() if w.startswith(word)))
                for word in owners
            }
            # Only the beginning is consumed, so that no hit hides one that overlaps it.
            text = re.escape(beginning) + b"(?=(" + _trie(sorted(owners)) + b"))"
            found.append(Search(re.compile(text), frozenset(), patterns))
        return found


def _tails(runs: Sequence[bytes]) -> dict[bytes, bytes]:
    """For each beginning of one or two bytes the longest rest of a run that follows it."""
    tails: dict[bytes, bytes] = {}
    for run in runs:
        shortest = max(SHORTEST, min(_LONG_ENOUGH, len(run) - 2))
        for i in range(len(run) - shortest + 1):
            for width in (1, 2):
                beginning, rest = run[i : i + width], run[i + width :]
                if beginning not in tails or len(rest) > len(tails[beginning]):
                    tails[beginning] = rest
    return tails


def _costs(options: Sequence[dict[bytes, bytes]], sample: bytes) -> dict[bytes, float]:
    """Nanoseconds per byte that a search for each beginning is expected to take."""
    singles, pairs = Counter(sample), Counter(pairwise(sample))
    size = len(sample) or 1
    cost = {}
    for beginning in {b for tails in options for b in tails}:
        often = singles[beginning[0]] / size
        if len(beginning) == 1:
            cost[beginning] = _SCAN_COST + _HIT_COST * often
        else:
            both = pairs[beginning[0], beginning[1]] / size
            cost[beginning] = _SCAN_COST + _FIRST_COST * often + _HIT_COST * both
    return cost


def _cover(options: Sequence[dict[bytes, bytes]], cost: dict[bytes, float]) -> list[bytes]:
    """Cheap beginnings of which every option has one: greedy, then pairs merged while it pays."""
    chosen: list[bytes] = []
    todo = list(options)
    while todo:
        covers = Counter(b for tails in todo for b in tails)
        chosen.append(min(covers, key=lambda b: (cost[b] / covers[b], b)))
        todo = [tails for tails in todo if chosen[-1] not in tails]
    while (merged := _merge(chosen, options, cost)) is not None:
        chosen = merged
    return chosen


def _merge(
    chosen: list[bytes], options: Sequence[dict[bytes, bytes]], cost: dict[bytes, float]
) -> list[bytes] | None:
    """The same cover with two beginnings replaced by a cheaper one, or None."""
    for i in range(len(chosen)):
        for j in range(i):
            rest = [b for k, b in enumerate(chosen) if k not in (i, j)]
            lost = [t for t in options if not any(b in t for b in rest)]
            if not lost:
                return rest
            common = set(lost[0]).intersection(*lost)
            best = min(common, key=lambda b: (cost[b], b), default=None)
            if best is not None and cost[best] < cost[chosen[i]] + cost[chosen[j]]:
                return [*rest, best]
    return None


def _drop_common(
    options: Sequence[dict[bytes, bytes]], chosen: Sequence[bytes], sample: bytes
) -> bool:
    """Take away the choices whose whole text is common in the sample; whether there were any."""
    dropped = False
    limit = len(sample) >> 13
    for tails in options:
        beginning = next(b for b in chosen if b in tails)
        if sample.count(beginning + tails[beginning]) > limit:
            rare = {b: rest for b, rest in tails.items() if sample.count(b + rest) <= limit}
            if rare:
                tails.clear()
                tails.update(rare)
                dropped = True
    return dropped


def _trie(words: Sequence[bytes]) -> bytes:
    """One expression for sorted words that shares their prefixes; a word hides its extensions."""
    if not words[0]:
        return b""
    branches: dict[bytes, list[bytes]] = {}
    for word in words:
        branches.setdefault(word[:1], []).append(word[1:])
    parts = [re.escape(head) + _trie(rest) for head, rest in branches.items()]
    return parts[0] if len(parts) == 1 else b"(?:" + b"|".join(parts) + b")"


class Scanner:
    """Walks over a log once; yields the lines that the needles hit, or all while `follow` is set.

    `lines` is the number of lines passed so far, `last` the last line that was not blank.
    """

    def __init__(self, needles: Needles) -> None:
        self._needles = needles
        self.follow = False
        self.lines = 0
        self.last = b""

    def scan(self, blocks: Iterable[bytes]) -> Iterator[Candidate]:
        """Yield candidates, in order, from whole lines given in pieces of any size."""
        searches: Sequence[Search] | None = None
        for block in joined(blocks):
            if searches is None:
                searches = self._needles.searches(block)
            yield from self._block(block, _hits(searches, block))
            tail = block.rstrip()
            self.last = tail[tail.rfind(b"\n") + 1 :] or self.last

    def _block(self, block: bytes, hits: list[tuple[int, frozenset[int]]]) -> Iterator[Candidate]:
        at = k = 0
        while at < len(block):
            start = at
            if not self.follow:
                if k == len(hits):
                    break
                start = block.rfind(b"\n", at, hits[k][0]) + 1 or at
                self.lines += block.count(b"\n", at, start)
            stop = block.index(b"\n", start)
            patterns: frozenset[int] = frozenset()
            while k < len(hits) and hits[k][0] <= stop:
                patterns |= hits[k][1]
                k += 1
            self.lines += 1
            at = stop + 1
            yield Candidate(self.lines, block[start:stop], patterns)
        self.lines += block.count(b"\n", at)


def _hits(searches: Sequence[Search], block: bytes) -> list[tuple[int, frozenset[int]]]:
    found = []
    for expression, always, patterns in searches:
        if always:
            found += [(m.start(), always) for m in expression.finditer(block)]
        else:
            found += [(m.start(), patterns[m[1]]) for m in expression.finditer(block)]
    if len(searches) > 1:
        found.sort(key=lambda hit: hit[0])
    return found


def joined(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Pieces of whole lines gathered to about one block, each ending in a newline."""
    parts: list[bytes] = []
    size = 0
    for part in blocks:
        parts.append(part if part.endswith(b"\n") else part + b"\n")
        size += len(part)
        if size >= BLOCK:
            yield b"".join(parts)
            parts, size = [], 0
    if parts:
        yield b"".join(parts)
