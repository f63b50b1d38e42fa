"""How a Triton program walks over the rows of a projection and along its K dimension."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from u4moe.layout import NIBBLES_PER_WORD
from u4moe.tuning import Tile

MAX_CHUNK_WORDS = 16
LANE_WORDS = 4
LANES = 32


@dataclass(frozen=True)
class Walk:
    """Sizes that are fixed when a kernel is compiled; it takes them as one constant.

    A word is eight nibbles, a chunk is ``words`` words that share one scale, ``lane_words`` of them
    in one lane. A program has ``parts`` groups of ``rows`` rows and takes ``block`` chunks a step.
    """

    n: int
    topk: int
    chunks: int
    chunks_per_group: int
    words: int
    lane_words: int
    rows: int
    parts: int
    block: int
    unroll: bool

    @property
    def k_words(self) -> int:
        """Words of a row."""
        return self.chunks * self.words

    @property
    def k_groups(self) -> int:
        """Scales of a row."""
        return self.chunks // self.chunks_per_group

    @property
    def step(self) -> int:
        """Chunks of all groups of rows at one step."""
        return self.parts * self.block

    @property
    def ragged(self) -> bool:
        """Whether the last program has rows that are not there."""
        return self.n % (self.parts * self.rows) != 0

    @property
    def warps(self) -> int:
        """As many as give each lane its words of one row at one step."""
        return max(1, self.step * self.words // (LANES * self.lane_words))


@functools.cache
def plan(n: int, k: int, group: int, topk: int, tile: Tile) -> Walk:
    """The walk over ``n`` rows of ``k`` weights, ``group`` to a scale, with a tile of the table."""
    group_words = group // NIBBLES_PER_WORD
    words = min(MAX_CHUNK_WORDS, group_words & -group_words)
    return Walk(
        n=n,
        topk=topk,
        chunks=k // NIBBLES_PER_WORD // words,
        chunks_per_group=group_words // words,
        words=words,
        lane_words=min(LANE_WORDS, words),
        rows=tile.rows,
        parts=tile.parts,
        block=max(1, tile.words // words),
        unroll=tile.unroll,
    )
