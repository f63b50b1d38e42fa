"""Which tile each Triton kernel uses, by shape: one table, filled by the autotune script."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tile:
    """Rows and int32 words along K that a program loads at a time, and its warps."""

    rows: int
    words: int
    warps: int


@dataclass(frozen=True)
class Choice:
    """The two kernels' tiles for one shape."""

    gate_up: Tile
    down: Tile


DEFAULT = Choice(gate_up=Tile(4, 128, 1), down=Tile(4, 512, 4))

# (hidden, intermediate, tokens) -> tiles; tokens are the largest that a row is for.
TABLE: dict[tuple[int, int], dict[int, Choice]] = {}


def choose(hidden: int, inter: int, tokens: int) -> Choice:
    """Tiles for ``tokens`` tokens of an ``[H, I]`` layer: the table's, else the default."""
    rows = TABLE.get((hidden, inter), {})
    for most in sorted(rows):
        if tokens <= most:
            return rows[most]
    return rows[max(rows)] if rows else DEFAULT
