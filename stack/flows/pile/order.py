"""The order of a pile: a series file, first commits, mail dates or names, and who wrote it when."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from stack.flows.pile.read import Input
from stack.model.objects import Person
from stack.repo import mirror as mirrors
from stack.repo.client import Git

By = Literal["series", "git", "mail", "names", "given"]
SAID: Mapping[By, str] = {
    "series": "the series file", "git": "the time that each file was first committed",
    "mail": "the date of each mail", "names": "their names", "given": "the order given",
}
_BEGIN = b"\x01"


class First(msgspec.Struct, frozen=True):
    """The first commit of a file: seconds, number in that history, and its author."""

    time: int
    number: int
    author: Person


class Ordered(msgspec.Struct, frozen=True, kw_only=True):
    """A pile in order; `by` says what the order was taken from."""

    inputs: tuple[Input, ...]
    by: By
    firsts: Mapping[Path, First]

    @property
    def trusted(self) -> bool:
        """Whether the order is of time, and not of names."""
        return self.by in ("series", "git", "mail")

    @property
    def said(self) -> str:
        return SAID[self.by]


def ordered(inputs: Sequence[Input], paths: Sequence[Path]) -> Ordered:
    """Put a pile into the best order that it offers; ties and the rest go by name."""
    firsts = first_commits([one.path for one in inputs])
    if inputs and all(one.series is not None for one in inputs):
        return Ordered(inputs=tuple(inputs), by="series", firsts=firsts)
    if len({firsts[path].number for path in firsts}) > 1:
        last = max(first.number for first in firsts.values()) + 1
        last_time = max(first.time for first in firsts.values()) + 1

        def when(one: Input) -> tuple[int, int, object]:
            first = firsts.get(one.path)
            key = (first.time, first.number) if first else (last_time, last)
            return (*key, _natural(one.file))

        return Ordered(inputs=tuple(sorted(inputs, key=when)), by="git", firsts=firsts)
    if inputs and all(one.mail is not None for one in inputs):
        dated = sorted(inputs, key=_mail_time)
        return Ordered(inputs=tuple(dated), by="mail", firsts=firsts)
    if len(paths) > 1 and all(path.is_file() for path in paths):
        return Ordered(inputs=tuple(inputs), by="given", firsts=firsts)
    by_name = sorted(inputs, key=lambda one: _natural(one.file))
    return Ordered(inputs=tuple(by_name), by="names", firsts=firsts)


def _mail_time(one: Input) -> int:
    assert one.mail is not None
    return int(one.mail.author.date.split()[0])


def _natural(text: str) -> list[tuple[int, str]]:
    return [
        (int(part), "") if part.isdigit() else (-1, part)
        for part in re.findall(r"\d+|\D+", text)
    ]


def first_commits(files: Sequence[Path]) -> dict[Path, First]:
    """When each file, or its very content under another name, was first committed."""
    found: dict[Path, First] = {}
    for top, inside in _by_repository(files).items():
        objects = mirrors.objects_of(top)
        if objects is None:
            continue
        git = Git(objects.parent)
        if git.run("rev-parse", "--verify", "--quiet", "HEAD", ok=(0, 1, 128)).code:
            continue
        paths, blobs = _history(git)
        for file in inside:
            name = os.fsencode(file.resolve().relative_to(top))
            if name in paths:
                oid = paths[name][1]
                seen = [paths[name][0], *([blobs[oid]] if oid in blobs else [])]
                found[file] = min(seen, key=lambda one: one.number)
    return found


def _by_repository(files: Sequence[Path]) -> dict[Path, list[Path]]:
    tops: dict[Path, Path | None] = {}
    found: dict[Path, list[Path]] = {}
    for file in files:
        folder = file.resolve().parent
        if folder not in tops:
            said = Git().run("-C", folder, "rev-parse", "--show-toplevel", ok=None)
            tops[folder] = Path(os.fsdecode(said.out.rstrip(b"\n"))) if said.code == 0 else None
        top = tops[folder]
        if top is not None:
            found.setdefault(top, []).append(file)
    return found


def _history(git: Git) -> tuple[dict[bytes, tuple[First, str]], dict[str, First]]:
    """The first commit of every path (with its blob then), and of every blob."""
    log = git.run(
        "log", "--reverse", "--topo-order", "--raw", "-z", "--no-abbrev", "--no-renames",
        "--diff-filter=AM", "--no-show-signature", "--format=%x01%at%x00%an%x00%ae%x00%ad",
        "--date=raw",
    )
    paths: dict[bytes, tuple[First, str]] = {}
    blobs: dict[str, First] = {}
    number = -1
    now: First | None = None
    parts = iter(log.out.split(b"\0"))
    meta = b""
    for part in parts:
        field = part.lstrip(b"\n")
        if field.startswith(_BEGIN):
            number += 1
            name, email, date = next(parts), next(parts), next(parts)
            now = First(int(field[1:]), number, Person(name, email, date.strip()))
        elif meta:
            oid = meta.split()[3].decode()
            if now is not None:
                paths.setdefault(field, (now, oid))
                blobs.setdefault(oid, now)
            meta = b""
        elif field.startswith(b":"):
            meta = field[1:]
    return paths, blobs
