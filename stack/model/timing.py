"""Timing tables and kernel waits in a log: decode-timing, moe-kernel-trace, and prose like them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import msgspec

from stack.model.samples import Distribution, Samples

_BULK_WAIT = re.compile(rb'-moe-trace device=\S+ kernel="(.*)')
_BULK_LABEL = re.compile(rb"decode-timing rank=(\d+) label=(\S+) count=\d+ ms=([\d.]+)")
_WAIT = re.compile(rb'([^"]*)" wait_ms=([\d.]+)\s*')
_SUMMARY = re.compile(rb"decode-timing summary rank=(\d+)")
_HEADER = re.compile(rb"\|?\s*label[\s|]+count[\s|]+total[ _]ms[\s|]+avg[ _]ms(?:[\s|]+max[ _]ms)?")
_RULE = re.compile(rb"[\s|:-]+")
_EAGER_HEADER = re.compile(rb"per-layer rank-(\d+) timings")
_EAGER = re.compile(rb"([\w.]+) ~\s*([\d.]+) ms\b")
_PROSE_COUNT = re.compile(rb"(\d+) kernel wait samples")
_PROSE = re.compile(rb"(median|average|mean|p95|max) wait: ([\d.]+) ms")

_MOST_WAITS = 300_000

PATTERNS = [
    rb"decode-timing summary rank=",
    rb"label[ |]+count[ |]+total[ _]ms[ |]+avg[ _]ms",
    rb"per-layer rank-\d+ timings",
    rb"\d+ kernel wait samples",
    rb"(?:median wait: |average wait: |mean wait: |p95 wait: |max wait: )[\d.]+ ms",
]
"""Lines that `Timings.line` has to see; the bulk lines go to `Timings.block`."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One label of a timing table; times in milliseconds, None where a table does not say."""

    label: str
    count: int | None = None
    total_ms: float | None = None
    avg_ms: float
    max_ms: float | None = None
    rank: int = 0


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """Figures about kernel waits that somebody else has computed, in milliseconds."""

    count: int | None = None
    median: float | None = None
    mean: float | None = None
    p95: float | None = None
    max: float | None = None


class Timings:
    """Collects what one log says about time."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.eager: list[Row] = []
        self.prose = Wait()
        self.unread = 0
        self._waits: Counter[bytes] = Counter()
        self._kernels: dict[str, Samples] = {}
        self._labels: dict[tuple[int, str], Samples] = {}
        self._mode = ""
        self._rank = 0
        self._cells: list[bytes] = []

    @property
    def wants_all(self) -> bool:
        """Whether a table is open, so that the next line is needed too."""
        return bool(self._mode)

    def block(self, block: bytes) -> bytes:
        """Take the lines that come by the million out of a block of whole lines.

        Returns the block with dots in the place of what was taken; no line ends are lost.
        """
        if b"llm-scaler-moe-trace " in block:
            parts = _BULK_WAIT.split(block)
            self._waits.update(parts[1::2])
            block = b"...".join(parts[::2])
            if len(self._waits) > _MOST_WAITS:
                self._sort_waits()
        if b"decode-timing rank=" in block:
            parts = _BULK_LABEL.split(block)
            self._add_labels(Counter(zip(parts[1::4], parts[2::4], parts[3::4], strict=True)))
            block = b"...".join(parts[::4])
        return block

    def _sort_waits(self) -> None:
        by_kernel: dict[str, Counter[bytes]] = {}
        for text, count in self._waits.items():
            match = _WAIT.fullmatch(text)
            if match is None:
                self.unread += count
                continue
            kernel = match[1].decode(errors="replace")
            by_kernel.setdefault(kernel, Counter())[match[2]] += count
        self._waits.clear()
        for kernel, counts in by_kernel.items():
            self._kernels.setdefault(kernel, Samples()).add_counts(counts)

    def _add_labels(self, found: Counter[tuple[bytes, bytes, bytes]]) -> None:
        grouped: dict[tuple[int, str], Counter[bytes]] = {}
        for (rank, label, ms), count in found.items():
            key = (int(rank), label.decode(errors="replace"))
            grouped.setdefault(key, Counter())[ms] += count
        for key, counts in grouped.items():
            self._labels.setdefault(key, Samples()).add_counts(counts)

    def line(self, body: bytes) -> None:
        """Take one candidate line without its prefix."""
        if match := _SUMMARY.search(body):
            self._mode, self._rank, self._cells = "table", int(match[1]), []
        elif _HEADER.search(body):
            self._rank = self._rank if self._mode else 0
            self._mode, self._cells = "table", []
        elif match := _EAGER_HEADER.search(body):
            self._mode, self._rank = "eager", int(match[1])
        elif match := _PROSE_COUNT.search(body):
            self.prose = msgspec.structs.replace(self.prose, count=int(match[1]))
        elif match := _PROSE.search(body):
            name = match[1].decode().replace("average", "mean")
            self.prose = msgspec.structs.replace(self.prose, **{name: float(match[2])})
        elif self._mode == "table":
            self._table_line(body)
        elif self._mode == "eager":
            match = _EAGER.match(body.strip())
            if match is None:
                self._mode = ""
            else:
                row = Row(label=match[1].decode(), avg_ms=float(match[2]), rank=self._rank)
                self.eager.append(row)

    def _table_line(self, body: bytes) -> None:
        """A row, or a part of one: a label may stand alone before its numbers."""
        if _RULE.fullmatch(body):
            return
        self._cells += body.replace(b"|", b" ").split()
        label, numbers = self._cells[0], self._cells[1:]
        try:
            values = [float(n) for n in numbers]
        except ValueError:
            values = [0.0] * 9
        if len(values) > 4 or (values and not values[0].is_integer()):
            self._mode, self._cells = "", []
        elif len(values) >= 3:
            row = Row(
                label=label.decode(errors="replace"),
                count=int(values[0]),
                total_ms=values[1],
                avg_ms=values[2],
                max_ms=values[3] if len(values) > 3 else None,
                rank=self._rank,
            )
            self.rows.append(row)
            self._cells = []

    def waits(self) -> dict[str, Distribution]:
        """Kernel waits in milliseconds, by kernel."""
        self._sort_waits()
        return _distributions(self._kernels.items())

    def all_waits(self) -> Distribution | None:
        """All kernel waits together."""
        self._sort_waits()
        together = Samples()
        for samples in self._kernels.values():
            samples.pour_into(together)
        return together.distribution()

    def steps(self, rank: int = 0) -> dict[str, Distribution]:
        """The printed decode-timing lines of one rank in milliseconds, by label."""
        return _distributions((k[1], s) for k, s in self._labels.items() if k[0] == rank)


def _distributions(samples: Iterable[tuple[str, Samples]]) -> dict[str, Distribution]:
    found = {name: s.distribution() for name, s in samples}
    return {name: d for name, d in sorted(found.items()) if d is not None}
