"""The eight verdicts, what a comparison came to, and whether that bears out a claim."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from stack.model.line.line import Claim
from stack.model.measure.stats import holm

FAMILY_ALPHA = 0.05


class Verdict(StrEnum):
    """What a comparison came to."""

    FASTER = "FASTER"
    SLOWER = "SLOWER"
    SAME = "SAME"  # the interval lies inside the minimum effect
    UNCLEAR = "UNCLEAR"  # cannot be told apart with this noise
    UNBLOCKED = "UNBLOCKED"  # ran only with the patch
    BROKEN = "BROKEN"  # a red gate, or ran only without the patch
    BLOCKED = "BLOCKED"  # ran on neither side
    STALLED = "STALLED"  # hung with the patch


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict; `ratio` is after to before, above 1 better, `low` and `high` bound it at `level`.

    `detectable` is the smallest effect (a fraction) that these pairs find with 80 % power. `p` is
    two-sided, at the look that decided; one patch alone has to stay below `alpha` there.
    `same_cause` says that both sides failed alike. `error` is the standard error of the log ratio.
    """

    verdict: Verdict
    method: str
    note: str
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    level: float | None = None
    pairs: int = 0
    p: float | None = None
    alpha: float | None = None
    detectable: float | None = None
    calibrated: bool = False
    cause: str | None = None
    same_cause: bool = False
    error: float | None = None


def over_patches(judgements: Sequence[Judgement]) -> list[Judgement]:
    """Holm over the patches of one report: an effect that many looks may have made by chance
    becomes UNCLEAR.

    A p-value found by one of several looks counts `FAMILY_ALPHA / alpha` times.
    """
    timed = [(j.p, j.alpha or FAMILY_ALPHA) for j in judgements if j.p is not None]
    adjusted = iter(holm([min(1.0, p * FAMILY_ALPHA / alpha) for p, alpha in timed]))
    result = []
    for judgement in judgements:
        p = next(adjusted) if judgement.p is not None else None
        flagged = judgement.verdict in (Verdict.FASTER, Verdict.SLOWER)
        if p is not None and p > FAMILY_ALPHA and flagged:
            note = f"{judgement.note}; {judgement.verdict} alone, not among {len(timed)} patches"
            judgement = msgspec.structs.replace(judgement, verdict=Verdict.UNCLEAR, note=note)
        result.append(judgement)
    return result


def holds(
    judgement: Judgement, claim: Claim | None, *, proof: bool = False
) -> bool | None:
    """True where a claim holds, False where it does not, None where it was not put to the test.

    Without a claim the patch has to be no worse than the prefix before it. What nobody can tell
    apart does not speak against "same", but "faster" has to be shown. Where "same" needs `proof`,
    what nobody can tell apart was not put to the test.
    """
    verdict = judgement.verdict
    if verdict in (Verdict.BROKEN, Verdict.STALLED):
        return False
    if verdict is Verdict.BLOCKED:
        if not judgement.same_cause or claim == "unblocked":
            return False
        return True if claim is None else None
    match claim:
        case None:
            return verdict is not Verdict.SLOWER
        case "same" if proof and verdict is Verdict.UNCLEAR:
            return None
        case "same":
            return verdict in (Verdict.SAME, Verdict.UNCLEAR, Verdict.UNBLOCKED)
        case "faster":
            return verdict in (Verdict.FASTER, Verdict.UNBLOCKED)
        case "unblocked":
            return verdict is Verdict.UNBLOCKED
