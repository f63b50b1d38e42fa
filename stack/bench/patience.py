"""Tells a first trial that compiles in silence from one that hangs: it uses processor time."""

from __future__ import annotations

from collections.abc import Callable

from stack.host import survivors

# A process that waits for another wakes up now and then; one that compiles is never this idle.
_BUSY = 0.05


class Hangs(Exception):
    """Neither a byte of output nor processor time for as long as was allowed."""


class Watch:
    """Called a few times a second with a trial's seconds and log size; raises `Hangs`.

    A warm trial has nothing to compile: for it silence alone is a stall, because engines that
    wait for a dead worker often spin.
    """

    def __init__(self, stall: float, mark: bytes, then: Callable[[float, int], None]) -> None:
        self.stall, self.mark, self.then = stall, mark, then
        self._size = -1
        self._since = 0.0
        self._spent = 0.0
        self._sampled = False

    def __call__(self, seconds: float, size: int) -> None:
        self.then(seconds, size)
        if size != self._size:
            self._size, self._since, self._sampled = size, seconds, False
            return
        silent = seconds - self._since
        if not self._sampled and silent > self.stall / 2:
            self._spent, self._sampled = survivors.processor_seconds(self.mark), True
        elif silent > self.stall:
            spent = survivors.processor_seconds(self.mark)
            if spent - self._spent < _BUSY * self.stall / 2:
                raise Hangs
            self._spent, self._since = spent, seconds - self.stall / 2
