"""Triton kernels of raw-u4 routed experts: gate+up+SiLU, then down+route+sum.

Both walk the reduction dimension in tiles ``[chunks, rows, words]``: a word is one int32 with
eight nibbles, a chunk is ``WORDS`` words that share one scale. Products are summed in FP32 on
the ordinary units; nothing here is specific to one vendor.

Decoding costs half a shift and one and-or a weight, and no conversion: a nibble put into the
highest mantissa bits of the float 16.0 reads as ``16 + n``, one put four bits lower into 256.0
as ``256 + n``. Two neighbours in a word share a shift. The offsets, and the zero point 8 with
them, are taken off once for all rows: every sum starts at ``-(264 * even + 24 * odd)``, the sums
of the activations at even and at odd positions.
"""

from __future__ import annotations

import triton
import triton.language as tl

EVEN_OFFSET = tl.constexpr(256.0 + 8.0)
ODD_OFFSET = tl.constexpr(16.0 + 8.0)


@triton.jit
def _even(bits, one):
    """Float ``256 + n`` from the nibble at bits 15 to 18; ``one`` is the float 256.0."""
    return ((bits & 0x00078000) | one).to(tl.float32, bitcast=True)


@triton.jit
def _odd(bits, one):
    """Float ``16 + n`` from the nibble at bits 19 to 22; ``one`` is the float 16.0."""
    return ((bits & 0x00780000) | one).to(tl.float32, bitcast=True)


@triton.jit
def _word_dot(w, even, odd, start, x0, x1, x2, x3, x4, x5, x6, x7):
    """Sum over a word of ``x * (nibble - 8)``; ``start`` carries the offsets."""
    a = w << 15
    b = w << 7
    c = w >> 1
    d = w >> 9
    s = start + x0 * _even(a, even)
    s += x1 * _odd(a, odd)
    s += x2 * _even(b, even)
    s += x3 * _odd(b, odd)
    s += x4 * _even(c, even)
    s += x5 * _odd(c, odd)
    s += x6 * _even(d, even)
    s += x7 * _odd(d, odd)
    return s


@triton.jit
def _lane_sum(dot, LANE_WORDS: tl.constexpr):
    """Adds up neighbouring words, which one lane holds after a 16-byte load."""
    c: tl.constexpr = dot.shape[0]
    n: tl.constexpr = dot.shape[1]
    w: tl.constexpr = dot.shape[2]
    return tl.sum(tl.reshape(dot, (c, n, w // LANE_WORDS, LANE_WORDS)), axis=3)


@triton.jit
def _start(x0, x1, x2, x3, x4, x5, x6, x7):
    """What a word's sum starts at, so that the offsets of its nibbles cancel."""
    return -(EVEN_OFFSET * (x0 + x2 + x4 + x6) + ODD_OFFSET * (x1 + x3 + x5 + x7))


@triton.jit
def _low(pair, dtype: tl.constexpr):
    """The first of two 16-bit floats in an int32."""
    return pair.to(tl.int16).to(dtype, bitcast=True).to(tl.float32)


@triton.jit
def _high(pair, dtype: tl.constexpr):
    """The second of two 16-bit floats in an int32."""
    return (pair >> 16).to(tl.int16).to(dtype, bitcast=True).to(tl.float32)


@triton.jit
def gate_up_kernel(
    x_ptr,
    w_ptr,
    s_ptr,
    ids_ptr,
    act_ptr,
    experts,
    inter,
    even,
    odd,
    X_DTYPE: tl.constexpr,
    TOPK: tl.constexpr,
    CHUNKS: tl.constexpr,
    CHUNKS_PER_GROUP: tl.constexpr,
    WORDS: tl.constexpr,
    LANE_WORDS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """``act[pair, row] = silu(gate row . x) * (up row . x)`` for one (token, slot) pair.

    ``x_ptr`` holds int32 pairs of activations, ``w_ptr`` int32 words. Results are stored in the
    order in which the down kernel reads them: position in the word first, then the word.
    """
    pair = tl.program_id(1)
    expert = tl.load(ids_ptr + pair).to(tl.int64)
    if (expert < 0) | (expert >= experts):
        return
    rows = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    row_mask = rows < inter
    safe = tl.where(row_mask, rows, 0)
    gate_row = expert * 2 * inter + safe
    up_row = gate_row + inter
    x_base = x_ptr + (pair // TOPK).to(tl.int64) * (CHUNKS * WORDS * 4)
    groups: tl.constexpr = CHUNKS // CHUNKS_PER_GROUP
    words: tl.constexpr = CHUNKS * WORDS

    gate = tl.zeros((BLOCK_C, BLOCK_N, WORDS // LANE_WORDS), dtype=tl.float32)
    up = tl.zeros((BLOCK_C, BLOCK_N, WORDS // LANE_WORDS), dtype=tl.float32)
    for c0 in tl.range(0, CHUNKS, BLOCK_C):
        chunk = c0 + tl.arange(0, BLOCK_C)
        live = chunk < CHUNKS
        word = chunk[:, None] * WORDS + tl.arange(0, WORDS)[None, :]
        word_mask = live[:, None] & (word >= 0)
        w_mask = row_mask[None, :, None] & word_mask[:, None, :]
        wg = tl.load(w_ptr + gate_row[None, :, None] * words + word[:, None, :], w_mask, 0)
        wu = tl.load(w_ptr + up_row[None, :, None] * words + word[:, None, :], w_mask, 0)
        group = chunk // CHUNKS_PER_GROUP
        s_mask = row_mask[None, :] & live[:, None]
        sg = tl.load(s_ptr + gate_row[None, :] * groups + group[:, None], s_mask, 0.0)
        su = tl.load(s_ptr + up_row[None, :] * groups + group[:, None], s_mask, 0.0)
        p0 = tl.load(x_base + word * 4, word_mask, 0)
        p1 = tl.load(x_base + word * 4 + 1, word_mask, 0)
        p2 = tl.load(x_base + word * 4 + 2, word_mask, 0)
        p3 = tl.load(x_base + word * 4 + 3, word_mask, 0)
        x0 = _low(p0, X_DTYPE)
        x1 = _high(p0, X_DTYPE)
        x2 = _low(p1, X_DTYPE)
        x3 = _high(p1, X_DTYPE)
        x4 = _low(p2, X_DTYPE)
        x5 = _high(p2, X_DTYPE)
        x6 = _low(p3, X_DTYPE)
        x7 = _high(p3, X_DTYPE)
        start = _start(x0, x1, x2, x3, x4, x5, x6, x7)
        x0 = x0[:, None, :]
        x1 = x1[:, None, :]
        x2 = x2[:, None, :]
        x3 = x3[:, None, :]
        x4 = x4[:, None, :]
        x5 = x5[:, None, :]
        x6 = x6[:, None, :]
        x7 = x7[:, None, :]
        start = start[:, None, :]
        dot = _word_dot(wg, even, odd, start, x0, x1, x2, x3, x4, x5, x6, x7)
        gate += sg.to(tl.float32)[:, :, None] * _lane_sum(dot, LANE_WORDS)
        dot = _word_dot(wu, even, odd, start, x0, x1, x2, x3, x4, x5, x6, x7)
        up += su.to(tl.float32)[:, :, None] * _lane_sum(dot, LANE_WORDS)

    g = tl.sum(tl.sum(gate, axis=2), axis=0)
    u = tl.sum(tl.sum(up, axis=2), axis=0)
    act = g / (1.0 + tl.exp(-g)) * u
    place = (rows % 8) * (inter // 8) + rows // 8
    tl.store(act_ptr + pair.to(tl.int64) * inter + place, act, row_mask)


@triton.jit
def down_kernel(
    act_ptr,
    w_ptr,
    s_ptr,
    ids_ptr,
    route_ptr,
    out_ptr,
    experts,
    hidden,
    even,
    odd,
    TOPK: tl.constexpr,
    CHUNKS: tl.constexpr,
    CHUNKS_PER_GROUP: tl.constexpr,
    WORDS: tl.constexpr,
    LANE_WORDS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """``out[token, row] = sum over slots of route weight * (down row . act)``.

    The slots' reduction dimensions count as one long one, so a program sums over all experts of
    its token and nothing is added across programs.
    """
    token = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    row_mask = rows < hidden
    safe = tl.where(row_mask, rows, 0)
    groups: tl.constexpr = CHUNKS // CHUNKS_PER_GROUP
    words: tl.constexpr = CHUNKS * WORDS
    total: tl.constexpr = TOPK * CHUNKS

    acc = tl.zeros((BLOCK_C, BLOCK_N, WORDS // LANE_WORDS), dtype=tl.float32)
    for c0 in tl.range(0, total, BLOCK_C):
        flat = c0 + tl.arange(0, BLOCK_C)
        slot = flat // CHUNKS
        chunk = flat % CHUNKS
        pair = token * TOPK + slot
        expert = tl.load(ids_ptr + pair, flat < total, -1).to(tl.int64)
        live = (expert >= 0) & (expert < experts)
        expert = tl.where(live, expert, 0)
        route = tl.load(route_ptr + pair, live, 0.0).to(tl.float32)
        word = chunk[:, None] * WORDS + tl.arange(0, WORDS)[None, :]
        word_mask = live[:, None] & (word >= 0)
        row = expert[:, None] * hidden + safe[None, :]
        w_mask = row_mask[None, :, None] & word_mask[:, None, :]
        w = tl.load(w_ptr + row[:, :, None] * words + word[:, None, :], w_mask, 0)
        s_mask = row_mask[None, :] & live[:, None]
        s = tl.load(s_ptr + row * groups + (chunk // CHUNKS_PER_GROUP)[:, None], s_mask, 0.0)
        s = s.to(tl.float32) * route[:, None]
        a_ptr = act_ptr + (pair * (words * 8))[:, None] + word
        x0 = tl.load(a_ptr, word_mask, 0.0)
        x1 = tl.load(a_ptr + words, word_mask, 0.0)
        x2 = tl.load(a_ptr + 2 * words, word_mask, 0.0)
        x3 = tl.load(a_ptr + 3 * words, word_mask, 0.0)
        x4 = tl.load(a_ptr + 4 * words, word_mask, 0.0)
        x5 = tl.load(a_ptr + 5 * words, word_mask, 0.0)
        x6 = tl.load(a_ptr + 6 * words, word_mask, 0.0)
        x7 = tl.load(a_ptr + 7 * words, word_mask, 0.0)
        start = _start(x0, x1, x2, x3, x4, x5, x6, x7)
        dot = _word_dot(
            w,
            even,
            odd,
            start[:, None, :],
            x0[:, None, :],
            x1[:, None, :],
            x2[:, None, :],
            x3[:, None, :],
            x4[:, None, :],
            x5[:, None, :],
            x6[:, None, :],
            x7[:, None, :],
        )
        acc += s[:, :, None] * _lane_sum(dot, LANE_WORDS)

    out = tl.sum(tl.sum(acc, axis=2), axis=0)
    tl.store(out_ptr + token * hidden + rows, out.to(out_ptr.dtype.element_ty), row_mask)
