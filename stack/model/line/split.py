"""The pieces that a patch is made of, and their division among parts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

import msgspec

from stack.errors import UsageError
from stack.model.diff.linediff import Change
from stack.model.line.line import Name

SCHEMA = 1
_PYTHON = re.compile(rb"([ \t]*)(?:async[ \t]+def|def|class)[ \t]+(\w+)")
_OTHER = re.compile(rb"[A-Za-z_][^;]*?([A-Za-z_~][\w:]*)[ \t]*[({]")
_MOST_GROUPS = 12


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """One place in a file (`number` from 1), or the whole file where `number` is None.

    `symbol` is the class or function that it stands in, empty outside of any.
    """

    path: str
    number: int | None = None
    symbol: str = ""
    added: int = 0
    removed: int = 0

    @property
    def key(self) -> str:
        """How a plan names exactly this piece."""
        return self.path if self.number is None else f"{self.path}#{self.number}"


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a plan: `take` names folders (`a/`), files, `file:symbol`, `file#number` or `*`."""

    name: Name
    take: tuple[str, ...]
    subject: str | None = None


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Into which parts a patch is cut, in order."""

    patch: Name
    part: Annotated[tuple[Part, ...], msgspec.Meta(min_length=1)]
    schema: int = SCHEMA


def symbol_at(lines: Sequence[bytes], at: int, *, python: bool) -> str:
    """The dotted name of what line `at` (from 0) stands in, by indentation; empty for nothing."""
    if not python:
        for line in reversed(lines[: at + 1]):
            if match := _OTHER.match(line):
                return match[1].decode("utf-8", "replace")
        return ""
    while at < len(lines) and not lines[at].strip():
        at += 1
    if at >= len(lines):
        return ""
    names: list[str] = []
    own = _PYTHON.match(lines[at])
    depth = _depth(lines[at])
    if own:
        names.append(own[2].decode("utf-8", "replace"))
    for line in reversed(lines[:at]):
        if not depth:
            break
        if line.strip() and _depth(line) < depth:
            depth = _depth(line)
            if match := _PYTHON.match(line):
                names.append(match[2].decode("utf-8", "replace"))
    return ".".join(reversed(names))


def _depth(line: bytes) -> int:
    return len(line) - len(line.lstrip(b" \t"))


def pieces_of(
    path: str, old: Sequence[bytes], new: Sequence[bytes], found: Sequence[Change]
) -> list[Piece]:
    """The pieces of a changed file, in order."""
    python = path.endswith((".py", ".pyi"))
    return [
        Piece(
            path=path, number=number, added=d - c, removed=b - a,
            symbol=symbol_at(new, c, python=python) if c < d else symbol_at(old, a, python=python),
        )
        for number, (a, b, c, d) in enumerate(found, 1)
    ]


def composed(
    old: Sequence[bytes], new: Sequence[bytes], found: Sequence[Change], chosen: set[int]
) -> bytes:
    """The file with the chosen of its changes (by number from 1)."""
    out: list[bytes] = []
    at = 0
    for number, (a, b, c, d) in enumerate(found, 1):
        out += old[at:a]
        out += new[c:d] if number in chosen else old[a:b]
        at = b
    out += old[at:]
    return b"".join(out)


def divided(plan: Plan, pieces: Sequence[Piece]) -> dict[str, list[Piece]]:
    """The pieces of each part; the closest name takes a piece, the first part of equals.

    Raises `UsageError` for pieces that no part takes, and parts that take nothing.
    """
    found: dict[str, list[Piece]] = {part.name: [] for part in plan.part}
    if len(found) != len(plan.part):
        raise UsageError("two parts of the plan have one name", hint="give each its own")
    left: list[Piece] = []
    for piece in pieces:
        best: tuple[int, str] | None = None
        for part in plan.part:
            near = max((_nearness(one, piece) for one in part.take), default=0)
            if near and (best is None or near > best[0]):
                best = (near, part.name)
        if best is None:
            left.append(piece)
        else:
            found[best[1]].append(piece)
    if left:
        raise UsageError(
            f"no part of the plan takes {len(left)} of {len(pieces)} pieces",
            context=[f"{one.key}  {one.symbol}".rstrip() for one in left[:8]],
            hint='add them to `take` of a part, or "*" for all the rest',
        )
    if empty := [name for name, some in found.items() if not some]:
        raise UsageError(
            f"part `{empty[0]}` of the plan takes nothing",
            hint="take it out, or see how `take` names things",
        )
    return found


def _nearness(take: str, piece: Piece) -> int:
    """How closely a name of a plan means a piece; 0 for not at all."""
    if take == "*":
        return 1
    if take == piece.key and piece.number is not None:
        return 1_000_000
    path, colon, symbol = take.rpartition(":")
    if colon and path == piece.path:
        same = piece.symbol == symbol or piece.symbol.startswith(symbol + ".")
        return 500_000 + len(symbol) if same else 0
    if take == piece.path:
        return 400_000
    if take.endswith("/") and piece.path.startswith(take):
        return 1 + len(take)
    return 0


def suggested(patch: str, pieces: Sequence[Piece], by: str) -> Plan:
    """A plan to begin with: by `folder`, `file` or `symbol`."""
    groups: dict[str, list[str]] = {}
    for piece in pieces:
        for take, group in _named(piece, by, _depth_for(pieces)):
            takes = groups.setdefault(group, [])
            if take not in takes:
                takes.append(take)
    used: set[str] = set()
    parts = []
    for group, takes in groups.items():
        name = _name(patch, group, used)
        used.add(name)
        parts.append(Part(name=name, take=tuple(takes)))
    return Plan(patch=patch, part=tuple(parts))


def _named(piece: Piece, by: str, depth: int) -> Iterator[tuple[str, str]]:
    """How a plan takes a piece, and the group that it goes to."""
    folder, _, name = piece.path.rpartition("/")
    if by == "file":
        yield piece.path, piece.path
    elif by == "symbol":
        top = piece.symbol.partition(".")[0]
        group = f"{name.partition('.')[0]}-{top}" if top else name.partition(".")[0]
        yield (f"{piece.path}:{top}" if top else piece.key), group
    else:
        group = "/".join(folder.split("/")[:depth])
        yield (f"{group}/", group) if group else (piece.path, "top")


def _depth_for(pieces: Sequence[Piece]) -> int:
    """The deepest level of folders that gives no more than a dozen groups."""
    folders = {piece.path.rpartition("/")[0] for piece in pieces}
    depth = 1
    for level in range(1, 9):
        if len({"/".join(folder.split("/")[:level]) for folder in folders}) > _MOST_GROUPS:
            break
        depth = level
    return depth


def _name(patch: str, group: str, used: set[str]) -> str:
    words = re.findall(r"[a-z0-9]+", group.lower())
    name = f"{patch}-{'-'.join(words[-3:])}"[:72].rstrip("-")
    number = 2
    made = name
    while made in used:
        made = f"{name}-{number}"
        number += 1
    return made


def render(plan: Plan, counts: Mapping[str, str]) -> str:
    """The plan as a file to edit; `counts` says of each part what it holds."""
    lines = [
        f"# How `stack split {plan.patch}` cuts it, part by part in this order; edit, run again.",
        "# A piece goes to the part that names it most closely:",
        "# `file#3`, `file:Class.method`, `file`, `folder/`, `*`.",
        f"schema = {plan.schema}", f'patch = "{plan.patch}"',
    ]
    for part in plan.part:
        lines += ["", "[[part]]" + (f" # {counts[part.name]}" if part.name in counts else "")]
        lines.append(f'name = "{part.name}"')
        if part.subject:
            lines.append(f"subject = {_quoted(part.subject)}")
        lines.append("take = [")
        lines += [f"  {_quoted(take)}," for take in part.take]
        lines.append("]")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()
