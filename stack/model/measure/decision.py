"""Why a patch was promoted or parked: the verdicts behind it, kept beside the line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from stack.model.line.line import Reason
from stack.model.measure.trial import VerdictRecord
from stack.model.measure.verdict import Verdict

DECISION_SCHEMA = 1
Action = Literal["promoted", "parked"]
_AGAINST = (Verdict.SLOWER, Verdict.BROKEN, Verdict.STALLED)
_FOR = (Verdict.FASTER, Verdict.UNBLOCKED)
_MEASURED: dict[Reason, tuple[Verdict, ...]] = {
    "negative": _AGAINST, "neutral": (Verdict.SAME, Verdict.UNCLEAR, Verdict.BLOCKED),
}


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """One promotion or parking. `forced` where no verdict bears it out; `missing` says what did.

    `diff` is the sha256 of the patch's diff, `verdicts` are whole, with the ids of their trials,
    `stale` names those that may not hold any more and why, `machines` holds their fingerprints.
    """

    action: Action
    time: str
    line: str
    diff: str
    reason: Reason | None = None
    note: str | None = None
    forced: bool = False
    missing: str | None = None
    verdicts: tuple[VerdictRecord, ...] = ()
    stale: Mapping[str, str] = {}
    machines: Mapping[str, Mapping[str, Any]] = {}


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """All decisions about one patch, oldest first: the file `evidence/PATCH.json` of a line."""

    schema: int = DECISION_SCHEMA
    patch: str
    decisions: tuple[Decision, ...] = ()


def renamed(data: bytes, name: str) -> bytes:
    """The same evidence of a patch that has another name now."""
    found = msgspec.json.decode(data, type=Evidence)
    return written(msgspec.structs.replace(found, patch=name))


def written(evidence: Evidence) -> bytes:
    """Evidence as its file holds it."""
    return msgspec.json.format(msgspec.json.encode(evidence)) + b"\n"


def missing(
    action: Action, reason: Reason | None, verdicts: Sequence[VerdictRecord],
    stale: Mapping[str, str],
) -> str | None:
    """What the verdicts do not bear out, or None where they do; a stale one bears out nothing."""
    fresh = [one for one in verdicts if one.id not in stale]
    if action == "parked":
        wanted = _MEASURED.get(reason) if reason else None
        if wanted is None or any(one.verdict in wanted for one in fresh):
            return None
        return f"no verdict that holds is {_either(wanted)}, as `{reason}` means"
    against = [one for one in fresh if one.verdict in _AGAINST or one.holds is False]
    if against:
        return f"{against[0].bench} ({against[0].mode}) is {against[0].verdict}"
    if any(one.verdict in _FOR for one in fresh):
        return None
    return f"no verdict that holds is {_either(_FOR)}"


def _either(verdicts: Sequence[Verdict]) -> str:
    return " or ".join(verdicts)
