"""Tables in CSV, for a spreadsheet that must not take a name for a formula."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """CSV with a line of names; a text that begins like a formula gets an apostrophe before it.

    Numbers, also those that are texts already, stay numbers (OWASP, CSV injection).
    """
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(cell) for cell in row] for row in rows)
    return sink.getvalue()


def _cell(cell: object) -> object:
    if not isinstance(cell, str) or cell[:1] not in ("=", "+", "-", "@", "\t", "\r"):
        return cell
    try:
        float(cell)
    except ValueError:
        return cell if cell == "-" else f"'{cell}"
    return cell
