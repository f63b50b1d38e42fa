"""What was found in a log, as values that travel as JSON."""

from __future__ import annotations

import msgspec


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A signature that was seen: its first text, the first and last line, how often.

    `count` starts again when the log shows progress after a stall.
    """

    signature: str
    outcome: str = msgspec.field(name="class")
    text: str
    line: int
    last: int
    count: int
    hint: str = ""
    wrapper: bool = False
    priority: int = 50
    min_count: int = 1


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended: its outcome class, the innermost cause, the line where that stands.

    `findings` holds everything else that was seen, in the order of the log.
    """

    outcome: str = msgspec.field(name="class")
    cause: str | None = None
    line: int | None = None
    hint: str | None = None
    signature: str | None = None
    lines: int = 0
    findings: tuple[Finding, ...] = ()
