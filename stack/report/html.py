"""One page that holds everything a report says, and that needs nothing but itself."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from stack.model.line.line import Member, Pin
from stack.model.measure.ladder import Cumulative
from stack.model.measure.trial import Machine, Trial, VerdictRecord
from stack.report import svg

MODES = ("marginal", "cumulative", "leave-one-out", "default-off")


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of a diff of one kind: `head`, `hunk`, `added`, `removed` or `same`."""

    kind: str
    text: str


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """What a patch did to one bench, and what the line did up to it; `minimum` is a fraction.

    `stale` says why the verdict may not hold any more.
    """

    record: VerdictRecord
    cumulative: Cumulative | None
    minimum: float
    stale: str | None = None


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A patch in one bench: the last verdict of each mode, and the product up to it."""

    patch: str
    bench: str
    modes: Mapping[str, Effect]
    product: Cumulative | None


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """A patch at another revision: a letter, what it means, and what is the matter."""

    letter: str
    outcome: str
    why: str


class Matrix(msgspec.Struct, frozen=True, kw_only=True):
    """What a rebase of a line would meet: `rows` has a cell a revision for each patch."""

    line: str
    revisions: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    notes: tuple[str, ...] = ()


class Rung(msgspec.Struct, frozen=True, kw_only=True):
    """A patch in its place: what the series says, its message, its diff, its effects."""

    member: Member
    subject: str
    author: str
    body: str
    trailers: tuple[tuple[str, str], ...]
    diff: tuple[Piece, ...]
    effects: tuple[Effect, ...]


class Ladder(msgspec.Struct, frozen=True, kw_only=True):
    """A line, from its pin up."""

    line: str
    pin: Pin
    rungs: tuple[Rung, ...]


class Outcomes(msgspec.Struct, frozen=True, kw_only=True):
    """How often trials ended in one class, and the last of them."""

    outcome: str
    count: int
    last: Trial


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """What the last import made of one file."""

    file: str
    upstream: str
    result: str
    patches: tuple[str, ...]
    reason: str


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """All that the page shows; `verdicts` is the whole history, `trials` those of the last."""

    profile: str
    ladders: tuple[Ladder, ...]
    matrices: tuple[Matrix, ...] = ()
    verdicts: tuple[VerdictRecord, ...]
    trials: tuple[Trial, ...]
    outcomes: tuple[Outcomes, ...]
    machines: tuple[Machine, ...]
    inputs: tuple[Taken, ...] = ()

    @property
    def days(self) -> list[str]:
        """The first and the last day of the history, or the only one."""
        days = sorted({record.time[:10] for record in self.verdicts})
        return list(dict.fromkeys([days[0], days[-1]])) if days else []


def render(page: Page) -> str:
    """The page as text. It names no other address, and its policy lets it load nothing."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )
    environment.filters |= {"percent": percent, "number": number}
    script = environment.get_template("page.js").render()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    rungs = [rung for ladder in page.ladders for rung in ladder.rungs]
    effects = [effect for rung in rungs for effect in rung.effects]
    shown = [one for effect in effects for one in (effect.record, effect.cumulative) if one]
    bounds = [bound for one in shown for bound in (one.low, one.high)]
    scale = svg.span([one.ratio for one in shown], bounds)
    return environment.get_template("page.html.j2").render(
        page=page, svg=svg, digest=digest, scale=scale, edge=math.exp(scale),
        histories=_histories(page.verdicts), counts=_counts(effects), facts=_facts,
        effects=_rows(rungs), modes=MODES,
    )


def percent(ratio: float | None) -> str:
    """A ratio as a change, `+2.1 %`; a minus sign is one, so that columns line up."""
    if ratio is None:
        return "-"
    text = f"{(ratio - 1) * 100:+.1f} %"
    return text.replace("-", "\N{MINUS SIGN}")


def number(value: float | None) -> str:
    """A measured value to four digits and more before the point."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"


def _rows(rungs: Iterable[Rung]) -> list[Row]:
    """The effects with a row for each patch and bench, and the modes beside each other."""
    found = []
    for rung in rungs:
        benches = dict.fromkeys(effect.record.bench for effect in rung.effects)
        for bench in benches:
            modes: dict[str, Effect] = {
                one.record.mode: one for one in rung.effects if one.record.bench == bench
            }
            marginal = modes.get(MODES[0])
            found.append(Row(
                patch=rung.member.name, bench=bench, modes=modes,
                product=marginal.cumulative if marginal else None,
            ))
    return found


def _histories(verdicts: Iterable[VerdictRecord]) -> list[svg.History]:
    by_bench: dict[str, list[VerdictRecord]] = {}
    for record in verdicts:
        by_bench.setdefault(record.bench, []).append(record)
    found = (svg.history(bench, records) for bench, records in by_bench.items())
    return [one for one in found if one is not None]


def _counts(effects: Iterable[Effect]) -> Mapping[str, int]:
    counts: dict[str, int] = {}
    for effect in effects:
        counts[effect.record.verdict] = counts.get(effect.record.verdict, 0) + 1
    return counts


def _facts(facts: Mapping[str, Any], above: str = "") -> Iterable[tuple[str, str]]:
    """A fingerprint's facts as names and texts, nested ones under `outer.inner`."""
    for name, value in facts.items():
        if isinstance(value, Mapping):
            yield from _facts(value, f"{above}{name}.")
        elif isinstance(value, list | tuple):
            yield f"{above}{name}", ", ".join(map(str, value)) or "-"
        else:
            yield f"{above}{name}", "-" if value is None else str(value)
