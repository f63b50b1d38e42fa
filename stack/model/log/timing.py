"""Timing tables and kernel waits in a log: decode-timing, moe-kernel-trace, and prose like them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import msgspec

from stack.model.log.samples import Distribution, Samples

_BULK_WAIT = re.compile(rb'-moe-trace device=\S+ kernel="(.*)')
_BULK_LABEL = re.compile(rb"decode-timing rank=(\d{1,6}) label=(\S+) count=\d+ ms=([\d.]+)")
_WAIT = re.compile(rb'([^"]*)" wait_ms=([\d.]+)\s*')
_SUMMARY = re.compile(rb"decode-timing summary rank=(\d{1,6})")
_HEADER = re.compile(rb"\|?\s*label[\s|]+count[\s|]+total[ _]ms[\s|]+avg[ _]ms(?:[\s|]+max[ _]ms)?")
_RULE = re.compile(rb"[\s|:-]+")
_EAGER_HEADER = re.compile(rb"per-layer rank-(\d{1,6}) timings")
_EAGER = re.compile(rb"([\w.]+) ~\s*(\d+(?:\.\d+)?) ms\b")
_PROSE_COUNT = re.compile(rb"\b(\d{1,18}) kernel wait samples")
_PROSE = re.compile(rb"(median|average|mean|p95|max) wait: (\d+(?:\.\d+)?) ms")

_NUMBER = re.compile(r"\d{1,18}(?:\.\d{1,18})?", re.ASCII)
_MOST_WAITS = 300_000
_MOST_ROWS = 10_000
_LONGEST_TABLE = 200
"""Lines of a log, of all processes, after which a table is over at the latest."""

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


class _Table:
    """A table that has begun; in the seed's notes a label may stand alone before its numbers."""

    def __init__(self, *, rank: int, eager: bool = False) -> None:
        self.rank, self.eager = rank, eager
        self.ended = False
        self.left = _LONGEST_TABLE
        self._cells: list[bytes] = []

    def row(self, body: bytes) -> Row | None:
        """The row that this line completes, if it does; `ended` once a line is no part of one."""
        if self.eager:
            match = _EAGER.match(body.strip())
            self.ended = match is None
            if match is None:
                return None
            label = match[1].decode(errors="replace")
            return Row(label=label, avg_ms=float(match[2]), rank=self.rank)
        if _RULE.fullmatch(body):
            return None
        self._cells += body.replace(b"|", b" ").split()
        label, *numbers = (cell.decode(errors="replace") for cell in self._cells or [b""])
        self.ended = len(numbers) > 4 or not label or not all(map(_NUMBER.fullmatch, numbers))
        if self.ended or len(numbers) < 3:
            return None
        self._cells = []
        count, total, average, *rest = numbers
        return Row(
            label=label,
            count=int(count.partition(".")[0]),
            total_ms=float(total),
            avg_ms=float(average),
            max_ms=float(rest[0]) if rest else None,
            rank=self.rank,
        )


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
        self._open: dict[bytes, _Table] = {}

    @property
    def wants_all(self) -> bool:
        """Whether a table is open, so that the next line is needed too."""
        return bool(self._open)

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

    def line(self, process: bytes, body: bytes) -> None:
        """Take one candidate line without its prefix; tables of several processes may be mixed."""
        table = self._open.get(process)
        if match := _SUMMARY.search(body):
            self._open[process] = _Table(rank=int(match[1]))
        elif match := _EAGER_HEADER.search(body):
            self._open[process] = _Table(rank=int(match[1]), eager=True)
        elif _HEADER.search(body):
            self._open[process] = _Table(rank=table.rank if table else 0)
        elif match := _PROSE_COUNT.search(body):
            self.prose = msgspec.structs.replace(self.prose, count=int(match[1]))
        elif match := _PROSE.search(body):
            name = match[1].decode().replace("average", "mean")
            self.prose = msgspec.structs.replace(self.prose, **{name: float(match[2])})
        elif table is not None:
            row = table.row(body)
            if row is not None and len(self.rows) + len(self.eager) < _MOST_ROWS:
                (self.eager if table.eager else self.rows).append(row)
        for owner, started in list(self._open.items()):
            started.left -= 1
            if started.ended or not started.left:
                del self._open[owner]

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
