"""Evidence as the TOML that people read and review."""

from __future__ import annotations

from typing import Any

import msgspec
import tomlkit

from stack.model.exchange.evidence import Evidence

_TABLES = ("result", "fact")


def dump(evidence: Evidence) -> bytes:
    """The file of an evidence; the same evidence gives the same bytes."""
    said = msgspec.to_builtins(evidence)
    document = tomlkit.document()
    for key, value in said.items():
        if key not in _TABLES:
            document.add(key, value)
    for key in _TABLES:
        if said.get(key):
            entries = tomlkit.aot()
            for entry in said[key]:
                entries.append(_table(entry))
            document.add(key, entries)
    return tomlkit.dumps(document).encode()


def _table(entry: dict[str, Any]) -> tomlkit.items.Table:
    table = tomlkit.table()
    for key, value in entry.items():
        if isinstance(value, dict):
            inline = tomlkit.inline_table()
            inline.update(value)
            table.add(key, inline)
        else:
            table.add(key, list(value) if isinstance(value, tuple) else value)
    return table
