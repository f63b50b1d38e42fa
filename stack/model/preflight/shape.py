"""What a checkpoint says of itself: the sizes in `config.json`, and which tensors it has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)\.")
_MTP = re.compile(r"(?:^|[._])(?:mtp|nextn)(?:[._]|\d|$)")
_MODULES = ("num_mtp_modules", "num_nextn_predict_layers", "mtp_num_hidden_layers")
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
_WIDTHS = {"float32": 4, "float": 4}


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """A model's sizes, None where `config.json` does not say.

    `dense` and `expert` are intermediate sizes; `group` and `bits` those of its quantization,
    `width` the bytes of an unquantized number, `longest` the context that it was trained for,
    `modules` how many multi-token-prediction modules it advertises and `advertised` under which
    key, `latent` whether its KV cache is compressed (MLA).
    """

    layers: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    hidden: int | None = None
    dense: int | None = None
    expert: int | None = None
    experts: int | None = None
    group: int | None = None
    bits: int | None = None
    width: int = 2
    longest: int | None = None
    modules: int = 0
    advertised: str = ""
    latent: bool = False


class Tensors(msgspec.Struct, frozen=True, kw_only=True):
    """Which layers have tensors, how many tensors there are, and how many belong to MTP by name."""

    count: int
    layers: frozenset[int]
    mtp: int


def shape(config: Mapping[str, Any]) -> Shape:
    """The sizes of a parsed `config.json`; those of the text model where there are several."""
    text = config.get("text_config")
    said = {**config, **text} if isinstance(text, dict) else dict(config)
    quantized = said.get("quantization_config")
    quant: Mapping[str, Any] = quantized if isinstance(quantized, dict) else {}
    heads, hidden = _int(said, "num_attention_heads"), _int(said, "hidden_size")
    experts = _int(said, *_EXPERTS)
    head_dim = _int(said, "head_dim") or (hidden // heads if hidden and heads else None)
    inner = _int(said, "intermediate_size")
    key = next((key for key in _MODULES if (_int(said, key) or 0) > 0), "")
    if said.get("use_mtp") is False:
        key = ""
    scaled = said.get("rope_scaling") or said.get("rope_parameters", {}).get("factor")
    return Shape(
        layers=_int(said, "num_hidden_layers"), heads=heads,
        kv_heads=_int(said, "num_key_value_heads") or heads, head_dim=head_dim, hidden=hidden,
        dense=None if experts and "moe_intermediate_size" not in said else inner,
        expert=(_int(said, "moe_intermediate_size") or inner) if experts else None,
        experts=experts, group=_int(quant, "group_size"), bits=_int(quant, "bits"),
        width=_WIDTHS.get(str(said.get("dtype") or said.get("torch_dtype")), 2),
        longest=None if scaled else _int(said, "max_position_embeddings"),
        modules=_int(said, key) or 0 if key else 0, advertised=key,
        latent="kv_lora_rank" in said,
    )


def _int(said: Mapping[str, Any], *keys: str) -> int | None:
    for key in keys:
        value = said.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def tensors(names: Iterable[str]) -> Tensors:
    """What the names of a checkpoint's tensors tell."""
    count = mtp = 0
    layers: set[int] = set()
    for name in names:
        count += 1
        mtp += bool(_MTP.search(name))
        if match := _LAYER.search(name):
            layers.add(int(match[1]))
    return Tensors(count=count, layers=frozenset(layers), mtp=mtp)
