"""A sample as a LocalMaxxing payload."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from stack.model.exchange.out import plain
from stack.model.exchange.samples import Sample

NOTES = 2000
"""The longest text that the site takes for notes."""


def localmaxxing(
    sample: Sample, *, model: str, quantization: str, memory: float | None, version: str | None
) -> dict[str, Any] | None:
    """The body of one POST to /api/benchmarks; None for a sample without output rate.

    The site asks for an output rate and one figure more. `memory` is that of each device in GiB,
    where the fingerprint does not say.
    """
    if sample.output is None or sample.total is None:
        return None
    told = {
        "hfId": model, "quantization": quantization, "engineName": "vllm",
        "engineVersion": version, "hardware": _hardware(sample, memory),
        "tokSOut": sample.output, "tokSTotal": sample.total,
        "promptTokens": sample.prompt_tokens, "outputTokens": sample.output_tokens,
        "contextLength": _number(sample, "max-model-len", "MAX_MODEL_LEN"),
        "batchSize": _number(sample, "max-num-seqs", "MAX_NUM_SEQS"),
        "engineFlags": {
            "commandSnippet": shlex.join([plain(word) for word in sample.argv]),
            "tensorParallel": _number(sample, "tensor-parallel-size", "TP") or 1,
        },
        "notes": _notes(sample)[:NOTES],
    }
    return {key: value for key, value in told.items() if value is not None}


def _hardware(sample: Sample, memory: float | None) -> dict[str, Any]:
    facts: Mapping[str, Any] = sample.machine
    said = {
        "cpu": facts.get("cpu"), "ramGb": round(facts.get("memory_mib", 0) / 1024, 1) or None,
        "os": f"linux {facts.get('kernel', '')}".strip(),
    }
    cards: Sequence[str] = facts.get("gpus", ())
    if cards:
        sizes = [float(one) for card in cards for one in re.findall(r"(\d+) MiB", card)]
        total = sum(sizes) / 1024 if sizes else len(cards) * memory if memory else None
        said |= {
            "hwClass": "DISCRETE_GPU", "gpuName": cards[0].partition(",")[0],
            "gpuCount": len(cards), "vramGb": round(total, 1) if total else None,
        }
    else:
        said["hwClass"] = "CPU_ONLY"
    return {key: value for key, value in said.items() if value is not None}


def _number(sample: Sample, option: str, knob: str) -> int | None:
    said = sample.options.get(option) or sample.env.get(knob)
    return int(said) if isinstance(said, str) and said.isdigit() else None


def _notes(sample: Sample) -> str:
    trees = ", ".join(f"{line} at tree {tree[:12]}" for line, tree in sample.trees.items())
    return (
        f"{sample.run}; median of {len(sample.values)} fresh processes, {min(sample.values):.6g} "
        f"to {max(sample.values):.6g} {sample.unit}; patched {trees}; {sample.since[:10]}"
    )
