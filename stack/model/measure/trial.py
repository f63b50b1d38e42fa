"""What the ledger holds: trials, verdicts and the machines they were measured on."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from stack.model.measure.verdict import Verdict

LEDGER_SCHEMA = 1
Side = Literal["before", "after", "upstream"]
Role = Literal["gate", "warm-up", "single", "pair"]
Mode = Literal["marginal", "cumulative", "leave-one-out", "default-off", "screen"]
"""What stands on the two sides; `default-off` is marginal with the patch's switches left alone,
`screen` the same layers with other knobs."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The measured value in the bench's unit, and the same one as the engine's log prints it."""

    metric: str
    unit: str
    value: float
    logged: float | None = None


class Trial(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="trial"):
    """One fresh process run once. `seconds` is wall time, `log` a path below `.stack/`.

    `processor_seconds` counts the process and all its children.

    `key` is the question that the trial answers (layers, environment, bench text, machine, role,
    place), so that the same question finds it again. `outcome` is `ok` or a class such as
    `blocked:native_crash`, `cause` the innermost error of the log, at line `cause_line`. `trees`
    maps a line to the tree that ran, `proved` the files whose sha256 was checked from inside, and
    `loaded` those that the engine was then seen to import; so many `processes` reported theirs.
    `engine` is what its log says of itself, `load` the machine's load average before. `host` is
    the host of a cluster that ran it. `replaces` names a corrected record.
    """

    schema: int = LEDGER_SCHEMA
    id: str
    key: str
    run: str
    time: str
    profile: str
    bench: str
    bench_digest: str
    prefix: str
    trees: Mapping[str, str]
    side: Side
    role: Role
    pair: int | None = None
    place: int = 0
    env: Mapping[str, str]
    argv: tuple[str, ...]
    cache: str
    cold: bool
    machine: str
    outcome: str
    cause: str | None = None
    cause_line: int | None = None
    hint: str | None = None
    figures: Figures | None = None
    tokens: str | None = None
    proved: int = 0
    loaded: tuple[str, ...] = ()
    processes: int = 0
    exit_code: int
    timed_out: bool = False
    stalled: bool = False
    survivors: int = 0
    seconds: float
    processor_seconds: float = 0.0
    max_rss_kib: int = 0
    load: float | None = None
    engine: Mapping[str, Any] = {}
    log: str
    host: str | None = None
    replaces: str | None = None

    @property
    def ran(self) -> bool:
        return self.outcome == "ok"


class VerdictRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="verdict"):
    """What a comparison came to. `ratio` is after to before, above 1 better in the bench's sense.

    Statistics as in `Judgement`; `trees` and `before_trees` map a line to the tree that ran with
    the patch and on the other side, `sources` to a digest of its patches. `holds` is None where the
    claim was not put to the test. `trials` are the ids of the trials that the verdict rests on,
    `replaces` the verdict that this one corrects.
    """

    schema: int = LEDGER_SCHEMA
    id: str
    run: str
    time: str
    profile: str
    line: str
    patch: str
    state: str
    outcome: str
    claim: str | None
    mode: Mode
    bench: str
    bench_digest: str
    verdict: Verdict
    holds: bool | None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    level: float | None = None
    pairs: int = 0
    p: float | None = None
    alpha: float | None = None
    detectable: float | None = None
    calibrated: bool = False
    method: str
    before: str
    after: str
    trees: Mapping[str, str] = {}
    before_trees: Mapping[str, str] = {}
    sources: Mapping[str, str] = {}
    before_value: float | None = None
    after_value: float | None = None
    unit: str
    note: str
    cause: str | None = None
    trials: tuple[str, ...]
    machine: str
    replaces: str | None = None


class Machine(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="machine"):
    """A machine's fingerprint: what can change a measured value; `id` is a digest of `facts`."""

    schema: int = LEDGER_SCHEMA
    id: str
    time: str
    facts: Mapping[str, Any]


class Calibration(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="calibration"):
    """The log ratios of A/A pairs of one bench on one machine: the noise with nothing changed.

    `sd` is that of a pair. It holds for one fingerprint and one text of the bench. `trials` has two
    a pair.
    """

    schema: int = LEDGER_SCHEMA
    id: str
    run: str
    time: str
    profile: str
    bench: str
    bench_digest: str
    machine: str
    prefix: str
    trees: Mapping[str, str]
    ratios: tuple[float, ...]
    sd: float
    value: float
    unit: str
    trials: tuple[str, ...]


Record = Trial | VerdictRecord | Machine | Calibration


def digest(*parts: object) -> str:
    """A short sha256 over values that JSON can hold; mappings count in any order."""
    data = msgspec.json.encode(parts, order="sorted")
    return hashlib.sha256(data).hexdigest()[:16]
