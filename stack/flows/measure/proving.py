"""A judgement becomes a record of the ledger, with the trials that it rests on."""

from __future__ import annotations

from typing import Any

import msgspec

from stack.flows.measure.arms import Comparison
from stack.flows.measure.compare import Found
from stack.flows.measure.trials import Session
from stack.model.measure.trial import Trial, VerdictRecord
from stack.model.measure.verdict import Judgement, holds
from stack.store.stamps import now, now_id

_STATISTICS = ("ratio", "low", "high", "level", "pairs", "p", "alpha", "detectable")


class Proved(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict with the trials that it rests on."""

    record: VerdictRecord
    trials: tuple[Trial, ...]


def label(record: VerdictRecord) -> str:
    """A patch as lines about its verdict name it."""
    return record.patch if record.mode == "marginal" else f"{record.patch} ({record.mode})"


def record_of(
    session: Session, asked: Comparison, found: Found, judgement: Judgement
) -> VerdictRecord:
    """A judgement as the ledger keeps it."""
    return VerdictRecord(
        id=now_id(), run=session.run, time=now(), profile=session.ground.profile,
        line=asked.line, patch=asked.member.name, state=asked.member.state,
        outcome=asked.outcome.value, claim=asked.claim, mode=asked.mode, bench=asked.name,
        bench_digest=session.bench_digest(asked.name, asked.bench), before=asked.before.prefix,
        after=asked.after.prefix, trees=asked.after.trees, before_trees=asked.before.trees,
        sources=asked.sources, before_value=found.before_value, after_value=found.after_value,
        unit=asked.bench.unit, machine=session.ground.machine,
        trials=tuple(trial.id for trial in found.trials), **_said(asked, judgement),
    )


def rejudged(first: VerdictRecord, asked: Comparison, judgement: Judgement) -> VerdictRecord:
    """The record that corrects another one."""
    return msgspec.structs.replace(
        first, id=now_id(), time=now(), replaces=first.id, **_said(asked, judgement)
    )


def _said(asked: Comparison, judgement: Judgement) -> dict[str, Any]:
    return {
        "verdict": judgement.verdict,
        "holds": holds(judgement, asked.claim, proof=asked.mode == "default-off"),
        "calibrated": judgement.calibrated, "method": judgement.method, "note": judgement.note,
        "cause": judgement.cause,
        **{name: getattr(judgement, name) for name in _STATISTICS},
    }
