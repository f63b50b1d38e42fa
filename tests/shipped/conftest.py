"""Lets case modules, inside an engine's Python, import the helpers of their line."""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
if line := os.environ.get("STACK_LINE"):
    sys.path[:0] = [str(HERE / line.replace("/", "-")), str(HERE / "shared")]
