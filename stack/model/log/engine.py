"""What a vLLM log says about throughput, KV cache, graphs and the compile cache."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from stack.model.log.lines import clean


class Throughput(NamedTuple):
    """A `Throughput:` line: requests/s, all tokens/s, output tokens/s, and where it stands."""

    requests: float
    total: float
    output: float
    line: int


class EngineFacts(msgspec.Struct, kw_only=True):
    """Numbers that the engine logs about itself; None or empty where a log does not say.

    Times are in seconds, memory in GiB, KV cache sizes in tokens. Of several ranks' lines the
    last stands, but the smallest KV cache, which is the one that counts.
    """

    throughput: list[Throughput] = []
    elapsed: float | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    kv_cache_tokens: int | None = None
    kv_cache_gib: float | None = None
    max_concurrency: float | None = None
    model_gib: float | None = None
    load_seconds: float | None = None
    graph_seconds: float | None = None
    graph_gib: float | None = None
    compile_seconds: float | None = None
    init_seconds: float | None = None
    aot: str | None = None
    """`loaded` from the compile cache, `compiled` anew, or None where nothing was compiled."""
    aot_hash: str | None = None
    unknown_env: list[str] = []


_Put = Callable[[EngineFacts, re.Match[bytes], int], None]


def _number(text: bytes) -> float:
    return float(text.replace(b",", b""))


def _throughput(facts: EngineFacts, match: re.Match[bytes], line: int) -> None:
    requests, total, output = (_number(g) for g in match.groups())
    facts.throughput.append(Throughput(requests, total, output, line))


def _value(name: str, kind: type = float) -> _Put:
    def put(facts: EngineFacts, match: re.Match[bytes], _line: int) -> None:
        setattr(facts, name, kind(_number(match[1])))

    return put


def _kv_cache(facts: EngineFacts, match: re.Match[bytes], _line: int) -> None:
    tokens = int(_number(match[1]))
    if facts.kv_cache_tokens is None or tokens < facts.kv_cache_tokens:
        facts.kv_cache_tokens = tokens
        facts.max_concurrency = float(match[2]) if match[2] else facts.max_concurrency


def _kv_memory(facts: EngineFacts, match: re.Match[bytes], _line: int) -> None:
    gib = _number(match[1])
    facts.kv_cache_gib = gib if facts.kv_cache_gib is None else min(gib, facts.kv_cache_gib)


def _graph(facts: EngineFacts, match: re.Match[bytes], _line: int) -> None:
    facts.graph_seconds, facts.graph_gib = float(match[1]), float(match[2])


def _model(facts: EngineFacts, match: re.Match[bytes], _line: int) -> None:
    facts.model_gib, facts.load_seconds = float(match[1]), float(match[2])


def _aot(how: str) -> _Put:
    def put(facts: EngineFacts, match: re.Match[bytes], _line: int) -> None:
        facts.aot = how
        found = re.search(rb"torch_aot_compile/([0-9a-f]{16,})", match[1])
        if found:
            facts.aot_hash = found[1].decode()

    return put


def _unknown_env(facts: EngineFacts, match: re.Match[bytes], _line: int) -> None:
    name = match[1].decode(errors="replace")
    if name not in facts.unknown_env and len(facts.unknown_env) < 1000:
        facts.unknown_env.append(name)


# In these, <n> is a number that is kept, <-n> one that may be negative.
_KV_CACHE = (
    rb"KV cache size: (\d[\d,]{0,19}) tokens"
    rb"(?:, Maximum concurrency for [\d,]+ tokens per request: <n>x)?"
)
_READERS: list[tuple[bytes, _Put]] = [
    (
        rb"Throughput: <n> requests/s, <n> total tokens/s, <n> output tokens/s",
        _throughput,
    ),
    (rb"Total num prompt tokens: +(\d{1,15})", _value("prompt_tokens", int)),
    (rb"Total num output tokens: +(\d{1,15})", _value("output_tokens", int)),
    (_KV_CACHE, _kv_cache),
    (rb"Available KV cache memory: <-n> GiB", _kv_memory),
    (rb"Maximum concurrency for [\d,]+ tokens per request: <n>x", _value("max_concurrency")),
    (rb"Graph capturing finished in <n> secs, took <-n> GiB", _graph),
    (rb"Model loading took <n> GiB(?: memory)? and <n> seconds", _model),
    (rb"Explicitly set \(<-n>/[\d.]+\) GiB for KV cache", _kv_memory),
    (rb"Loading weights took <n> seconds", _value("load_seconds")),
    (rb"Directly load AOT compilation from path (\S+)", _aot("loaded")),
    (rb"saved AOT compiled function to (\S+)", _aot("compiled")),
    (rb"torch\.compile took <n> s in total", _value("compile_seconds")),
    (rb"init engine \(profile, [^)]*\) took <n> s", _value("init_seconds")),
    (rb"Unknown vLLM environment variable detected: (\S+)", _unknown_env),
]  # fmt: skip
PATTERNS = [
    pattern.replace(b"<n>", rb"(\d{1,15}(?:\.\d+)?)").replace(b"<-n>", rb"(-?\d{1,15}(?:\.\d+)?)")
    for pattern, _ in _READERS
]
_COMPILED = [
    (re.compile(pattern), put) for pattern, (_, put) in zip(PATTERNS, _READERS, strict=True)
]


def read_line(facts: EngineFacts, reader: int, number: int, raw: bytes) -> None:
    """Take what `PATTERNS[reader]` says on this line, if it matches."""
    expression, put = _COMPILED[reader]
    match = expression.search(clean(raw).body)
    if match:
        put(facts, match, number)
