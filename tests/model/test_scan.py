"""The block scanner finds what a loop over all lines finds, with the same numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from stack.model.log import scan
from stack.model.log.scan import Needles, Scanner

PATTERNS = [
    rb"Throughput: ([\d.]+) requests/s",
    rb"RuntimeError: cancelled|CancelledError",
    rb"Worker proc \S+ died unexpectedly",
    rb"died unexpectedly, shutting",
    rb"(?i)nan",
    rb"^ab$",
]
PIECES = [
    b"Throughput: 1.0 requests/s", b"RuntimeError: cancelled", b"asyncio.CancelledError",
    b"Worker proc W-0 died unexpectedly, shutting", b"died unexpectedly", b"NaN", b"ab", b"", b" ",
    b"CancelledErroCancelledError", b"INFO 11-30 plain line", b"Worker proc ", b"\r", b"Nan",
]  # fmt: skip
lines = st.lists(st.lists(st.sampled_from(PIECES), max_size=3).map(b"".join), max_size=60)


def by_hand(text: Sequence[bytes]) -> list[tuple[int, bytes, set[int]]]:
    """The oracle: every pattern on every line."""
    compiled = [re.compile(p) for p in PATTERNS]
    return [
        (number, line, hit)
        for number, line in enumerate(text, 1)
        if (hit := {i for i, p in enumerate(compiled) if p.search(line)})
    ]


@given(lines, st.integers(1, 7), st.integers(40, 400))
@settings(deadline=None)
def test_finds_every_line_with_its_number(text: list[bytes], step: int, block: int) -> None:
    blocks = [
        b"".join(line + b"\n" for line in text[i : i + step]) for i in range(0, len(text), step)
    ]
    original = scan.BLOCK
    scan.BLOCK = block
    try:
        scanner = Scanner(Needles(PATTERNS))
        found = list(scanner.scan(blocks))
    finally:
        scan.BLOCK = original
    expected = by_hand(text)
    seen = {c.number: c for c in found}
    for number, line, patterns in expected:
        assert seen[number].line == line
        assert patterns <= seen[number].patterns
    assert scanner.lines == len(text)
    assert scanner.last == next((t.rstrip() for t in reversed(text) if t.strip()), b"")


def test_searches_chosen_by_a_long_sample_find_the_same() -> None:
    noise = b"INFO 11-30 07:00:00 [core.py:1] died of boredom, CancelledEr Throughput \n" * 9000
    text = noise + b"x\n".join(p + b"\n" for p in PIECES[:6]) + noise
    expected = [e for e in by_hand(text.split(b"\n")) if e[2] - {5}]
    found = list(Scanner(Needles(PATTERNS[:5])).scan([text]))
    assert {number for number, _, _ in expected if number} <= {c.number for c in found}
    assert len(found) <= len(PIECES)


def test_follow_yields_every_line() -> None:
    scanner = Scanner(Needles([rb"Traceback"]))
    numbers = []
    for candidate in scanner.scan([b"a\nTraceback\nb\nc\nd\nTraceback\n", b"e\n"]):
        numbers.append(candidate.number)
        scanner.follow = candidate.line in (b"Traceback", b"b")
    assert numbers == [2, 3, 4, 6, 7]
    assert scanner.lines == 7
