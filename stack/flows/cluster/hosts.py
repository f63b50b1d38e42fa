"""What a pool over a cluster asks of whoever opens its hosts."""

from __future__ import annotations

from typing import Protocol

import msgspec

from stack.flows.events import Emit
from stack.flows.measure.trials import Session


class Away(msgspec.Struct, frozen=True):
    """Why a host takes no part."""

    host: str
    why: str


class Hosts(Protocol):
    """Where sessions come from."""

    def appeared(self) -> list[str]:
        """The hosts that are there now, are not open and were not refused, or came back."""

    def open(self, host: str, emit: Emit) -> Session | Away:
        """Make a host ready for trials; what is the matter where it cannot be."""

    def close(self, host: str, *, unfit: bool) -> None:
        """Let go of a host, for good where it is unfit."""

    def stop(self) -> None:
        """End all that the hosts do for us."""
