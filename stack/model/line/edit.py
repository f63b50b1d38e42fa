"""Edits of `series.toml` and `stack.toml` that keep comments and everything that is not changed."""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

import tomlkit
from tomlkit.items import Table

from stack.errors import ConfigError
from stack.model.line.line import Left, Member, Pin

_ENTRY = re.compile(r"\s*\[\[\s*patch\s*\]\]")
_OTHER = re.compile(r"\s*\[\[?\s*(?!patch\b)[\w-]+(\s*\.\s*[\w-]+)*\s*\]\]?\s*(#.*)?$")


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
    """The same document with these patches in this order; entries that stay keep every byte.

    A comment right above an entry moves and goes with it. Raises `ConfigError` where the entries
    are not written as `[[patch]]` tables.
    """
    text = data.decode()
    head, blocks, tail = _blocks(text)
    names = [_name(block) for block in blocks]
    listed = [patch["name"] for patch in tomllib.loads(text).get("patch", ())]
    if names != listed:
        raise ConfigError(
            "series.toml: its patches are not written as `[[patch]]` tables",
            hint="write each as [[patch]], name = ..., on lines of their own",
        )
    if [member.name for member in members] == listed:
        return data
    known = dict(zip(names, blocks, strict=True))
    neighbours = set(itertools.pairwise([None, *listed, ""]))
    made, last = head, None
    for member in members:
        if (last, member.name) not in neighbours:
            made = _apart(made)
        made += known.get(member.name) or _block(member)
        last = member.name
    if (last, "") not in neighbours:
        made = _apart(made) if tail else made.rstrip("\n") + "\n"
    return (made + tail).encode()


def add_left(data: bytes, left: Sequence[Left]) -> bytes:
    """The same document with more patches that the line goes without, at its end."""
    if not left:
        return data
    made = data.decode()
    for one in left:
        table = tomlkit.table()
        for key in ("name", "reason", "source", "id"):
            if value := getattr(one, key):
                table[key] = value
        made = _apart(made) + tomlkit.dumps({"left": [table]}).rstrip("\n") + "\n"
    return made.encode()


def set_state(data: bytes, name: str, state: str, reason: str | None) -> bytes:
    """The same document with one patch in another state; every other byte stays."""
    head, blocks, tail = _blocks(data.decode())
    made = [_in_state(block, state, reason) if _name(block) == name else block for block in blocks]
    text = head + "".join(made) + tail
    entries = [one for one in tomllib.loads(text).get("patch", ()) if one["name"] == name]
    if [(one.get("state", "active"), one.get("reason")) for one in entries] != [(state, reason)]:
        raise ConfigError(
            f"series.toml: the entry of `{name}` is not written as a `[[patch]]` table",
            hint="write [[patch]], name = ... and state = ... on lines of their own",
        )
    return text.encode()


def _in_state(block: str, state: str, reason: str | None) -> str:
    """An entry with its `state`, and behind it the `reason` where there is one."""
    block = re.sub(r"^[ \t]*reason[ \t]*=.*\n", "", block, flags=re.MULTILINE)
    said, count = re.subn(
        r"""^([ \t]*state[ \t]*=[ \t]*)(["'])[^"'\n]*\2""", rf'\g<1>"{state}"', block, count=1,
        flags=re.MULTILINE,
    )
    if not count:
        said = re.sub(
            r"^([ \t]*\[\[.*\n)", rf'\g<1>state = "{state}"\n', block, count=1,
            flags=re.MULTILINE,
        )
    if reason is None:
        return said
    return re.sub(
        r"^([ \t]*state[ \t]*=.*\n)", rf'\g<1>reason = "{reason}"\n', said, count=1,
        flags=re.MULTILINE,
    )


def rename_member(data: bytes, old: str, new: str) -> bytes:
    """The same document with one patch under another name; every other byte stays."""
    head, blocks, tail = _blocks(data.decode())
    entry = re.compile(rf"""^(\s*name\s*=\s*)(["']){re.escape(old)}\2""", re.MULTILINE)
    title = re.compile(rf"^(\s*\[\[\s*patch\s*\]\]\s*# ){re.escape(old)}$", re.MULTILINE)
    made = [
        title.sub(rf"\g<1>{new}", entry.sub(rf"\g<1>\g<2>{new}\g<2>", block, count=1))
        if _name(block) == old
        else block
        for block in blocks
    ]
    text = head + "".join(made) + tail
    listed = [patch["name"] for patch in tomllib.loads(text).get("patch", ())]
    if new not in listed or old in listed:
        raise ConfigError(
            f"series.toml: the entry of `{old}` is not written as a `[[patch]]` table",
            hint="write [[patch]] and name = ... on lines of their own",
        )
    return text.encode()


def _apart(text: str) -> str:
    """The text with an empty line at its end."""
    return text.rstrip("\n") + "\n\n" if text.strip() else text


def _blocks(text: str) -> tuple[str, list[str], str]:
    """What stands before the patches, each patch with the comment above it, and what follows."""
    lines = text.splitlines(keepends=True)
    starts = [at for at, line in enumerate(lines) if _ENTRY.match(line)]
    if not starts:
        return text, [], ""
    end = next(
        (at for at in range(starts[-1], len(lines)) if _OTHER.match(lines[at])), len(lines)
    )
    edges = [_above(lines, at) for at in starts] + [_above(lines, end) if end < len(lines) else end]
    blocks = ["".join(lines[a:b]) for a, b in itertools.pairwise(edges)]
    return "".join(lines[: edges[0]]), blocks, "".join(lines[edges[-1] :])


def _above(lines: Sequence[str], at: int) -> int:
    """The first of the comment lines right above a line."""
    while at > 0 and lines[at - 1].lstrip().startswith("#"):
        at -= 1
    return at


def _name(block: str) -> str | None:
    try:
        patches = tomllib.loads(block).get("patch")
        return str(patches[0]["name"]) if isinstance(patches, list) else None
    except (tomllib.TOMLDecodeError, KeyError, IndexError):
        return None


def _block(member: Member) -> str:
    """An entry whose first and last line are its own.

    So git's `merge=union` keeps two people's new entries whole, where equal lines in their middle
    would be taken for common ones.
    """
    if member == Member(name=member.name, state=member.state, kind=member.kind):
        # a long series is mostly these, and tomlkit takes a millisecond for each
        return (
            f'[[patch]] # {member.name}\nstate = "{member.state}"\nkind = "{member.kind}"\n'
            f'name = "{member.name}"\n'
        )
    text = tomlkit.dumps({"patch": [_table(member)]})
    return text.replace("[[patch]]", f"[[patch]] # {member.name}", 1)


def _table(member: Member) -> Table:
    """An entry for a member, without the keys that have their default."""
    table = tomlkit.table()
    for key in ("state", "kind"):
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
    table["name"] = member.name
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


def drop_key(data: bytes, path: Sequence[str], key: str) -> bytes:
    """The same document without one key of a table."""
    document = tomlkit.parse(data.decode())
    here: Any = document
    for part in path:
        here = here[part]
    here.pop(key, None)
    return tomlkit.dumps(document).encode()
