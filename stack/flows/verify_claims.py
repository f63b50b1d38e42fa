"""Whether a verdict bears out what a patch claims."""

from __future__ import annotations

from stack.model.line import Claim
from stack.model.trial import Word


def holds(claim: Claim | None, verdict: Word, *, same_cause: bool = False) -> bool | None:
    """True where the claim holds, False where it does not, None where it was not put to the test.

    Without a claim the patch has to be no worse than the prefix before it; `same_cause` says
    that both sides were blocked for the same reason, which is no worse. What nobody can tell
    apart does not speak against "same", but "faster" has to be shown.
    """
    if verdict in ("BROKEN", "STALLED"):
        return False
    if verdict == "BLOCKED":
        return None if same_cause and claim != "unblocked" else False
    match claim:
        case None:
            return verdict != "SLOWER"
        case "same":
            return verdict in ("SAME", "UNCLEAR", "UNBLOCKED")
        case "faster":
            return verdict in ("FASTER", "UNBLOCKED")
        case "unblocked":
            return verdict == "UNBLOCKED"
