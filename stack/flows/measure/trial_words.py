"""Trials in the words of a progress line."""

from __future__ import annotations

from stack.model.measure.trial import Role, Trial


def spoken(role: Role, pair: int | None) -> str:
    """What a trial is for."""
    return f"pair {pair}" if role == "pair" else role


def shown(trial: Trial) -> str:
    """What a trial gave: its figure, its tokens, or how it ended."""
    if trial.figures:
        return f"{trial.figures.value:.4g} {trial.figures.unit}"
    if trial.tokens:
        return f"tokens {trial.tokens[:12]}"
    return f"{trial.outcome}: {trial.cause}" if trial.cause else trial.outcome


def clock(seconds: float) -> str:
    """A duration, in minutes where it is long."""
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
