"""Which of a row of states was the first bad one, when some of them cannot tell."""

from __future__ import annotations

from typing import Literal

Answer = Literal["good", "bad", "cannot tell"]


class Search:
    """Between state 0, which is good, and state `count`, which is bad.

    A state that cannot tell is passed over, and its neighbours are asked.
    """

    def __init__(self, count: int) -> None:
        self.low, self.high = 0, count
        self.skipped: set[int] = set()

    def next(self) -> int | None:
        """The state to ask: the one nearest to the middle; None where none is left."""
        middle = (self.low + self.high) / 2
        left = [at for at in range(self.low + 1, self.high) if at not in self.skipped]
        return min(left, key=lambda at: (abs(at - middle), at), default=None)

    def tell(self, at: int, answer: Answer) -> None:
        """Take the answer of a state."""
        if answer == "good":
            self.low = max(self.low, at)
        elif answer == "bad":
            self.high = min(self.high, at)
        else:
            self.skipped.add(at)

    @property
    def suspects(self) -> range:
        """The states of which the first bad one is one."""
        return range(self.low + 1, self.high + 1)
