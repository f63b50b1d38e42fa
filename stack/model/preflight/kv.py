"""How much memory a KV cache takes on one rank, as vLLM counts it."""

from __future__ import annotations

import math

from stack.model.preflight.arguments import Arguments
from stack.model.preflight.shape import Shape

BLOCKS = {"cpu": 128, "xpu": 64, "cuda": 16}
"""Tokens of a block where nobody asks for another size."""
_NARROW = ("fp8", "int8")


def width(shape: Shape, asked: Arguments) -> float:
    """Bytes of one number in the cache: as asked, else as the model computes."""
    if asked.kv_dtype.startswith(_NARROW):
        return 1.0
    dtype = asked.kv_dtype if asked.kv_dtype != "auto" else asked.dtype
    if dtype == "auto":
        return float(shape.width)
    return 4.0 if dtype in ("float32", "float") else 2.0


def bytes_per_rank(shape: Shape, asked: Arguments, tokens: int, block: int) -> float:
    """Bytes for one request of `tokens` tokens on the rank with most layers, of known sizes.

    Blocks x 2 (K and V) x block size x KV heads of a rank (at least one) x head size x width, for
    every layer: `max_memory_usage_bytes` in vLLM's `v1/kv_cache_interface.py`. With decode context
    parallelism a rank holds its part of the tokens.
    """
    blocks = math.ceil(math.ceil(tokens / asked.context) / block)
    return blocks * _block_bytes(shape, asked, block)


def longest_for(shape: Shape, asked: Arguments, room: float, block: int) -> int:
    """How many tokens `room` bytes on each rank hold, in whole blocks."""
    return max(0, int(room // _block_bytes(shape, asked, block))) * block * asked.context


def _block_bytes(shape: Shape, asked: Arguments, block: int) -> float:
    layers = math.ceil((shape.layers or 0) / asked.pipeline)
    heads = max(1, (shape.kv_heads or 0) // asked.tensor)
    return 2 * block * heads * (shape.head_dim or 0) * width(shape, asked) * layers
