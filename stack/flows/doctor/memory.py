"""Whether a checkpoint fits: from what the profile declares, or from the files of the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from stack.flows.doctor.checks import Check
from stack.model.hardware import GIB, Checkpoint, Hardware, kv_bytes

TOKENS = 2048


def check_memory(
    hardware: Hardware, checkpoint: Checkpoint | None, folder: Path | None, memory: float | None
) -> Iterator[Check]:
    """The sum, against `memory` GiB a device (None: unknown, then what the profile declares).

    Each device holds an equal part: (weights + KV cache) / devices <= memory x usable.
    """
    weights, formula, kv, tokens = 0.0, "", 0, checkpoint.tokens if checkpoint else TOKENS
    if folder is not None:
        lacking = _absent_shards(folder)
        shards = sorted(folder.glob("*.safetensors"))
        if lacking or not shards:
            what = f"{len(lacking)} files of its index are not there: {', '.join(lacking[:3])}"
            yield Check(
                what="checkpoint", result="missing",
                text=f"{folder}: {what if lacking else 'holds no *.safetensors'}",
                hint="download the rest of the checkpoint",
            )
            return
        weights = float(sum(path.stat().st_size for path in shards))
        formula = f"the size of {len(shards)} files in {folder}"
        kv = _kv_of_config(folder, tokens)
        yield Check(what="checkpoint", result="ok", text=str(folder))
    elif checkpoint is not None:
        weights, formula = checkpoint.weights, checkpoint.formula
    else:
        return
    if not kv and checkpoint is not None:
        kv = kv_bytes(checkpoint.layers, checkpoint.kv_heads, checkpoint.head_dim, tokens)
    have = memory or hardware.memory
    share = (weights + kv) / hardware.count / GIB
    text = (
        f"weights {weights / 1e9:.1f} GB ({formula}) + KV cache {kv / 1e9:.2f} GB ({tokens} "
        f"tokens) on {hardware.count} = {share:.1f} GiB each"
    )
    if have is None:
        yield Check(what="memory", result="note", text=f"{text}; how much there is, is not known")
        return
    usable = have * hardware.usable
    source = "" if memory else ", as declared"
    text += f", of {usable:.1f} usable ({hardware.usable:g} of {have:.1f} GiB{source})"
    if share > usable:
        yield Check(
            what="memory", result="missing", text=f"{text}: {share - usable:.1f} GiB too much",
            hint="more devices, a smaller checkpoint, or fewer bits",
        )
    else:
        yield Check(what="memory", result="ok", text=f"{text}: {usable - share:.1f} GiB to spare")


def _read(path: Path) -> Mapping[str, Any]:
    try:
        found = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError):
        return {}
    return found if isinstance(found, dict) else {}


def _absent_shards(folder: Path) -> list[str]:
    index = _read(folder / "model.safetensors.index.json").get("weight_map", {})
    names = sorted(set(index.values())) if isinstance(index, dict) else []
    return [name for name in names if not (folder / name).exists()]


def _kv_of_config(folder: Path, tokens: int) -> int:
    """Bytes of the KV cache by `config.json`; 0 where it does not say."""
    config = _read(folder / "config.json")
    try:
        heads = int(config.get("num_key_value_heads") or config["num_attention_heads"])
        size = config.get("head_dim")
        head_dim = int(size or config["hidden_size"] // config["num_attention_heads"])
        return kv_bytes(int(config["num_hidden_layers"]), heads, head_dim, tokens)
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return 0
