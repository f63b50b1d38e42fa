"""Samples in the forms that others read: PyTorch's records, LocalMaxxing's payloads, tables."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from stack.model.exchange_samples import Sample

COLUMNS = (
    "run", "prompt", "output", "output tok/s", "total tok/s", "requests/s", "trials", "lowest",
    "highest", "unit", "machine", "since", "until",
)
NOTES = 2000
"""The longest text that LocalMaxxing takes for notes."""


def machine(sample: Sample) -> str:
    """Where it was measured, in words."""
    facts = sample.machine
    cards = ", ".join(facts.get("gpus", ()))
    shown = f"{facts.get('cpu', 'unknown processor')} with {facts.get('cpus', '?')} processors"
    return f"{shown}, {cards}" if cards else shown


def cells(sample: Sample) -> tuple[str, ...]:
    """A row under `COLUMNS`, numbers unrounded."""
    rates = (sample.output, sample.total, sample.requests)
    return (
        sample.run, str(sample.prompt_tokens or ""), str(sample.output_tokens or ""),
        *("" if rate is None else repr(rate) for rate in rates),
        str(len(sample.values)), repr(min(sample.values)), repr(max(sample.values)), sample.unit,
        machine(sample), sample.since, sample.until,
    )


def pytorch_records(sample: Sample) -> list[dict[str, Any]]:
    """One record a metric, as vLLM writes them with SAVE_TO_PYTORCH_BENCHMARK_FORMAT.

    https://github.com/pytorch/pytorch/wiki/How-to-integrate-with-PyTorch-OSS-benchmark-database
    """
    arguments: dict[str, Any] = {
        name.replace("-", "_"): _value(value) for name, value in sample.options.items()
    }
    if sample.prompt_tokens:
        arguments.setdefault("input_len", sample.prompt_tokens)
    if sample.output_tokens:
        arguments.setdefault("output_len", sample.output_tokens)
    arguments.setdefault("tensor_parallel_size", int(sample.env.get("TP", "1")))
    extra = {
        "run": sample.run, "args": arguments, "compilation_config.mode": "",
        "optimization_level": "", "use_compile": "enforce-eager" not in sample.options,
        "trees": dict(sample.trees),
        "env": {name: _plain(value) for name, value in sample.env.items()},
    }
    metrics: dict[str, list[float]] = {sample.metric: list(sample.values)}
    for name, rate in (
        ("tokens_per_second", sample.total), ("output_tokens_per_second", sample.output),
        ("requests_per_second", sample.requests),
    ):
        if rate is not None:
            metrics.setdefault(name, [rate])
    return [
        {
            "benchmark": {"name": "vLLM benchmark", "extra_info": extra},
            "model": {"name": str(arguments.get("model") or _plain(sample.env.get("MODEL", "")))},
            "metric": {
                "name": name, "benchmark_values": values,
                "extra_info": {
                    "unit": sample.unit, "machine": machine(sample), "since": sample.since,
                    "until": sample.until,
                },
            },
        }
        for name, values in metrics.items()
    ]


def _value(value: str | bool) -> str | bool | int | float:
    """An argument as a program would have parsed it, without this machine's folders."""
    if isinstance(value, bool):
        return value
    value = _plain(value)
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


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
            "commandSnippet": shlex.join([_plain(word) for word in sample.argv]),
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


def _plain(word: str) -> str:
    """A word without this machine's folders: only the last name of an absolute path."""
    return word.rpartition("/")[2] if word.startswith("/") else word


def _notes(sample: Sample) -> str:
    trees = ", ".join(f"{line} at tree {tree[:12]}" for line, tree in sample.trees.items())
    return (
        f"{sample.run}; median of {len(sample.values)} fresh processes, {min(sample.values):.6g} "
        f"to {max(sample.values):.6g} {sample.unit}; patched {trees}; {sample.since[:10]}"
    )
