"""Edits of `series.toml` and `stack.toml` that keep comments and everything that is not changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tomlkit
from tomlkit.items import Table

from stack.model.line import Member, Pin


def new_series(upstream: str, pin: Pin, *, context: int = 3) -> bytes:
    """The `series.toml` of a new line without patches."""
    document = tomlkit.document()
    document["schema"] = 1
    document["upstream"] = upstream
    if context != 3:
        document["context"] = context
    table = tomlkit.table()
    table["label"] = pin.label
    if pin.commit:
        table["commit"] = pin.commit
    table["tree"] = pin.tree
    document["pin"] = table
    if pin.sdist:
        sdist = tomlkit.table()
        for key in ("version", "sha256", "short"):
            if value := getattr(pin.sdist, key):
                sdist[key] = value
        table["sdist"] = sdist
    return tomlkit.dumps(document).encode()


def set_members(data: bytes, members: Sequence[Member]) -> bytes:
    """The same document with these patches in this order; entries that stay keep their text."""
    document = tomlkit.parse(data.decode())
    old: dict[str, Table] = {str(table["name"]): table for table in document.get("patch", [])}
    if [member.name for member in members] == list(old):
        return data
    entries = tomlkit.aot()
    for member in members:
        entries.append(old.get(member.name) or _table(member))
    if members:
        document["patch"] = entries
    else:
        document.pop("patch", None)
    return tomlkit.dumps(document).encode()


def _table(member: Member) -> Table:
    """An entry for a member, without the keys that have their default."""
    table = tomlkit.table()
    for key in ("name", "state", "kind"):
        table[key] = getattr(member, key)
    if member.reason:
        table["reason"] = member.reason
    if member.env:
        env = tomlkit.inline_table()
        env.update(dict(member.env))
        table["env"] = env
    for key in ("needs", "bench"):
        if said := getattr(member, key):
            table[key] = list(said)
    if member.claim:
        table["claim"] = member.claim
    return table


def set_table(data: bytes, path: Sequence[str], values: Mapping[str, Any]) -> bytes:
    """The same document with the keys of one table set (`["upstream", "vllm"]`)."""
    document = tomlkit.parse(data.decode())
    here: Any = document
    for depth, part in enumerate(path):
        if part not in here:
            here[part] = tomlkit.table(is_super_table=depth < len(path) - 1)
        here = here[part]
    for key, value in values.items():
        here[key] = value
    return tomlkit.dumps(document).encode()


