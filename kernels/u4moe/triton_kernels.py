"""Triton kernels of raw-u4 routed experts: gate+up+SiLU, then down+route+sum.

A program works on groups of rows and walks along K (see ``walk.py``) in tensors
``[parts * block, words]``, one row of every group at a time: that keeps few values alive, so that
many warps fit. With four words to a lane and 128 words of a group to a warp, nothing moves between
lanes before the final sums. Products are summed in FP32 on the ordinary units; nothing here is
specific to one vendor.
"""

from __future__ import annotations

import triton
import triton.language as tl

from u4moe.triton_rows import add_rows, load_rows, split_words, start, total, zeros


@triton.jit
def _gate_up_load(c0, x_at, x_word, w_at, s_at, row, WALK: tl.constexpr):
    """What the chunks from ``c0`` on need: activations, gate rows, up rows; past K nothing."""
    chunk = c0 + tl.arange(0, WALK.step) % WALK.block
    live = chunk < WALK.chunks
    w_at += c0 * WALK.words
    s_at += chunk // WALK.chunks_per_group
    gates, gate_scales = load_rows(w_at, s_at, row, live, WALK)
    w_at += WALK.n * WALK.k_words
    s_at += WALK.n * WALK.k_groups
    ups, up_scales = load_rows(w_at, s_at, row, live, WALK)
    inside = (c0 * WALK.words + x_word < WALK.k_words)[:, None]
    x = tl.load(x_at + c0 * (WALK.words * 8), inside, 0.0)
    return x, gates, gate_scales, ups, up_scales


@triton.jit
def _gate_up_add(gate_sums, up_sums, loaded, powers, WALK: tl.constexpr):
    """Adds one step's chunks to the sums of the gate and of the up rows."""
    x, gates, gate_scales, ups, up_scales = loaded
    x = split_words(x, WALK)
    gate_sums = add_rows(gate_sums, gates, gate_scales, 1.0, x, powers, WALK)
    up_sums = add_rows(up_sums, ups, up_scales, 1.0, x, powers, WALK)
    return gate_sums, up_sums


@triton.jit
def gate_up_kernel(
    x_ptr, w_ptr, s_ptr, ids_ptr, act_ptr, experts, p11, p12, p15, p16, p19, WALK: tl.constexpr
):  # fmt: skip
    """``act[pair, row] = silu(gate row . x) * (up row . x)`` for one (token, slot) pair.

    ``WALK.n`` is the number of gate rows. The down kernel reads the result word by word like the
    weights that it meets, so it is stored by position in the word first, then by word.
    """
    pair = tl.program_id(1).to(tl.int64)
    expert = tl.load(ids_ptr + pair).to(tl.int64)
    if (expert < 0) | (expert >= experts):
        return
    powers = (p11, p12, p15, p16, p19)
    # Triton's loops over constants and its shapes take named ones only.
    rows: tl.constexpr = WALK.rows
    block: tl.constexpr = WALK.block
    end: tl.constexpr = WALK.chunks

    item = tl.arange(0, WALK.step * WALK.words)
    lanes: tl.constexpr = WALK.step * WALK.words // WALK.lane_words
    x_word = item % lanes * WALK.lane_words + item // lanes
    x_word = x_word % (WALK.block * WALK.words)
    x_at = x_ptr + pair // WALK.topk * (WALK.k_words * 8)
    x_at = x_at + x_word[:, None] * 8 + tl.arange(0, 8)[None, :]
    flat = tl.arange(0, WALK.step)
    chunk = flat % WALK.block
    row = (tl.program_id(0) * WALK.parts + flat // WALK.block) * WALK.rows
    wide = expert * (2 * WALK.n) + row
    word = chunk[:, None] * WALK.words + tl.arange(0, WALK.words)[None, :]
    w_at = w_ptr + wide[:, None] * WALK.k_words + word
    s_at = s_ptr + wide * WALK.k_groups

    gates = zeros(WALK)
    ups = zeros(WALK)
    ahead = _gate_up_load(0, x_at, x_word, w_at, s_at, row, WALK)
    if WALK.unroll:
        for c0 in tl.static_range(0, end, block):
            now = ahead
            if c0 + block < end:
                ahead = _gate_up_load(c0 + block, x_at, x_word, w_at, s_at, row, WALK)
            gates, ups = _gate_up_add(gates, ups, now, powers, WALK)
    else:
        for c0 in tl.range(0, end, block):
            now = ahead
            ahead = _gate_up_load(c0 + block, x_at, x_word, w_at, s_at, row, WALK)
            gates, ups = _gate_up_add(gates, ups, now, powers, WALK)

    first = (tl.program_id(0) * WALK.parts + tl.arange(0, WALK.parts)) * WALK.rows
    for r in tl.static_range(rows):
        g = total(gates[r], WALK)
        u = total(ups[r], WALK)
        act = g / (1.0 + tl.exp(-g)) * u
        out_row = first + r
        place = out_row % 8 * (WALK.n // 8) + out_row // 8
        tl.store(act_ptr + pair * WALK.n + place, act, out_row < WALK.n)


@triton.jit
def _down_load(
    c0, token, w_ptr, s_ptr, ids_ptr, route_ptr, experts, row, WALK: tl.constexpr
):  # fmt: skip
    """What the chunks from ``c0`` on, counted through all slots, need except activations."""
    flat = c0 + tl.arange(0, WALK.step) % WALK.block
    pair = token * WALK.topk + flat // WALK.chunks
    chunk = flat % WALK.chunks
    expert = tl.load(ids_ptr + pair, flat < WALK.topk * WALK.chunks, -1).to(tl.int64)
    live = (expert >= 0) & (expert < experts)
    wide = tl.where(live, expert, 0) * WALK.n + row
    word = chunk[:, None] * WALK.words + tl.arange(0, WALK.words)[None, :]
    w_at = w_ptr + wide[:, None] * WALK.k_words + word
    s_at = s_ptr + wide * WALK.k_groups + chunk // WALK.chunks_per_group
    words, scales = load_rows(w_at, s_at, row, live, WALK)
    route = tl.load(route_ptr + pair, live, 0.0).to(tl.float32)
    return words, scales, route, live


@triton.jit
def _act_words(c0, token, act_ptr, live, WALK: tl.constexpr):
    """The activations of the chunks from ``c0`` on by position in a word, and the start."""
    k_words: tl.constexpr = WALK.k_words
    flat = c0 + tl.arange(0, WALK.step) % WALK.block
    pair = token * WALK.topk + flat // WALK.chunks
    word = (flat % WALK.chunks)[:, None] * WALK.words + tl.arange(0, WALK.words)[None, :]
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
def _down_add(c0, token, act_ptr, sums, loaded, powers, WALK: tl.constexpr):
    """Adds one step's chunks, times their slots' route weights, to the rows' sums."""
    words, scales, route, live = loaded
    x = _act_words(c0, token, act_ptr, live, WALK)
    return add_rows(sums, words, scales, route, x, powers, WALK)


@triton.jit
def down_kernel(
    act_ptr, w_ptr, s_ptr, ids_ptr, route_ptr, out_ptr, experts, p11, p12, p15, p16, p19,
    WALK: tl.constexpr,
):  # fmt: skip
    """``out[token, row] = sum over slots of route weight * (down row . act)``.

    The slots' reduction dimensions count as one long one, so a program sums over all experts of
    its token and nothing is added across programs.
    """
    token = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * WALK.parts + tl.arange(0, WALK.step) // WALK.block
    row = row * WALK.rows
    powers = (p11, p12, p15, p16, p19)
    rows: tl.constexpr = WALK.rows
    block: tl.constexpr = WALK.block
    end: tl.constexpr = WALK.topk * WALK.chunks
    sums = zeros(WALK)
    ahead = _down_load(0, token, w_ptr, s_ptr, ids_ptr, route_ptr, experts, row, WALK)
    if WALK.unroll:
        for c0 in tl.static_range(0, end, block):
            now = ahead
            if c0 + block < end:
                ahead = _down_load(
                    c0 + block, token, w_ptr, s_ptr, ids_ptr, route_ptr, experts, row, WALK
                )
            sums = _down_add(c0, token, act_ptr, sums, now, powers, WALK)
    else:
        for c0 in tl.range(0, end, block):
            now = ahead
            ahead = _down_load(
                c0 + block, token, w_ptr, s_ptr, ids_ptr, route_ptr, experts, row, WALK
            )
            sums = _down_add(c0, token, act_ptr, sums, now, powers, WALK)

    first = (tl.program_id(0) * WALK.parts + tl.arange(0, WALK.parts)) * WALK.rows
    for r in tl.static_range(rows):
        out = total(sums[r], WALK)
        out_row = first + r
        place = out_ptr + token * WALK.n + out_row
        tl.store(place, out.to(out_ptr.dtype.element_ty), out_row < WALK.n)
