"""Triton kernels of raw-u4 routed experts: gate+up+SiLU, then down+route+sum.

A word is one int32 with eight nibbles, a chunk is ``WORDS`` words that share one scale. A program
works on ``PARTS`` groups of ``ROWS`` rows and walks along K by ``BLOCK_C`` chunks, in tensors
``[PARTS * BLOCK_C, WORDS]``, one row of every group at a time: that keeps few values alive, so
that many warps fit. With four words to a lane and 128 words of a group to a warp, nothing moves
between lanes before the final sums. Products are summed in FP32 on the ordinary units; nothing
here is specific to one vendor.
"""

from __future__ import annotations

import triton
import triton.language as tl

from u4moe.triton_rows import add_rows, load_rows, split_words, start, total, zeros


@triton.jit
def _gate_up_load(
    c0,
    x_at,
    x_word,
    w_at,
    s_at,
    row,
    N: tl.constexpr,
    CHUNKS: tl.constexpr,
    CHUNKS_PER_GROUP: tl.constexpr,
    WORDS: tl.constexpr,
    BLOCK_C: tl.constexpr,
    ROWS: tl.constexpr,
    RAGGED: tl.constexpr,
):
    """What the chunks from ``c0`` on need: activations, gate rows, up rows; past K nothing."""
    k_words: tl.constexpr = CHUNKS * WORDS
    k_groups: tl.constexpr = CHUNKS // CHUNKS_PER_GROUP
    chunk = c0 + tl.arange(0, w_at.shape[0]) % BLOCK_C
    live = chunk < CHUNKS
    w_at += c0 * WORDS
    s_at += chunk // CHUNKS_PER_GROUP
    gates, gate_scales = load_rows(w_at, s_at, row, live, N, k_words, k_groups, ROWS, RAGGED)
    w_at += N * k_words
    s_at += N * k_groups
    ups, up_scales = load_rows(w_at, s_at, row, live, N, k_words, k_groups, ROWS, RAGGED)
    x = tl.load(x_at + c0 * (WORDS * 8), (c0 * WORDS + x_word < k_words)[:, None], 0.0)
    return x, gates, gate_scales, ups, up_scales


@triton.jit
def _down_load(
    c0,
    token,
    w_ptr,
    s_ptr,
    ids_ptr,
    route_ptr,
    experts,
    row,
    N: tl.constexpr,
    TOPK: tl.constexpr,
    CHUNKS: tl.constexpr,
    CHUNKS_PER_GROUP: tl.constexpr,
    WORDS: tl.constexpr,
    BLOCK_C: tl.constexpr,
    ROWS: tl.constexpr,
    RAGGED: tl.constexpr,
):
    """What the chunks from ``c0`` on, counted through all slots, need except activations."""
    k_words: tl.constexpr = CHUNKS * WORDS
    k_groups: tl.constexpr = CHUNKS // CHUNKS_PER_GROUP
    flat = c0 + tl.arange(0, row.shape[0]) % BLOCK_C
    pair = token * TOPK + flat // CHUNKS
    chunk = flat % CHUNKS
    expert = tl.load(ids_ptr + pair, flat < TOPK * CHUNKS, -1).to(tl.int64)
    live = (expert >= 0) & (expert < experts)
    wide = tl.where(live, expert, 0) * N + row
    word = chunk[:, None] * WORDS + tl.arange(0, WORDS)[None, :]
    w_at = w_ptr + wide[:, None] * k_words + word
    s_at = s_ptr + wide * k_groups + chunk // CHUNKS_PER_GROUP
    words, scales = load_rows(w_at, s_at, row, live, N, k_words, k_groups, ROWS, RAGGED)
    route = tl.load(route_ptr + pair, live, 0.0).to(tl.float32)
    return words, scales, route, live


@triton.jit
def _act_words(
    c0,
    token,
    act_ptr,
    live,
    TOPK: tl.constexpr,
    CHUNKS: tl.constexpr,
    WORDS: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """The activations of the chunks from ``c0`` on by position in a word, and the start."""
    k_words: tl.constexpr = CHUNKS * WORDS
    flat = c0 + tl.arange(0, live.shape[0]) % BLOCK_C
    pair = token * TOPK + flat // CHUNKS
    word = (flat % CHUNKS)[:, None] * WORDS + tl.arange(0, WORDS)[None, :]
    # A skipped slot was never written: what stands there may be NaN.
    at = act_ptr + pair[:, None] * (k_words * 8) + word
    x0 = tl.load(at, live[:, None], 0.0)
    x1 = tl.load(at + k_words, live[:, None], 0.0)
    x2 = tl.load(at + 2 * k_words, live[:, None], 0.0)
    x3 = tl.load(at + 3 * k_words, live[:, None], 0.0)
    x4 = tl.load(at + 4 * k_words, live[:, None], 0.0)
    x5 = tl.load(at + 5 * k_words, live[:, None], 0.0)
    x6 = tl.load(at + 6 * k_words, live[:, None], 0.0)
    x7 = tl.load(at + 7 * k_words, live[:, None], 0.0)
    return x0, x1, x2, x3, x4, x5, x6, x7, start(x0, x1, x2, x3, x4, x5, x6, x7)


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

    gates = zeros(ROWS, PARTS * BLOCK_C, WORDS // LANE_WORDS)
    ups = zeros(ROWS, PARTS * BLOCK_C, WORDS // LANE_WORDS)
    ahead = _gate_up_load(
        0, x_at, x_word, w_at, s_at, row, N, CHUNKS, CHUNKS_PER_GROUP, WORDS,
        BLOCK_C, ROWS, ragged,
    )  # fmt: skip
    if UNROLL:
        for c0 in tl.static_range(0, CHUNKS, BLOCK_C):
            now = ahead
            if c0 + BLOCK_C < CHUNKS:
                ahead = _gate_up_load(
                    c0 + BLOCK_C, x_at, x_word, w_at, s_at, row, N, CHUNKS, CHUNKS_PER_GROUP, WORDS,
                    BLOCK_C, ROWS, ragged,
                )  # fmt: skip
            x = split_words(now[0], WORDS, LANE_WORDS)
            gates = add_rows(gates, now[1], now[2], 1.0, x, powers, LANE_WORDS)
            ups = add_rows(ups, now[3], now[4], 1.0, x, powers, LANE_WORDS)
    else:
        for c0 in tl.range(0, CHUNKS, BLOCK_C):
            now = ahead
            ahead = _gate_up_load(
                c0 + BLOCK_C, x_at, x_word, w_at, s_at, row, N, CHUNKS, CHUNKS_PER_GROUP, WORDS,
                BLOCK_C, ROWS, ragged,
            )  # fmt: skip
            x = split_words(now[0], WORDS, LANE_WORDS)
            gates = add_rows(gates, now[1], now[2], 1.0, x, powers, LANE_WORDS)
            ups = add_rows(ups, now[3], now[4], 1.0, x, powers, LANE_WORDS)

    first = (tl.program_id(0) * PARTS + tl.arange(0, PARTS)) * ROWS
    for r in tl.static_range(ROWS):
        g = total(gates[r], PARTS)
        u = total(ups[r], PARTS)
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
    sums = zeros(ROWS, PARTS * BLOCK_C, WORDS // LANE_WORDS)
    ahead = _down_load(
        0, token, w_ptr, s_ptr, ids_ptr, route_ptr, experts, row, N, TOPK,
        CHUNKS, CHUNKS_PER_GROUP, WORDS, BLOCK_C, ROWS, ragged,
    )  # fmt: skip
    if UNROLL:
        for c0 in tl.static_range(0, TOPK * CHUNKS, BLOCK_C):
            now = ahead
            if c0 + BLOCK_C < TOPK * CHUNKS:
                ahead = _down_load(
                    c0 + BLOCK_C, token, w_ptr, s_ptr, ids_ptr, route_ptr, experts, row, N, TOPK,
                    CHUNKS, CHUNKS_PER_GROUP, WORDS, BLOCK_C, ROWS, ragged,
                )  # fmt: skip
            x = _act_words(c0, token, act_ptr, now[3], TOPK, CHUNKS, WORDS, BLOCK_C)
            sums = add_rows(sums, now[0], now[1], now[2], x, powers, LANE_WORDS)
    else:
        for c0 in tl.range(0, TOPK * CHUNKS, BLOCK_C):
            now = ahead
            ahead = _down_load(
                c0 + BLOCK_C, token, w_ptr, s_ptr, ids_ptr, route_ptr, experts, row, N, TOPK,
                CHUNKS, CHUNKS_PER_GROUP, WORDS, BLOCK_C, ROWS, ragged,
            )  # fmt: skip
            x = _act_words(c0, token, act_ptr, now[3], TOPK, CHUNKS, WORDS, BLOCK_C)
            sums = add_rows(sums, now[0], now[1], now[2], x, powers, LANE_WORDS)

    first = (tl.program_id(0) * PARTS + tl.arange(0, PARTS)) * ROWS
    for r in tl.static_range(ROWS):
        out = total(sums[r], PARTS)
        out_row = first + r
        tl.store(out_ptr + token * N + out_row, out.to(out_ptr.dtype.element_ty), out_row < N)
