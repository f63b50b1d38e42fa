"""Numbers out of what a bench left: its JSON, its own log line, and whether the two agree."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_TAIL = 4 << 20


class NoFigures(Exception):
    """Why a run that ended well gives no number; `outcome` is the class that it is filed under."""

    def __init__(self, outcome: str, cause: str) -> None:
        super().__init__(cause)
        self.outcome = outcome
        self.cause = cause


def read(result: Path, metric: str) -> float:
    """The number at `metric` (`tokens_per_second`, `runs[0].rate`) of a JSON file.

    Raises `NoFigures` where there is no file, no JSON, no such key, or no finite number above 0.
    """
    value = at(document(result), metric)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise NoFigures("blocked:no_result", f"{result.name} has no number at `{metric}`")
    if not math.isfinite(value) or value <= 0:
        raise NoFigures("quality:nan", f"{result.name}: `{metric}` is {value}")
    return float(value)


def document(result: Path) -> Any:
    """What a result file holds; `NaN` and `Infinity` are read, since Python writes them."""
    try:
        return json.loads(result.read_bytes())
    except FileNotFoundError:
        raise NoFigures("blocked:no_result", f"it ended without writing {result.name}") from None
    except (ValueError, RecursionError) as wrong:
        raise NoFigures("blocked:no_result", f"{result.name} is not JSON: {wrong}") from None


def at(document: Any, path: str) -> Any:
    """The value at a dotted path with `[n]` for lists; None where it leads nowhere."""
    for name, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", path):
        if name and isinstance(document, Mapping):
            document = document.get(name)
        elif index and isinstance(document, list) and int(index) < len(document):
            document = document[int(index)]
        else:
            return None
    return document


def logged(log: Path, pattern: str) -> str:
    """The last text that the one group of `pattern` matches in a log's last 4 MiB, as printed."""
    found = [match[1] for match in re.finditer(pattern.encode(), _tail(log))]
    if not found:
        raise NoFigures("blocked:no_result", f"no line of the log matches {pattern!r}")
    return str(found[-1].decode("ascii", "replace"))


def agree(value: float, printed: str) -> float:
    """The figure that the log prints, which must be `value` to as many digits as it has.

    One part in a thousand is granted for what an engine computes twice. Raises `NoFigures`.
    """
    try:
        shown = float(printed)
    except ValueError:
        raise NoFigures("blocked:no_result", f"the log's figure {printed!r} is no number") from None
    decimals = len(printed.partition(".")[2])
    if not abs(shown - value) <= 0.51 * 10.0**-decimals + 1e-3 * abs(value):
        raise NoFigures(
            "quality:figures_differ", f"the result says {value:g}, the log says {printed}"
        )
    return shown


def last_object(log: Path, field: str) -> Mapping[str, Any]:
    """The last line of a log that is a JSON object with `field`. Raises `NoFigures` without one."""
    for line in reversed(_tail(log).splitlines()):
        start = line.find(b"{")
        if start < 0:
            continue
        try:
            document = json.loads(line[start:])
        except (ValueError, RecursionError):
            continue
        if isinstance(document, dict) and at(document, field) is not None:
            return document
    raise NoFigures("blocked:no_result", f"it printed no JSON object with `{field}`")


def _tail(log: Path) -> bytes:
    with open(log, "rb") as file:
        file.seek(0, 2)
        file.seek(max(0, file.tell() - _TAIL))
        return file.read()
