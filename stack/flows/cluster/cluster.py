"""Tasks side by side on the hosts of a cluster: nothing is lost with a host, and nothing twice."""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeVar

import msgspec

from stack.errors import BenchFailed, StackError
from stack.flows.cluster.hosts import Away, Hosts
from stack.flows.events import Emit, Event, Progress, Said
from stack.flows.measure.executor import HostLost, Stopped
from stack.flows.measure.pool import Lost, Task
from stack.flows.measure.trials import Session
from stack.model.measure.schedule import Scheduler, Work
from stack.model.measure.trial import digest

T = TypeVar("T")
LONGEST = 6
"""So many comparisons that share sides stay together on one host; a longer row of them is cut."""
_LOOK_EVERY = 5.0
_ALONE_FOR = 60.0
_GRACE = 20.0
_STEP = 0.2


class _Told(msgspec.Struct, frozen=True):
    kind: Literal["result", "end", "opened", "event"]
    host: str
    what: Any


class Cluster:
    """A pool whose sessions each stand on a host.

    Work of a unit goes to the host whose caches it warmed, else to its machine; a lost host's work
    goes to another one, which finds in the book what was measured.
    """

    longest: int | None = LONGEST

    def __init__(self, hosts: Hosts, home: Session, emit: Emit, *, machines: int | None) -> None:
        self.hosts, self.home, self.book, self.emit = hosts, home, home.book, emit
        self.sessions: dict[str, Session] = {}
        self.away: dict[str, str] = {}
        self._told: queue.Queue[_Told] = queue.Queue()
        self._threads: dict[str, threading.Thread] = {}
        self._opening: set[str] = set()
        self._last_session: Session | None = None
        self._last: dict[tuple[int, int], str] = {}
        self._scheduler = Scheduler()
        self._looked = 0.0
        self._gather(every=machines != 1)
        there = len(set(self._scheduler.machines.values()))
        self.machines = min(machines or there, there)
        if machines is not None and self.machines < machines:
            self.emit(Said(
                f"{machines} machines were asked for, and the hosts are of {self.machines}",
                warning=True,
            ))
        self._earlier = self._machines_of_earlier()

    @property
    def width(self) -> int:
        """How many hosts there are."""
        return max(1, len(self.sessions))

    def each(self, tasks: Sequence[Task[T]]) -> Iterator[tuple[Task[T], T | Lost]]:
        works: dict[tuple[int, int], list[Task[T]]] = defaultdict(list)
        for task in tasks:
            works[task.unit, task.machine].append(task)
        names = list(works)
        left = {name: list(works[key]) for name, key in enumerate(names)}
        begun = [self._work(name, key, works[key]) for name, key in enumerate(names)]
        self._scheduler = self._fresh(self._scheduler)
        self._give(self._scheduler.add(begun), left)
        open_ = len(tasks)
        alone = time.monotonic()
        try:
            while open_:
                if self.sessions or self._opening:
                    alone = time.monotonic()
                elif time.monotonic() - alone > _ALONE_FOR:
                    raise self._nobody("no host is left")
                self._look()
                for told in self._next():
                    if told.kind == "result":
                        name, task, result = told.what
                        left[name].remove(task)
                        open_ -= 1
                        yield task, result
                    elif told.kind == "end":
                        self._ended(told.host, told.what, left, names)
                        for work in self._scheduler.given_up:
                            assert self._last_session is not None, "one has just ended"
                            for task in left[work.name]:
                                yield task, Lost(work.lost, self._last_session)
                            open_ -= len(left.pop(work.name))
                        self._scheduler.given_up.clear()
                    elif told.kind == "opened":
                        self._give(self._opened(told.host, told.what), left)
        finally:
            if open_:
                self.hosts.stop()
            for thread in list(self._threads.values()):
                thread.join()

    def _work(self, name: int, key: tuple[int, int], tasks: Sequence[Task[T]]) -> Work:
        host = self._last.get(key)
        machine = self._scheduler.machines.get(host or "") or self._chosen(key, tasks)
        return Work(name=name, cost=sum(one.cost for one in tasks), host=host, machine=machine)

    def _chosen(self, key: tuple[int, int], tasks: Sequence[Task[T]]) -> str | None:
        """The machine with the most earlier trials of a unit; of several asked for each another."""
        there = sorted(set(self._scheduler.machines.values()))
        count: Counter[str] = Counter()
        for about in {about for task in tasks for about in task.about}:
            count.update(self._earlier.get(about, {}))
        ranked = sorted(there, key=lambda one: -count[one])
        if not ranked or (self.machines == 1 and not count[ranked[0]]):
            return None
        if self.machines == 1:
            return ranked[0]
        known = sum(1 for one in ranked if count[one])
        rest = ranked[known:]
        turn = key[0] % len(rest) if rest else 0
        return (ranked[:known] + rest[turn:] + rest[:turn])[key[1] % len(ranked)]

    def _machines_of_earlier(self) -> dict[str, Counter[str]]:
        found: dict[str, Counter[str]] = defaultdict(Counter)
        for trial in self.book.trials():
            found[digest(trial.bench, trial.trees)][trial.machine] += 1
        return found

    def _fresh(self, before: Scheduler) -> Scheduler:
        fresh = Scheduler()
        for host, machine in before.machines.items():
            fresh.join(host, machine)
        return fresh

    def _give(
        self, given: Sequence[tuple[str, Work]], left: dict[int, list[Task[T]]]
    ) -> None:
        for host, work in given:
            thread = threading.Thread(
                target=self._do, args=(host, self.sessions[host], work.name, list(left[work.name])),
                name=host, daemon=True,
            )
            self._threads[host] = thread
            thread.start()

    def _do(self, host: str, session: Session, name: int, tasks: Sequence[Task[T]]) -> None:
        wrong: BaseException | None = None
        try:
            for task in tasks:
                result = task.run(session)
                self._told.put(_Told("result", host, (name, task, result)))
        except BaseException as raised:  # noqa: BLE001 - handed to the thread that waits for it
            wrong = raised
        self._told.put(_Told("end", host, wrong))

    def _ended(
        self, host: str, wrong: BaseException | None, left: dict[int, list[Task[T]]],
        names: Sequence[tuple[int, int]],
    ) -> None:
        self._threads.pop(host).join()
        self._last[names[self._scheduler.running[host].name]] = host
        self._last_session = self.sessions[host]
        if wrong is None:
            self._give(self._scheduler.done(host), left)
            return
        if not isinstance(wrong, HostLost):
            raise wrong
        del self.sessions[host]
        self.hosts.close(host, unfit=wrong.unfit)
        self.emit(Said(f"{wrong}; its work is given to another", warning=True))
        if wrong.unfit:
            self.away[host] = wrong.why
        self._looked = 0.0  # a worker that died leaves its host free for another
        self._give(self._scheduler.lose(host), left)

    def _next(self) -> list[_Told]:
        """What was told meanwhile; events are handed on here, by the one thread that may."""
        found = []
        try:
            told = self._told.get(timeout=_STEP)
            while True:
                if told.kind == "event":
                    self._show(told.host, told.what)
                else:
                    found.append(told)
                told = self._told.get_nowait()
        except queue.Empty:
            return found

    def _show(self, host: str, event: Event) -> None:
        if isinstance(event, Said):
            self.emit(event)
            return
        at_work = f"{len(self._threads)} of {len(self.sessions)} hosts at work"
        self.emit(Progress(
            label=at_work, done=self.book.done, total=max(self.book.planned, self.book.done),
            detail=f"{event.label}, {event.detail}",
        ))

    def _look(self) -> None:
        """Open hosts that have come meanwhile, without anybody waiting for them."""
        if time.monotonic() - self._looked < _LOOK_EVERY:
            return
        self._looked = time.monotonic()
        for host in self.hosts.appeared():
            if host not in {*self.sessions, *self._opening}:
                self._opening.add(host)
                threading.Thread(target=self._open, args=(host,), daemon=True).start()

    def _open(self, host: str) -> None:
        def emit(event: Event) -> None:
            self._told.put(_Told("event", host, event))

        found: Session | Away
        try:
            found = self.hosts.open(host, emit)
        except (HostLost, Stopped, StackError) as wrong:
            found = Away(host, str(wrong))
        self._told.put(_Told("opened", host, found))

    def _opened(self, host: str, found: Session | Away) -> list[tuple[str, Work]]:
        self._opening.discard(host)
        if isinstance(found, Away):
            self.away[host] = found.why
            self.emit(Said(f"{host} is set aside: {found.why}", warning=True))
            return []
        self.sessions[host] = found
        self.away.pop(host, None)
        self.emit(Said(f"{host} is ready: machine {found.ground.machine}"))
        return self._scheduler.join(host, found.ground.machine)

    def _gather(self, *, every: bool) -> None:
        """Wait until every host that is there is ready or set aside.

        For a slow one not longer than `_GRACE` behind the first, unless every machine counts.
        """
        self._look()
        ready = None
        try:
            while self._opening:
                if self.sessions and not every:
                    ready = ready or time.monotonic()
                    if time.monotonic() - ready > _GRACE:
                        break
                for told in self._next():
                    self._opened(told.host, told.what)
        except BaseException:
            self.hosts.stop()
            raise
        if not self.sessions:
            raise self._nobody("no host can measure")

    def _nobody(self, what: str) -> BenchFailed:
        why = [f"{host}: {text}" for host, text in sorted(self.away.items())]
        return BenchFailed(
            f"{what}", context=why, hint="the same command goes on from what was measured"
        )
