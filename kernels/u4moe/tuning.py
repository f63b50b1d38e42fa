"""Which tile each Triton kernel uses, by shape: one table, filled by the autotune script."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tile:
    """A program's work: ``parts`` groups of ``rows`` rows, ``words`` int32 along K at a time."""

    rows: int
    parts: int
    words: int


@dataclass(frozen=True)
class Choice:
    """The two kernels' tiles for one shape."""

    gate_up: Tile
    down: Tile


DEFAULT = Choice(gate_up=Tile(2, 2, 128), down=Tile(4, 2, 256))

# (hidden, intermediate, tokens) -> tiles; tokens are the largest that a row is for.
TABLE: dict[tuple[int, int], dict[int, Choice]] = {
    (3072, 1536): {
        1: Choice(Tile(2, 2, 128), Tile(8, 1, 512)),
        2: Choice(Tile(2, 2, 128), Tile(8, 2, 256)),
        4: Choice(Tile(2, 2, 128), Tile(8, 4, 128)),
    },
    (3072, 384): {
        1: Choice(Tile(4, 2, 256), Tile(4, 2, 256)),
        2: Choice(Tile(2, 2, 128), Tile(8, 2, 256)),
        4: Choice(Tile(4, 4, 128), Tile(4, 2, 128)),
    },
}


def choose(hidden: int, inter: int, tokens: int) -> Choice:
    """Tiles for ``tokens`` tokens of an ``[H, I]`` layer: the table's, else the default."""
    rows = TABLE.get((hidden, inter), {})
    for most in sorted(rows):
        if tokens <= most:
            return rows[most]
    return rows[max(rows)] if rows else DEFAULT
