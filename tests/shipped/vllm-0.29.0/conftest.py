"""Lets the case modules import their helpers in every import mode of pytest."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "shared")]
