"""Tables in Markdown, for a README or a pull request."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence


def table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: Collection[str] = ()
) -> str:
    """A pipe table with aligned columns; a cell cannot break it, and holds no link and no HTML."""
    cells = [[_cell(text) for text in row] for row in (columns, *rows)]
    widths = [max(3, *(len(row[at]) for row in cells)) for at in range(len(columns))]
    rule = [
        "-" * (width - 1) + ":" if column in right else "-" * width
        for column, width in zip(columns, widths, strict=True)
    ]
    lines = []
    for row in (cells[0], rule, *cells[1:]):
        padded = [
            text.rjust(width) if column in right else text.ljust(width)
            for text, width, column in zip(row, widths, columns, strict=True)
        ]
        lines.append(f"| {' | '.join(padded)} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    plain = " ".join(text.split())
    for character in "\\|<*_`":
        plain = plain.replace(character, "\\" + character)
    plain = re.sub(r"&(?=[#\w])", "&amp;", plain)
    return plain.replace("](", "]\\(")
