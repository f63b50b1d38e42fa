"""What a flow says while it works; the console decides whether and how it is shown."""

from __future__ import annotations

from collections.abc import Callable

import msgspec


class Said(msgspec.Struct, frozen=True):
    """A line worth reading: a step that finished, or something done differently than asked."""

    text: str
    warning: bool = False


class Progress(msgspec.Struct, frozen=True):
    """Where a long step stands. `done` and `total` count the same thing; None when unknown."""

    label: str
    done: float | None = None
    total: float | None = None
    detail: str = ""


Event = Said | Progress
Emit = Callable[[Event], None]
