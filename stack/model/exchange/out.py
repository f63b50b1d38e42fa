"""Samples in the forms that others read: PyTorch's records, and rows of tables."""

from __future__ import annotations

from typing import Any

from stack.model.exchange.samples import Sample

COLUMNS = (
    "run", "prompt", "output", "output tok/s", "total tok/s", "requests/s", "trials", "lowest",
    "highest", "unit", "machine", "since", "until",
)


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
        "env": {name: plain(value) for name, value in sample.env.items()},
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
            "model": {"name": str(arguments.get("model") or plain(sample.env.get("MODEL", "")))},
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
    value = plain(value)
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def plain(word: str) -> str:
    """A word without this machine's folders: only the last name of an absolute path."""
    return word.rpartition("/")[2] if word.startswith("/") else word
