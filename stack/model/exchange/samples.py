"""Trials of one kind as one sample: what `ledger out` hands to others."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from stack.model.measure.trial import Machine, Trial, digest

_EXACT = {
    "tokens_per_second": "total", "total_tokens_per_second": "total",
    "output_tokens_per_second": "output", "requests_per_second": "requests",
}
_LENGTHS = {
    "prompt": ("random-input-len", "input-len"), "output": ("random-output-len", "output-len"),
}
_KNOBS = {"prompt": "INPUT_LEN", "output": "OUTPUT_LEN"}
_TIMED = ("single", "pair")


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """Trials that differ in nothing but time. Rates are medians, tokens/s and requests/s.

    `values` are those of the bench's own metric, one a trial; `tree` maps a line to what ran.
    """

    profile: str
    bench: str
    prefix: str
    trees: Mapping[str, str]
    metric: str
    unit: str
    values: tuple[float, ...]
    total: float | None
    output: float | None
    requests: float | None
    prompt_tokens: int | None
    output_tokens: int | None
    options: Mapping[str, str | bool]
    argv: tuple[str, ...]
    env: Mapping[str, str]
    machine: Mapping[str, Any]
    since: str
    until: str

    @property
    def run(self) -> str:
        return f"{self.bench}: {self.prefix}"

    @property
    def value(self) -> float:
        return statistics.median(self.values)


def samples(trials: Iterable[Trial], machines: Mapping[str, Machine]) -> list[Sample]:
    """Samples of the timed trials that ran, in the order of their first one.

    Warm-ups and gates are left out, and so is what a later record replaced.
    """
    known = list(trials)
    replaced = {trial.replaces for trial in known}
    groups: dict[str, list[Trial]] = {}
    for trial in known:
        if trial.ran and trial.figures and trial.role in _TIMED and trial.id not in replaced:
            key = digest(
                trial.profile, trial.bench, trial.bench_digest, trial.prefix, trial.trees,
                trial.env, trial.machine, trial.cache,
            )
            groups.setdefault(key, []).append(trial)
    return [_sample(group, machines) for group in groups.values()]


def _sample(group: Sequence[Trial], machines: Mapping[str, Machine]) -> Sample:
    first = group[0]
    assert first.figures is not None, "only those with figures"
    values = tuple(trial.figures.value for trial in group if trial.figures)
    rates = {name: _median(group, at) for at, name in enumerate(("requests", "total", "output"))}
    if exact := _EXACT.get(first.figures.metric):
        rates[exact] = statistics.median(values)
    machine = machines.get(first.machine)
    options = read_options(first.argv)
    times = sorted(trial.time for trial in group)
    return Sample(
        profile=first.profile, bench=first.bench, prefix=first.prefix, trees=first.trees,
        metric=first.figures.metric, unit=first.figures.unit, values=values,
        total=rates["total"], output=rates["output"], requests=rates["requests"],
        prompt_tokens=_length("prompt", options, first.env),
        output_tokens=_length("output", options, first.env),
        options=options, argv=first.argv, env=first.env,
        machine=machine.facts if machine else {}, since=times[0], until=times[-1],
    )


def _median(group: Sequence[Trial], at: int) -> float | None:
    """Of the engine's own `Throughput:` lines, the last of each log."""
    found = [
        float(lines[-1][at]) for trial in group if (lines := trial.engine.get("throughput"))
    ]
    return statistics.median(found) if found else None


def _length(
    which: str, options: Mapping[str, str | bool], env: Mapping[str, str]
) -> int | None:
    said = [options.get(name) for name in _LENGTHS[which]] + [env.get(_KNOBS[which])]
    return next((int(one) for one in said if isinstance(one, str) and one.isdigit()), None)


def read_options(argv: Sequence[str]) -> dict[str, str | bool]:
    """The long options of a command line without dashes in front; True for a switch."""
    return dict(_options(argv))


def _options(argv: Sequence[str]) -> Iterator[tuple[str, str | bool]]:
    for at, word in enumerate(argv):
        match = re.fullmatch(r"--([A-Za-z][\w-]*)(?:=(.*))?", word, re.DOTALL)
        if match is None:
            continue
        following = argv[at + 1] if at + 1 < len(argv) else "--"
        value = match[2] if match[2] is not None else following
        yield match[1], True if match[2] is None and value.startswith("--") else value
