"""Measurements made elsewhere: what another lab ran and what it found, beside a line.

They are history to be read. No verdict of ours rests on them, and no trial of ours is among them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec

EVIDENCE_SCHEMA = 1
FOLDER = "evidence"
Rate = Annotated[float, msgspec.Meta(gt=0)]


class Result(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab",
    omit_defaults=True,
):
    """One run of a benchmark: tokens of a request, rates in tokens/s and requests/s, or why not.

    `outcome` is `ok` or a class as `stack diagnose` names it, with its `cause`; a run that ended
    otherwise may have no rate. `verdict` is that lab's own word, `against` the run that it compared
    with, `patches` what was applied, `latency` seconds of one request, `first-token-ms` the median
    time to the first token, `ids` names under which it was published.
    """

    run: str
    prompt: int | None = None
    output: int | None = None
    output_rate: Rate | None = None
    total_rate: Rate | None = None
    request_rate: Rate | None = None
    latency: Rate | None = None
    first_token_ms: Rate | None = None
    outcome: str = "ok"
    cause: str | None = None
    verdict: str | None = None
    against: str | None = None
    patches: tuple[str, ...] = ()
    knobs: Mapping[str, str] = {}
    log: str | None = None
    ids: tuple[str, ...] = ()
    note: str | None = None

    @property
    def measured(self) -> bool:
        rates = (self.output_rate, self.total_rate, self.request_rate, self.latency)
        return any(rate is not None for rate in rates)


class Fact(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab",
    omit_defaults=True,
):
    """A number that is no rate: a difference, a latency of a part, a size."""

    what: str
    value: float
    unit: str = ""
    note: str | None = None


class Evidence(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab",
    omit_defaults=True,
):
    """A file of results: who measured them, where, and of what; `result` in that lab's order.

    `ours` says that these very patches were measured, outside of `stack verify`; else another
    implementation of them, or none.
    """

    schema: int
    by: str
    ours: bool = False
    machine: str | None = None
    model: str | None = None
    engine: str | None = None
    date: str | None = None
    result: tuple[Result, ...] = ()
    fact: tuple[Fact, ...] = ()


def merged(held: Evidence, found: Sequence[Result]) -> tuple[Evidence, tuple[Result, ...]]:
    """`held` with those results that it lacks behind its own, and which those are."""
    known = set(map(_key, held.result))
    fresh = []
    for result in found:
        if _key(result) not in known:
            known.add(_key(result))
            fresh.append(result)
    return msgspec.structs.replace(held, result=(*held.result, *fresh)), tuple(fresh)


def _key(result: Result) -> bytes:
    return msgspec.json.encode(result, order="sorted")
