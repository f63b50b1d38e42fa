"""The times and ids that records of the ledger get."""

from __future__ import annotations

import os
import secrets
from datetime import UTC, datetime


def now() -> str:
    """The time as records have it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def now_id() -> str:
    """An id that sorts by time and that two runs never share."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{os.getpid()}-{secrets.token_hex(3)}"
