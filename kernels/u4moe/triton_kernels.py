"""Triton kernels of raw-u4 routed experts: gate+up+SiLU, then down+route+sum.

A word is one int32 with eight nibbles, a chunk is ``WORDS`` words that share one scale. A program
works on ``PARTS`` groups of ``ROWS`` rows and walks along K by ``BLOCK_C`` chunks, in tensors
``[PARTS * BLOCK_C, WORDS]``, one row of every group at a time: that keeps few values alive, so
that many warps fit. With four words to a lane and 128 words of a group to a warp, nothing moves
between lanes before the final sums. Products are summed in FP32 on the ordinary units; nothing
here is specific to one vendor.

Decoding costs one and-or a weight, a quarter of a shift, and no conversion: a nibble put into
the mantissa of a power of two reads as that power plus the nibble. Of a word ``w``, nibbles 3 and 4
serve as they stand, 0 to 2 after ``w << 11``, 5 to 7 after ``w >> 9``. The powers, and the zero
point 8 with them, are taken off once for all rows: every sum starts at minus the activations
times power + 8. The two large terms come next, so that the sum is small again when the others
are added; what 4096 costs in FP32 is about 2e-5 of the result, a tenth of FP16's own rounding.
"""

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
def _start(x0, x1, x2, x3, x4, x5, x6, x7):
    """What a word's sum starts at, so that the powers and the zero points cancel."""
    s = (P11 + 8.0) * (x0 + x5) + (P12 + 8.0) * x3 + (P15 + 8.0) * (x1 + x6)
    return -(s + (P16 + 8.0) * x4 + (P19 + 8.0) * (x2 + x7))


@triton.jit
def _word_order(x, WORDS: tl.constexpr, LANE_WORDS: tl.constexpr):
    """From the order in which ``_split_words`` loads words to their own, ``[chunks, WORDS]``."""
    block: tl.constexpr = x.shape[0]
    x = tl.trans(tl.reshape(x, (LANE_WORDS, block // LANE_WORDS)))
    return tl.reshape(x, (block // WORDS, WORDS))


@triton.jit
def _split_words(x, WORDS: tl.constexpr, LANE_WORDS: tl.constexpr):
    """Activations ``[words, 8]`` as one FP32 tensor for each position in a word, and the start."""
    block: tl.constexpr = x.shape[0]
    even, odd = tl.split(tl.reshape(x.to(tl.float32), (block, 2, 2, 2)))
    x04, x26 = tl.split(even)
    x15, x37 = tl.split(odd)
    x0, x4 = tl.split(x04)
    x1, x5 = tl.split(x15)
    x2, x6 = tl.split(x26)
    x3, x7 = tl.split(x37)
    start = _start(x0, x1, x2, x3, x4, x5, x6, x7)
    return (
        _word_order(x0, WORDS, LANE_WORDS),
        _word_order(x1, WORDS, LANE_WORDS),
        _word_order(x2, WORDS, LANE_WORDS),
        _word_order(x3, WORDS, LANE_WORDS),
        _word_order(x4, WORDS, LANE_WORDS),
        _word_order(x5, WORDS, LANE_WORDS),
        _word_order(x6, WORDS, LANE_WORDS),
        _word_order(x7, WORDS, LANE_WORDS),
        _word_order(start, WORDS, LANE_WORDS),
    )


@triton.jit
def _add_rows(
    sums,
    w_at,
    s_at,
    row,
    live,
    factor,
    x,
    powers,
    N: tl.constexpr,
    K_WORDS: tl.constexpr,
    K_GROUPS: tl.constexpr,
    LANE_WORDS: tl.constexpr,
    RAGGED: tl.constexpr,
):
    """Adds one step along K to each row's sums ``[chunks, words / LANE_WORDS]``.

    ``w_at`` and ``s_at`` are the places of the first row, ``row`` its number; what is not live
    and, if ``RAGGED``, rows from N on are not read.
    """
    chunks: tl.constexpr = w_at.shape[0]
    lanes: tl.constexpr = w_at.shape[1] // LANE_WORDS
    new = ()
    for r in tl.static_range(len(sums)):
        mask = live
        if RAGGED:
            mask = live & (row + r < N)
        w = tl.load(w_at + r * K_WORDS, mask[:, None], 0)
        s = tl.load(s_at + r * K_GROUPS, mask, 0.0).to(tl.float32) * factor
        dot = tl.reshape(_word_dot(w, x, powers), (chunks, lanes, LANE_WORDS))
        new = new + (sums[r] + s[:, None] * tl.sum(dot, axis=2),)
    return new


@triton.jit
def _zeros(ROWS: tl.constexpr, CHUNKS: tl.constexpr, WORDS: tl.constexpr):
    sums = ()
    for _ in tl.static_range(ROWS):
        sums = sums + (tl.zeros((CHUNKS, WORDS), dtype=tl.float32),)
    return sums


@triton.jit
def _total(partial, PARTS: tl.constexpr):
    """One value for each group of rows from the sums ``[PARTS * chunks, words]`` of a row."""
    chunks: tl.constexpr = partial.shape[0] // PARTS
    return tl.sum(tl.reshape(tl.sum(partial, axis=1), (PARTS, chunks)), axis=1)


@triton.jit
def _gate_up_step(
    gates,
    ups,
    c0,
    x_at,
    x_word,
    w_at,
    s_at,
    row,
    powers,
    N: tl.constexpr,
    CHUNKS: tl.constexpr,
    CHUNKS_PER_GROUP: tl.constexpr,
    WORDS: tl.constexpr,
    LANE_WORDS: tl.constexpr,
    BLOCK_C: tl.constexpr,
    RAGGED: tl.constexpr,
):
    """The chunks from ``c0`` on of all gate and up rows."""
    k_words: tl.constexpr = CHUNKS * WORDS
    k_groups: tl.constexpr = CHUNKS // CHUNKS_PER_GROUP
    chunk = c0 + tl.arange(0, w_at.shape[0]) % BLOCK_C
    live = chunk < CHUNKS
    x = tl.load(x_at + c0 * (WORDS * 8), (c0 * WORDS + x_word < k_words)[:, None], 0.0)
    x = _split_words(x, WORDS, LANE_WORDS)
    w_at += c0 * WORDS
    s_at += chunk // CHUNKS_PER_GROUP
    gates = _add_rows(
        gates, w_at, s_at, row, live, 1.0, x, powers, N, k_words, k_groups, LANE_WORDS, RAGGED
    )
    w_at += N * k_words
    s_at += N * k_groups
    ups = _add_rows(
        ups, w_at, s_at, row, live, 1.0, x, powers, N, k_words, k_groups, LANE_WORDS, RAGGED
    )
    return gates, ups


@triton.jit
def _down_step(
    sums,
    c0,
    token,
    act_ptr,
    w_ptr,
    s_ptr,
    ids_ptr,
    route_ptr,
    experts,
    row,
    powers,
    N: tl.constexpr,
    TOPK: tl.constexpr,
    CHUNKS: tl.constexpr,
    CHUNKS_PER_GROUP: tl.constexpr,
    WORDS: tl.constexpr,
    LANE_WORDS: tl.constexpr,
    BLOCK_C: tl.constexpr,
    RAGGED: tl.constexpr,
):
    """The chunks from ``c0`` on, counted through all slots, of all rows."""
    k_words: tl.constexpr = CHUNKS * WORDS
    k_groups: tl.constexpr = CHUNKS // CHUNKS_PER_GROUP
    flat = c0 + tl.arange(0, row.shape[0]) % BLOCK_C
    pair = token * TOPK + flat // CHUNKS
    chunk = flat % CHUNKS
    expert = tl.load(ids_ptr + pair, flat < TOPK * CHUNKS, -1).to(tl.int64)
    live = (expert >= 0) & (expert < experts)
    route = tl.load(route_ptr + pair, live, 0.0).to(tl.float32)
    word = chunk[:, None] * WORDS + tl.arange(0, WORDS)[None, :]
    # A skipped slot was never written: what stands there may be NaN.
    a_at = act_ptr + pair[:, None] * (k_words * 8) + word
    x0 = tl.load(a_at, live[:, None], 0.0)
    x1 = tl.load(a_at + k_words, live[:, None], 0.0)
    x2 = tl.load(a_at + 2 * k_words, live[:, None], 0.0)
    x3 = tl.load(a_at + 3 * k_words, live[:, None], 0.0)
    x4 = tl.load(a_at + 4 * k_words, live[:, None], 0.0)
    x5 = tl.load(a_at + 5 * k_words, live[:, None], 0.0)
    x6 = tl.load(a_at + 6 * k_words, live[:, None], 0.0)
    x7 = tl.load(a_at + 7 * k_words, live[:, None], 0.0)
    x = (x0, x1, x2, x3, x4, x5, x6, x7, _start(x0, x1, x2, x3, x4, x5, x6, x7))
    wide = tl.where(live, expert, 0) * N + row
    w_at = w_ptr + wide[:, None] * k_words + word
    s_at = s_ptr + wide * k_groups + chunk // CHUNKS_PER_GROUP
    return _add_rows(
        sums, w_at, s_at, row, live, route, x, powers, N, k_words, k_groups, LANE_WORDS, RAGGED
    )


@triton.jit
def gate_up_kernel(
    x_ptr,
    w_ptr,
    s_ptr,
    ids_ptr,
    act_ptr,
    experts,
    p11,
    p12,
    p15,
    p16,
    p19,
    N: tl.constexpr,
    TOPK: tl.constexpr,
    CHUNKS: tl.constexpr,
    CHUNKS_PER_GROUP: tl.constexpr,
    WORDS: tl.constexpr,
    LANE_WORDS: tl.constexpr,
    ROWS: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK_C: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """``act[pair, row] = silu(gate row . x) * (up row . x)`` for one (token, slot) pair.

    ``N`` is the number of gate rows. The down kernel reads the result word by word like the
    weights that it meets, so it is stored by position in the word first, then by word.
    """
    pair = tl.program_id(1).to(tl.int64)
    k_words: tl.constexpr = CHUNKS * WORDS
    k_groups: tl.constexpr = CHUNKS // CHUNKS_PER_GROUP
    expert = tl.load(ids_ptr + pair).to(tl.int64)
    if (expert < 0) | (expert >= experts):
        return
    block: tl.constexpr = PARTS * BLOCK_C * WORDS
    ragged: tl.constexpr = N % (PARTS * ROWS) != 0
    powers = (p11, p12, p15, p16, p19)

    item = tl.arange(0, block)
    x_word = item % (block // LANE_WORDS) * LANE_WORDS + item // (block // LANE_WORDS)
    x_word = x_word % (BLOCK_C * WORDS)
    x_at = x_ptr + pair // TOPK * (k_words * 8) + x_word[:, None] * 8 + tl.arange(0, 8)[None, :]
    flat = tl.arange(0, PARTS * BLOCK_C)
    step = flat % BLOCK_C
    row = (tl.program_id(0) * PARTS + flat // BLOCK_C) * ROWS
    wide = expert * (2 * N) + row
    word = step[:, None] * WORDS + tl.arange(0, WORDS)[None, :]
    w_at = w_ptr + wide[:, None] * k_words + word
    s_at = s_ptr + wide * k_groups

    gates = _zeros(ROWS, PARTS * BLOCK_C, WORDS // LANE_WORDS)
    ups = _zeros(ROWS, PARTS * BLOCK_C, WORDS // LANE_WORDS)
    if UNROLL:
        for c0 in tl.static_range(0, CHUNKS, BLOCK_C):
            gates, ups = _gate_up_step(
                gates, ups, c0, x_at, x_word, w_at, s_at, row, powers, N,
                CHUNKS, CHUNKS_PER_GROUP, WORDS, LANE_WORDS, BLOCK_C, ragged,
            )  # fmt: skip
    else:
        for c0 in tl.range(0, CHUNKS, BLOCK_C):
            gates, ups = _gate_up_step(
                gates, ups, c0, x_at, x_word, w_at, s_at, row, powers, N,
                CHUNKS, CHUNKS_PER_GROUP, WORDS, LANE_WORDS, BLOCK_C, ragged,
            )  # fmt: skip

    first = (tl.program_id(0) * PARTS + tl.arange(0, PARTS)) * ROWS
    for r in tl.static_range(ROWS):
        g = _total(gates[r], PARTS)
        u = _total(ups[r], PARTS)
        act = g / (1.0 + tl.exp(-g)) * u
        out_row = first + r
        place = out_row % 8 * (N // 8) + out_row // 8
        tl.store(act_ptr + pair * N + place, act, out_row < N)


@triton.jit
def down_kernel(
    act_ptr,
    w_ptr,
    s_ptr,
    ids_ptr,
    route_ptr,
    out_ptr,
    experts,
    p11,
    p12,
    p15,
    p16,
    p19,
    N: tl.constexpr,
    TOPK: tl.constexpr,
    CHUNKS: tl.constexpr,
    CHUNKS_PER_GROUP: tl.constexpr,
    WORDS: tl.constexpr,
    LANE_WORDS: tl.constexpr,
    ROWS: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK_C: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """``out[token, row] = sum over slots of route weight * (down row . act)``.

    The slots' reduction dimensions count as one long one, so a program sums over all experts of
    its token and nothing is added across programs.
    """
    token = tl.program_id(1).to(tl.int64)
    row = (tl.program_id(0) * PARTS + tl.arange(0, PARTS * BLOCK_C) // BLOCK_C) * ROWS
    ragged: tl.constexpr = N % (PARTS * ROWS) != 0
    powers = (p11, p12, p15, p16, p19)
    sums = _zeros(ROWS, PARTS * BLOCK_C, WORDS // LANE_WORDS)
    if UNROLL:
        for c0 in tl.static_range(0, TOPK * CHUNKS, BLOCK_C):
            sums = _down_step(
                sums, c0, token, act_ptr, w_ptr, s_ptr, ids_ptr, route_ptr, experts, row, powers,
                N, TOPK, CHUNKS, CHUNKS_PER_GROUP, WORDS, LANE_WORDS, BLOCK_C, ragged,
            )  # fmt: skip
    else:
        for c0 in tl.range(0, TOPK * CHUNKS, BLOCK_C):
            sums = _down_step(
                sums, c0, token, act_ptr, w_ptr, s_ptr, ids_ptr, route_ptr, experts, row, powers,
                N, TOPK, CHUNKS, CHUNKS_PER_GROUP, WORDS, LANE_WORDS, BLOCK_C, ragged,
            )  # fmt: skip

    first = (tl.program_id(0) * PARTS + tl.arange(0, PARTS)) * ROWS
    for r in tl.static_range(ROWS):
        out = _total(sums[r], PARTS)
        out_row = first + r
        tl.store(
            out_ptr + token * N + out_row, out.to(out_ptr.dtype.element_ty), out_row < N
        )
