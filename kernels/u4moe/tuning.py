"""Which tile each Triton kernel uses, by shape: one table, filled by the autotune script."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tile:
    """A program's work: ``parts`` groups of ``rows`` rows, ``words`` int32 along K at a time.

    An unrolled walk along K compiles for longer and needs fewer registers.
    """

    rows: int
    parts: int
    words: int
    unroll: bool


@dataclass(frozen=True)
class Choice:
    """The two kernels' tiles for one shape."""

    gate_up: Tile
    down: Tile


DEFAULT = Choice(Tile(2, 2, 128, False), Tile(4, 2, 256, False))

# (hidden, intermediate) -> most tokens -> tiles. Measured on an H200.
TABLE: dict[tuple[int, int], dict[int, Choice]] = {
    (3072, 1536): {
        1: Choice(Tile(2, 8, 128, True), Tile(4, 2, 256, True)),
        2: Choice(Tile(2, 2, 128, True), Tile(4, 2, 256, True)),
        4: Choice(Tile(2, 2, 128, True), Tile(4, 2, 256, True)),
    },
    (3072, 384): {
        1: Choice(Tile(2, 2, 128, False), Tile(4, 2, 256, True)),
        2: Choice(Tile(2, 8, 128, True), Tile(4, 2, 128, True)),
        4: Choice(Tile(2, 8, 128, True), Tile(8, 4, 128, True)),
    },
}


def choose(hidden: int, inter: int, tokens: int) -> Choice:
    """Tiles for ``tokens`` tokens of an ``[H, I]`` layer: the table's, else the default."""
    rows = TABLE.get((hidden, inter), {})
    for most in sorted(rows):
        if tokens <= most:
            return rows[most]
    return rows[max(rows)] if rows else DEFAULT
