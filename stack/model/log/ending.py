"""From what was found and how the process ended to one outcome class."""

from __future__ import annotations

import signal as signals
from collections.abc import Sequence
from typing import NamedTuple

from stack.model.log.findings import Diagnosis, Finding

_NATIVE = {
    signals.SIGSEGV,
    signals.SIGABRT,
    signals.SIGBUS,
    signals.SIGILL,
    signals.SIGFPE,
    signals.SIGTRAP,
    signals.SIGSYS,
}
_ASKED = {signals.SIGINT, signals.SIGTERM, signals.SIGHUP, signals.SIGQUIT}


class Ending(NamedTuple):
    """What the harness knows: exit code, signal, whether it gave up, whether it has a result."""

    exit_code: int | None
    signal: int | None
    timed_out: bool
    stalled: bool
    result: bool | None

    @classmethod
    def of(
        cls,
        exit_code: int | None,
        signal: int | None = None,
        *,
        timed_out: bool = False,
        stalled: bool = False,
        result: bool | None = None,
    ) -> Ending:
        """Read a signal out of a negative exit code, or out of a shell's 128 + n."""
        if signal is None and exit_code is not None:
            if exit_code < 0:
                signal = -exit_code
            elif exit_code - 128 in _NATIVE | _ASKED | {signals.SIGKILL}:
                signal = exit_code - 128
        return cls(exit_code, signal, timed_out, stalled, result)


def judge(
    found: Sequence[Finding], ending: Ending, *, result: bool, lines: int, last: str
) -> Diagnosis:
    """Choose the finding that explains the ending best; the rest is kept beside it.

    `result` says whether the log printed one, `last` is the last line of the log.
    """
    has_result = result if ending.result is None else ending.result
    gave_up = ending.timed_out or ending.stalled
    died = ending.signal is not None or ending.exit_code not in (0, None)
    if has_result and not died and not gave_up:
        chosen = _spoiled(found) or Finding(
            signature="result", outcome="ok", text="", line=0, last=0, count=1
        )
    else:
        cause = _cause(found, gave_up=gave_up, known=gave_up or died)
        from_signal = None if gave_up else _by_signal(ending.signal, lines, last)
        if from_signal and (cause is None or (cause.wrapper and not from_signal.wrapper)):
            cause = from_signal
        chosen = cause or _silent(ending, gave_up=gave_up, lines=lines, last=last)
    others = sorted((f for f in found if f is not chosen), key=lambda f: f.line)
    return Diagnosis(
        outcome=chosen.outcome,
        cause=chosen.text or None,
        line=chosen.line or None,
        hint=chosen.hint or None,
        signature=chosen.signature or None,
        lines=lines,
        findings=tuple(others),
    )


def _spoiled(found: Sequence[Finding]) -> Finding | None:
    """A run that printed a result and yet is not what was asked for."""
    for kind in ("quality:", "degraded:"):
        for finding in sorted(found, key=lambda f: f.line):
            if finding.outcome.startswith(kind) and finding.count >= finding.min_count:
                return finding
    return None


def _cause(found: Sequence[Finding], *, gave_up: bool, known: bool) -> Finding | None:
    """The innermost cause: no wrapper before a wrapper, then priority, then the earliest line.

    A stall message counts when it was repeated without progress, or when the harness saw the
    stall itself, or when nothing else in an unfinished log explains its end.
    """
    hard = [f for f in found if f.outcome.startswith(("blocked:", "quality:"))]
    stalls = [f for f in found if f.outcome.startswith("stalled:") and f.count]
    repeated = [f for f in stalls if f.count >= f.min_count or gave_up]
    inner = [f for f in hard if not f.wrapper]
    for group in (inner, repeated, [f for f in hard if f.wrapper], [] if known else stalls):
        if group:
            return min(group, key=lambda f: (f.wrapper, -f.priority, f.line))
    return None


def _by_signal(signal: int | None, lines: int, last: str) -> Finding | None:
    if signal is None:
        return None
    try:
        name = signals.Signals(signal).name
    except ValueError:
        name = f"signal {signal}"
    if signal in _ASKED:
        outcome, hint = "blocked:interrupted", "somebody ended the process"
    elif signal == signals.SIGKILL:
        outcome = "blocked:killed"
        hint = "often the kernel's out-of-memory killer: look at `dmesg` and at the memory limit"
    else:
        outcome = "blocked:native_crash"
        hint = (
            "a crash in native code: run again with PYTHONFAULTHANDLER=1, "
            "VLLM_ENABLE_V1_MULTIPROCESSING=0 and MALLOC_CHECK_=3"
        )
        if not last:
            hint = "it crashed before its first line: compare the libraries' ABI; " + hint
    return Finding(
        signature="signal",
        outcome=outcome,
        text=f"killed by {name}" + (f" after: {last}" if last else ", nothing printed"),
        line=lines,
        last=lines,
        count=1,
        hint=hint,
        wrapper=signal in _ASKED,
    )


def _silent(ending: Ending, *, gave_up: bool, lines: int, last: str) -> Finding:
    """Nothing in the log explains the end: say what is known."""
    if gave_up:
        outcome = "stalled:timeout" if ending.timed_out else "stalled:no_progress"
        hint = "no known cause in the log: look for a worker that waits for another"
    elif ending.exit_code in (0, None):
        outcome, hint = "blocked:no_result", "the log ends without a result"
    else:
        outcome, hint = "blocked:exit", f"it ended with exit code {ending.exit_code}"
    return Finding(
        signature="", outcome=outcome, text=last, line=lines, last=lines, count=1, hint=hint
    )
