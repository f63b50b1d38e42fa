"""Results out of the JSON of benchmarks: vLLM's three, PyTorch's records, LocalMaxxing's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stack.model.exchange.evidence import Result

_RATES = {
    "output_throughput": "output_rate", "total_token_throughput": "total_rate",
    "tokens_per_second": "total_rate", "requests_per_second": "request_rate",
    "request_throughput": "request_rate", "output_tokens_per_second": "output_rate",
    "total_tokens_per_second": "total_rate", "avg_latency": "latency",
    "median_ttft_ms": "first_token_ms", "tokSOut": "output_rate", "tokSTotal": "total_rate",
    "ttftMs": "first_token_ms",
}
_LENGTHS = {"promptTokens": "prompt", "outputTokens": "output"}
_ARGUMENTS = {"input_len": "prompt", "random_input_len": "prompt", "output_len": "output",
              "random_output_len": "output"}


def results(document: object, name: str) -> list[Result]:
    """The results of a parsed document; `name` is what a run without a name of its own is called.

    Read are vLLM's `bench throughput`, `latency` and `serve`, lists of PyTorch benchmark records,
    LocalMaxxing payloads, and what `scripts/bench_minimax_xpu.py` prints. Empty for other JSON.
    """
    if isinstance(document, list):
        if all(isinstance(one, dict) and "metric" in one for one in document):
            return list(_pytorch(document, name))
        return [result for one in document for result in results(one, name)]
    if not isinstance(document, dict):
        return []
    found = _rates(document)
    outcome = str(document.get("outcome") or "ok")
    if not found and outcome == "ok":
        return []
    return [Result(
        run=_name(document, name), outcome=_class(outcome), cause=document.get("cause"),
        knobs=_knobs(document), note=_note(document), **found, **_lengths(document),
    )]


def _rates(document: Mapping[str, Any]) -> dict[str, Any]:
    """Known figures; the first key of a figure counts."""
    found: dict[str, Any] = {}
    for key, field in _RATES.items():
        value = document.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            found.setdefault(field, float(value))
    return found


def _class(outcome: str) -> str:
    """`blocked` of a wrapper that knows no classes is `blocked:exception`."""
    return {"blocked": "blocked:exception", "stalled": "stalled:no_progress"}.get(outcome, outcome)


def _name(document: Mapping[str, Any], name: str) -> str:
    for key in ("run", "label", "name", "model_id", "hfId"):
        if isinstance(document.get(key), str) and document[key]:
            return str(document[key])
    return name


def _lengths(document: Mapping[str, Any]) -> dict[str, Any]:
    """Tokens of one request, where they are the same for all."""
    found: dict[str, Any] = {}
    for key, field in (("input_lens", "prompt"), ("output_lens", "output")):
        lens = document.get(key)
        if isinstance(lens, list) and lens and all(one == lens[0] for one in lens):
            found[field] = int(lens[0])
    count = document.get("completed")
    for key, field in (("total_input_tokens", "prompt"), ("total_output_tokens", "output")):
        total = document.get(key)
        if isinstance(total, int) and isinstance(count, int) and count and total % count == 0:
            found.setdefault(field, total // count)
    for key, field in _LENGTHS.items():
        if isinstance(document.get(key), int):
            found.setdefault(field, document[key])
    knobs = document.get("knobs")
    if isinstance(knobs, dict):
        for key, field in (("INPUT_LEN", "prompt"), ("OUTPUT_LEN", "output")):
            if str(knobs.get(key, "")).isdigit():
                found.setdefault(field, int(knobs[key]))
    return found


def _knobs(document: Mapping[str, Any]) -> dict[str, str]:
    knobs = document.get("knobs") or document.get("engineFlags")
    if not isinstance(knobs, dict):
        return {}
    return {
        str(key): str(value) for key, value in sorted(knobs.items())
        if value not in (None, False, "") and not isinstance(value, list | dict)
    }


def _note(document: Mapping[str, Any]) -> str | None:
    parts = []
    latencies = document.get("latencies")
    if isinstance(latencies, list):
        parts.append(f"{len(latencies)} runs")
    for key, unit in (("num_requests", "requests"), ("completed", "requests")):
        if isinstance(document.get(key), int):
            parts.append(f"{document[key]} {unit}")
    if isinstance(document.get("notes"), str):
        parts.append(document["notes"])
    return "; ".join(parts) or None


def _pytorch(records: list[dict[str, Any]], name: str) -> Iterator[Result]:
    """Records with one metric each; those of one benchmark end where a metric repeats."""
    found: dict[str, Any] = {}
    last: Mapping[str, Any] = {}
    for record in records:
        metric = record["metric"]
        values = metric.get("benchmark_values") or []
        key = "avg_latency" if metric.get("name") == "latency" else metric.get("name")
        mean = sum(values) / len(values) if values else 0.0
        now = _rates({str(key): mean})
        if now.keys() & found.keys():
            yield _record(found, last, name)
            found = {}
        found |= now
        last = record
    if found:
        yield _record(found, last, name)


def _record(found: dict[str, Any], record: Mapping[str, Any], name: str) -> Result:
    extra = record.get("benchmark", {}).get("extra_info", {})
    said = extra.get("args", {}) if isinstance(extra, dict) else {}
    lengths: dict[str, Any] = {}
    for key, field in _ARGUMENTS.items():
        if isinstance(said.get(key), int):
            lengths.setdefault(field, said[key])
    run = extra.get("run") or record.get("model", {}).get("name") or name
    more = {key: value for key, value in found.items() if value}
    return Result(run=str(run), **lengths, **more)
