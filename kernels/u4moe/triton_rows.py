"""Triton: the arithmetic of packed words, and rows of them at one step along K.

Decoding costs one and-or a weight, a quarter of a shift, and no conversion: a nibble put into
the mantissa of a power of two reads as that power plus the nibble. Of a word ``w``, nibbles 3 and 4
serve as they stand, 0 to 2 after ``w << 11``, 5 to 7 after ``w >> 9``. The powers, and the zero
point 8 with them, are taken off once for all rows: every sum starts at minus the activations
times power + 8. The two large terms come next, so that the sum is small again when the others
are added; what 4096 costs in FP32 is about 2e-5 of the result, a tenth of FP16's own rounding.
"""
# ruff: noqa: RUF005 - Triton compiles the sum of two tuples, not a starred one.

from __future__ import annotations

import triton
import triton.language as tl

# Power of two whose mantissa's bits from 11, 12, 15, 16 or 19 on count ones.
P11 = tl.constexpr(4096.0)
P12 = tl.constexpr(2048.0)
P15 = tl.constexpr(256.0)
P16 = tl.constexpr(128.0)
P19 = tl.constexpr(16.0)


@triton.jit
def _float(bits, MASK: tl.constexpr, power):
    """``power + nibble`` from the nibble under the mask; ``power`` is given as its bits."""
    return ((bits & MASK) | power).to(tl.float32, bitcast=True)


@triton.jit
def _word_dot(w, x, powers):
    """Sum over a word of ``x * (nibble - 8)``; ``x[8]`` is what the sum starts at."""
    low = w << 11
    high = w >> 9
    s = x[8] + x[0] * _float(low, 0x00007800, powers[0])
    s += x[5] * _float(high, 0x00007800, powers[0])
    s += x[3] * _float(w, 0x0000F000, powers[1])
    s += x[1] * _float(low, 0x00078000, powers[2])
    s += x[6] * _float(high, 0x00078000, powers[2])
    s += x[4] * _float(w, 0x000F0000, powers[3])
    s += x[2] * _float(low, 0x00780000, powers[4])
    s += x[7] * _float(high, 0x00780000, powers[4])
    return s


@triton.jit
def start(x0, x1, x2, x3, x4, x5, x6, x7):
    """What a word's sum starts at, so that the powers and the zero points cancel."""
    s = (P11 + 8.0) * (x0 + x5) + (P12 + 8.0) * x3 + (P15 + 8.0) * (x1 + x6)
    return -(s + (P16 + 8.0) * x4 + (P19 + 8.0) * (x2 + x7))


@triton.jit
def _word_order(x, WORDS: tl.constexpr, LANE_WORDS: tl.constexpr):
    """From the order in which ``split_words`` loads words to their own, ``[chunks, WORDS]``."""
    block: tl.constexpr = x.shape[0]
    x = tl.trans(tl.reshape(x, (LANE_WORDS, block // LANE_WORDS)))
    return tl.reshape(x, (block // WORDS, WORDS))


@triton.jit
def split_words(x, WALK: tl.constexpr):
    """Activations ``[words, 8]`` as one FP32 tensor for each position in a word, and the start."""
    words: tl.constexpr = WALK.words
    lane_words: tl.constexpr = WALK.lane_words
    even, odd = tl.split(tl.reshape(x.to(tl.float32), (x.shape[0], 2, 2, 2)))
    x04, x26 = tl.split(even)
    x15, x37 = tl.split(odd)
    x0, x4 = tl.split(x04)
    x1, x5 = tl.split(x15)
    x2, x6 = tl.split(x26)
    x3, x7 = tl.split(x37)
    first = start(x0, x1, x2, x3, x4, x5, x6, x7)
    return (
        _word_order(x0, words, lane_words),
        _word_order(x1, words, lane_words),
        _word_order(x2, words, lane_words),
        _word_order(x3, words, lane_words),
        _word_order(x4, words, lane_words),
        _word_order(x5, words, lane_words),
        _word_order(x6, words, lane_words),
        _word_order(x7, words, lane_words),
        _word_order(first, words, lane_words),
    )


@triton.jit
def load_rows(w_at, s_at, row, live, WALK: tl.constexpr):
    """Words ``[step, words]`` and scales ``[step]`` of each row at one step along K.

    ``w_at`` and ``s_at`` are the places of the first row, ``row`` its number; what is not live
    and, if the walk is ragged, rows that are not there are not read.
    """
    rows: tl.constexpr = WALK.rows
    words = ()
    scales = ()
    for r in tl.static_range(rows):
        mask = live
        if WALK.ragged:
            mask = live & (row + r < WALK.n)
        words = words + (tl.load(w_at + r * WALK.k_words, mask[:, None], 0),)
        scales = scales + (tl.load(s_at + r * WALK.k_groups, mask, 0.0),)
    return words, scales


@triton.jit
def add_rows(sums, words, scales, factor, x, powers, WALK: tl.constexpr):
    """Adds one step along K to each row's sums ``[step, words / lane_words]``."""
    lane_words: tl.constexpr = WALK.lane_words
    lanes: tl.constexpr = WALK.words // lane_words
    new = ()
    for r in tl.static_range(len(sums)):
        dot = _word_dot(words[r], x, powers)
        dot = tl.reshape(dot, (dot.shape[0], lanes, lane_words))
        scale = scales[r].to(tl.float32) * factor
        new = new + (sums[r] + scale[:, None] * tl.sum(dot, axis=2),)
    return new


@triton.jit
def zeros(WALK: tl.constexpr):
    """What the rows' sums begin with."""
    rows: tl.constexpr = WALK.rows
    step: tl.constexpr = WALK.step
    lanes: tl.constexpr = WALK.words // WALK.lane_words
    sums = ()
    for _ in tl.static_range(rows):
        sums = sums + (tl.zeros((step, lanes), dtype=tl.float32),)
    return sums


@triton.jit
def total(partial, WALK: tl.constexpr):
    """One value for each group of rows from the sums of a row."""
    parts: tl.constexpr = WALK.parts
    block: tl.constexpr = WALK.block
    return tl.sum(tl.reshape(tl.sum(partial, axis=1), (parts, block)), axis=1)
