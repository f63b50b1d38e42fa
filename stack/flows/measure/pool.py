"""Runs tasks on sessions: all on the one of this machine, or side by side on hosts of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec

from stack.flows.measure.book import Book
from stack.flows.measure.trials import Session

T = TypeVar("T")


class Task(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """Work that needs a session.

    Tasks of one `unit` run one after another on one host, on the same one as far as may be;
    `machine` is where, by its fingerprint's number, and `cost` how many trials are expected.
    `about` are digests of what its trials run, by which earlier ones are found again.
    """

    at: int
    unit: int
    run: Callable[[Session], T]
    machine: int = 0
    cost: float = 1.0
    about: tuple[str, ...] = ()


class Lost(msgspec.Struct, frozen=True):
    """What a task came to that took host after host with it; `session` was that of the last."""

    hosts: tuple[str, ...]
    session: Session

    @property
    def note(self) -> str:
        return f"its hosts were lost while it ran: {', '.join(self.hosts)}"


class Pool(Protocol):
    """`machines` is on how many machines each comparison is measured, `longest` how many
    comparisons share their trials at most (None: as many as there are), `width` how many tasks can
    run at once, `home` the session of the machine that we are on.
    """

    book: Book
    home: Session
    machines: int
    longest: int | None

    @property
    def width(self) -> int: ...

    def each(self, tasks: Sequence[Task[T]]) -> Iterator[tuple[Task[T], T | Lost]]:
        """The tasks with their results, as they come; an error of one ends all."""


class Here:
    """One session, one task after another."""

    machines = 1
    longest: int | None = None

    def __init__(self, session: Session) -> None:
        self.home, self.book = session, session.book

    @property
    def width(self) -> int:
        return 1

    def each(self, tasks: Sequence[Task[T]]) -> Iterator[tuple[Task[T], T | Lost]]:
        for task in tasks:
            yield task, task.run(self.home)


def pieces(groups: Sequence[Sequence[int]], longest: int | None) -> list[list[int]]:
    """Groups cut so that none is longer than `longest`; the cuts hang on nothing else."""
    step = longest or max((len(group) for group in groups), default=1)
    return [
        list(group[at : at + step]) for group in groups for at in range(0, len(group), step)
    ]
