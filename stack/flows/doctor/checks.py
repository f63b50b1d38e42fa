"""One thing that `doctor` looked at."""

from __future__ import annotations

from typing import Literal

import msgspec


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at: `ok`, `note` (works, but know it), `missing` or `refused`."""

    what: str
    result: Literal["ok", "note", "missing", "refused"]
    text: str
    hint: str | None = None
