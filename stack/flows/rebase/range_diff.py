"""How the patches of one line differ from those of another: a difference of differences."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from stack.errors import UsageError
from stack.flows.events import Emit
from stack.flows.prefixes import Prefix, replayed
from stack.model.line.line import near
from stack.repo.client import Git
from stack.store.project import Project

Status = Literal["same", "changed", "removed", "added"]
_SIGNS: dict[str, Status] = {"=": "same", "!": "changed", "<": "removed", ">": "added"}
_PAIR = re.compile(
    rb"\s*(?:-+|\d+):\s+(?P<old>-+|[0-9a-f]{40}) (?P<sign>[=!<>])\s+(?:-+|\d+):\s+"
    rb"(?P<new>-+|[0-9a-f]{40}) (?P<subject>.*)"
)


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """A patch of the old line and what it is in the new one; `diff` is git's, as text."""

    status: Status
    subject: str
    old: str | None
    new: str | None
    diff: str = ""


class RangeDiff(msgspec.Struct, frozen=True, kw_only=True):
    """The pairs of two lines, in the new one's order."""

    old: str
    new: str
    pairs: tuple[Pair, ...]


def range_diff(project: Project, old: str, new: str, emit: Emit) -> RangeDiff:
    """Compare two lines, or two patches (`LINE:PATCH`), of one upstream.

    Raises `Conflict` where a patch of either does not apply at its own pin.
    """
    (git, left, old_line), (other, right, new_line) = (
        _chain(project, text, emit) for text in (old, new)
    )
    if git.git_dir != other.git_dir:
        raise UsageError(f"{old_line} and {new_line} are lines of different upstreams")
    arguments = ["--creation-factor=999"] if len(left) == len(right) == 2 else []
    found = git.run(
        "-c", "core.abbrev=40", "range-diff", "--no-color", *arguments,
        *(f"{chain[0].commit}..{chain[-1].commit}" for chain in (left, right)),
    )
    names = {one.commit: one.name for chain in (left, right) for one in chain[1:]}
    return RangeDiff(old=old_line, new=new_line, pairs=tuple(_pairs(found.out, names)))


def _chain(project: Project, text: str, emit: Emit) -> tuple[Git, Sequence[Prefix], str]:
    """The commits of a line, or of one patch with the one before it, in the repository."""
    where, colon, name = text.partition(":")
    line = project.find(where)
    names = [member.name for member in line.series.patch]
    if colon and name not in names:
        raise UsageError(
            f"{line.id} has no patch `{name}`", hint=near(name, names, f"stack list {line.id}")
        )
    members = line.series.select(with_=(name,) if colon else (), to=name if colon else None)
    with replayed(project, line, members, emit) as found:
        found.odb.write(found.prefixes[-1].commit)
        prefixes = found.prefixes
    if colon:
        at = next((n for n, one in enumerate(prefixes) if one.name == name), 0)
        if not at:
            raise UsageError(f"patch `{name}` of {line.id} changes nothing at its pin")
        prefixes = prefixes[at - 1 : at + 1]
    return found.git, prefixes, line.id


def _pairs(out: bytes, names: dict[str, str | None]) -> list[Pair]:
    pairs: list[Pair] = []
    for row in out.split(b"\n"):
        if match := _PAIR.fullmatch(row):
            pairs.append(
                Pair(
                    status=_SIGNS[match["sign"].decode()],
                    subject=match["subject"].decode("utf-8", "replace"),
                    old=names.get(match["old"].decode()), new=names.get(match["new"].decode()),
                )
            )
        elif pairs and row:
            text = pairs[-1].diff + row.removeprefix(b"    ").decode("utf-8", "replace") + "\n"
            pairs[-1] = msgspec.structs.replace(pairs[-1], diff=text)
    return pairs
