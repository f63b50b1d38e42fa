"""What a command line tells vLLM, as far as it decides whether a model can be loaded."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

_UNITS = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class Arguments(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of an engine; None is what vLLM decides by itself.

    `tensor`, `pipeline` and `context` (decode) count ranks, `length` is max-model-len, `batched`
    and `sequences` bound one step, `block` is in tokens, `kv_bytes` a fixed KV cache.
    `speculation` is its method; `unread` are options whose values cannot be read.
    """

    model: str | None = None
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    experts: bool = False
    length: int | None = None
    batched: int | None = None
    sequences: int | None = None
    chunked: bool = True
    block: int | None = None
    kv_bytes: int | None = None
    kv_dtype: str = "auto"
    dtype: str = "auto"
    usable: float | None = None
    speculation: str | None = None
    longer: bool = False
    unread: tuple[str, ...] = ()


def amount(text: str) -> int:
    """An integer as vLLM's human-readable options take it: 1k is 1000, 1K is 1024."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgtKMGT]?)", text.strip())
    if match is None:
        raise ValueError(f"no number: {text}")
    return int(float(match[1]) * {**_UNITS, **_BINARY, "": 1}[match[2]])


def _method(text: str) -> str:
    found = msgspec.json.decode(text.encode(), type=dict[str, Any])
    return str(found.get("method") or ("draft_model" if found.get("model") else ""))


_VALUES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "model": ("model", str),
    "tensor-parallel-size": ("tensor", int), "tp": ("tensor", int),
    "pipeline-parallel-size": ("pipeline", int), "pp": ("pipeline", int),
    "decode-context-parallel-size": ("context", int), "dcp": ("context", int),
    "max-model-len": ("length", amount), "max-num-batched-tokens": ("batched", amount),
    "max-num-seqs": ("sequences", int), "block-size": ("block", int),
    "kv-cache-memory-bytes": ("kv_bytes", amount), "kv-cache-dtype": ("kv_dtype", str),
    "dtype": ("dtype", str), "gpu-memory-utilization": ("usable", float),
    "speculative-config": ("speculation", _method),
}
_SWITCHES: dict[str, tuple[str, bool]] = {
    "enable-expert-parallel": ("experts", True), "no-enable-expert-parallel": ("experts", False),
    "enable-chunked-prefill": ("chunked", True), "no-enable-chunked-prefill": ("chunked", False),
}
_LONGER = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"


def read(words: Sequence[str], env: Mapping[str, str]) -> Arguments:
    """The arguments among the words of a command line; of two equal ones the last holds.

    Words of the form NAME=VALUE count as environment, as in a line for `env`.
    """
    found: dict[str, Any] = {}
    unread: list[str] = []
    named = dict(env)
    for at, word in enumerate(words):
        if not word.startswith("-"):
            if match := re.fullmatch(r"([A-Z_][A-Z0-9_]*)=(.*)", word, re.DOTALL):
                named[match[1]] = match[2]
            continue
        name, equals, value = word.lstrip("-").partition("=")
        name = name.replace("_", "-")
        if name in _SWITCHES:
            field, on = _SWITCHES[name]
            found[field] = on != (value.lower() in ("0", "false"))
        elif name in _VALUES:
            field, convert = _VALUES[name]
            text = value if equals else next(iter(words[at + 1 : at + 2]), "")
            try:
                found[field] = convert(text)
            except (ValueError, msgspec.MsgspecError):
                if text not in ("auto", "-1"):
                    unread.append(f"--{name} {text}".rstrip())
    found["longer"] = named.get(_LONGER, "0") not in ("", "0")
    return Arguments(**found, unread=tuple(unread))
