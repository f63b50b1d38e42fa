"""Which host gets which work: caches that are warm first, then the longest, nobody idle for it."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence

import msgspec

MOST_LOSSES = 3
"""Work that took so many hosts with it is given up."""


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What one host does without a break; `cost` is how many trials are expected.

    `host` is where its caches are warm, `machine` (a fingerprint) where its earlier trials were
    measured: nothing else can go on with them. `lost` are the hosts that went while it ran.
    """

    name: int
    cost: float = 1.0
    host: str | None = None
    machine: str | None = None
    lost: tuple[str, ...] = ()


Given = tuple[str, Work]
_Queue = list[tuple[float, int, Work]]


class Scheduler:
    """Hands work to hosts, one at a time each. Every call costs O(log n), whatever it holds.

    Work waits for a host of its machine as long as one is there; its host is only preferred. Of
    what may run anywhere the longest begins first, which bounds the whole at 4/3 of the best
    (Graham 1969, for equal hosts).
    """

    def __init__(self) -> None:
        self.machines: dict[str, str] = {}
        self.running: dict[str, Work] = {}
        self.given_up: list[Work] = []
        self._order = 0
        self._count: dict[str, int] = {}
        self._idle: dict[str, dict[str, None]] = {}
        self._own: dict[str, deque[Work]] = {}
        self._bound: dict[str, _Queue] = {}
        self._anywhere: _Queue = []
        self._laden: dict[str, dict[str, None]] = {}
        self.waiting = 0

    def join(self, host: str, machine: str) -> list[Given]:
        """A host is there; what it gets."""
        self.machines[host] = machine
        self._count[machine] = self._count.get(machine, 0) + 1
        return self._free(host)

    def add(self, works: Sequence[Work]) -> list[Given]:
        """More work, the longest first; what begins at once."""
        longest = sorted(works, key=lambda work: -work.cost)
        given = [one for work in longest for one in self._place(work)]
        for machine in [machine for machine in self._laden if machine in self._idle]:
            while (idle := self._idle.get(machine)) and self._laden.get(machine):
                host = next(iter(idle))
                work = self._next(host, machine)
                assert work is not None, "a neighbour has work"
                given += self._give(host, work)
        return given

    def done(self, host: str) -> list[Given]:
        """A host has ended its work; what it gets next."""
        del self.running[host]
        return self._free(host)

    def lose(self, host: str) -> list[Given]:
        """A host is gone; where its work goes. Work that loses too many goes to `given_up`."""
        machine = self.machines.pop(host)
        self._busy(host, machine)
        homeless = list(self._own.pop(host, ()))
        self._unladen(host, machine)
        running = self.running.pop(host, None)
        self._count[machine] -= 1
        if not self._count[machine]:
            homeless += [work for _, _, work in self._bound.pop(machine, [])]
        self.waiting -= len(homeless)
        if running is not None:
            running = msgspec.structs.replace(running, lost=(*running.lost, host))
            if len(running.lost) >= MOST_LOSSES:
                self.given_up.append(running)
            else:
                homeless.append(running)
        return self.add(homeless)

    def _place(self, work: Work) -> list[Given]:
        host, machine = work.host, work.machine
        if host is not None and host in self.machines:
            home = self.machines[host]
            if host in self._idle.get(home, {}):
                return self._give(host, work)
            self._own.setdefault(host, deque()).append(work)
            self._laden.setdefault(home, {})[host] = None
            self.waiting += 1
            return []
        if machine is not None and self._count.get(machine):
            idle = self._idle.get(machine)
            if idle:
                return self._give(next(iter(idle)), work)
            self._push(self._bound.setdefault(machine, []), work)
            return []
        for idle in self._idle.values():
            return self._give(next(iter(idle)), work)
        self._push(self._anywhere, work)
        return []

    def _free(self, host: str) -> list[Given]:
        machine = self.machines[host]
        work = self._next(host, machine)
        if work is None:
            self._idle.setdefault(machine, {})[host] = None
            return []
        self.running[host] = work
        return [(host, work)]

    def _next(self, host: str, machine: str) -> Work | None:
        """Its own, then its machine's, then anybody's, then what waits for a busy neighbour."""
        own = self._own.get(host)
        if own:
            return self._from(own, host, machine)
        queue = self._bound.get(machine) or self._anywhere
        if queue:
            self.waiting -= 1
            return heapq.heappop(queue)[2]
        neighbour = next(iter(self._laden.get(machine, {})), None)
        if neighbour is None:
            return None
        return self._from(self._own[neighbour], neighbour, machine)

    def _from(self, own: deque[Work], host: str, machine: str) -> Work:
        work = own.popleft()
        self.waiting -= 1
        if not own:
            del self._own[host]
            self._unladen(host, machine)
        return work

    def _unladen(self, host: str, machine: str) -> None:
        laden = self._laden.get(machine, {})
        laden.pop(host, None)
        if not laden:
            self._laden.pop(machine, None)

    def _push(self, queue: _Queue, work: Work) -> None:
        self._order += 1
        self.waiting += 1
        heapq.heappush(queue, (-work.cost, self._order, work))

    def _busy(self, host: str, machine: str) -> None:
        idle = self._idle.get(machine, {})
        idle.pop(host, None)
        if not idle:
            self._idle.pop(machine, None)

    def _give(self, host: str, work: Work) -> list[Given]:
        self._busy(host, self.machines[host])
        self.running[host] = work
        return [(host, work)]
