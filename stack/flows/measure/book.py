"""What one run knows of the ledger: every question that was answered, by whichever session."""

from __future__ import annotations

import itertools
import statistics
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from stack.errors import StateError
from stack.flows.events import Emit, Said
from stack.model.measure.trial import Record, Trial
from stack.store.ledger import Ledger
from stack.store.stamps import now_id

# Somebody ended it, or the kernel did for want of memory, or its machine went away, or it never ran
# what it was meant to: that says nothing about the patch.
NOT_AN_ANSWER = (
    "blocked:interrupted", "blocked:killed", "blocked:wrong_files", "blocked:host_lost",
)
_FIRST_GUESS = 30.0
_LAST = 20


class Book:
    """The trials of a ledger by the question that they answer; sessions of one run share it.

    Every record goes through it, so that each trial is written once. Safe between threads.
    """

    def __init__(self, ledger: Ledger, profile: str, emit: Emit, *, fresh: bool = False) -> None:
        self.ledger = ledger
        self.run = now_id()
        self.done = 0
        self.run_count = 0
        self.planned = 0
        self._lock = threading.Condition()
        self._written: set[str] = set()
        self._asked: set[str] = set()
        self._known: dict[str, tuple[int, Trial]] = {}
        self._numbers = itertools.count()
        self._seconds: list[float] = []
        for trial in ledger.trials(lambda text: emit(Said(text, warning=True))):
            if trial.profile == profile and trial.ran:
                self._seconds.append(trial.seconds)
            if not fresh and trial.outcome not in NOT_AN_ANSWER:
                self._remember(trial)
        self._seconds = self._seconds[-_LAST:]

    def answer(self, key: str) -> Trial | None:
        """The last trial that answers a question."""
        with self._lock:
            held = self._known.get(key)
            return held[1] if held else None

    def trials(self) -> list[Trial]:
        """Every trial that answers a question, in the order in which they were first answered."""
        with self._lock:
            return [trial for _, trial in self._known.values()]

    def forget(self, key: str) -> None:
        """Have a question asked again."""
        with self._lock:
            self._known.pop(key, None)

    def ran_before(self, one: Trial, other: Trial) -> bool:
        """Whether a trial was first answered before another one."""
        with self._lock:
            return self._known[one.key][0] < self._known[other.key][0]

    def append(self, trial: Trial) -> None:
        """Write a trial that was run; `StateError` for one that was written before."""
        with self._lock:
            if trial.id in self._written:
                raise StateError(f"trial {trial.id} was written before, so it is not counted again")
            self._written.add(trial.id)
            self.ledger.append(trial)
            self.run_count += 1
            self._seconds = [*self._seconds[1 - _LAST :], trial.seconds]
            if trial.outcome not in NOT_AN_ANSWER:
                self._remember(trial)

    def record(self, record: Record) -> None:
        """Write what is no trial."""
        with self._lock:
            self.ledger.append(record)

    def count(self) -> None:
        """One question more was asked."""
        with self._lock:
            self.done += 1

    @contextmanager
    def asking(self, name: str) -> Iterator[None]:
        """Nobody else measures what is named while the block runs; whoever wants to, waits."""
        with self._lock:
            while name in self._asked:
                self._lock.wait()
            self._asked.add(name)
        try:
            yield
        finally:
            with self._lock:
                self._asked.discard(name)
                self._lock.notify_all()

    @property
    def each(self) -> float:
        """How long a trial takes, in seconds, as the last ones did."""
        with self._lock:
            return statistics.fmean(self._seconds) if self._seconds else _FIRST_GUESS

    def _remember(self, trial: Trial) -> None:
        held = self._known.get(trial.key)
        self._known[trial.key] = (held[0] if held else next(self._numbers), trial)
