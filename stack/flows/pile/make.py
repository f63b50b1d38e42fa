"""The commits that a replayed pile makes: interdiffs with author, date and words of their files."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from stack.errors import StackError
from stack.flows.line.refresh import identity
from stack.flows.pile.needs import Need
from stack.flows.pile.order import First
from stack.flows.pile.replay import Step
from stack.model.line.line import Member
from stack.model.mail.mail import render_message
from stack.model.objects import Commit, Person
from stack.model.pile.words import body_of, subject_of
from stack.repo.format import slug, unique
from stack.repo.odb import ObjectStore

_PACKED = (
    ".gz", ".bz2", ".xz", ".b64", ".base64", ".patch", ".diff", ".mbox", ".eml", ".md", ".txt",
    ".patches",
)
_UNKNOWN = (b"unknown", b"unknown@localhost")


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """A patch that came of an input."""

    step: Step
    member: Member
    commit: str


def commits(
    odb: ObjectStore, tip: str, steps: Sequence[Step], taken: set[str],
    firsts: Mapping[Path, First], lacking: Mapping[str, Sequence[Need]],
) -> list[Made]:
    """A commit for every step, on top of `tip`; the names are none of `taken`."""
    made: list[Made] = []
    used = set(taken)
    names: dict[str, str] = {}
    me = functools.cache(_user)
    for step in steps:
        name = unique(_name(step), used)
        used.add(name)
        who = _author(step, firsts, me)
        commit = Commit(
            tree=step.after, parents=(tip,), author=who, committer=who, message=_message(step),
        )
        tip = odb.add("commit", commit.render())
        needed = {names[need.by] for need in lacking.get(step.one.file, ()) if need.by in names}
        needs = tuple(f"{step.upstream}:{one}" for one in sorted(needed))
        names[step.one.file] = name
        made.append(Made(step=step, member=Member(name=name, needs=needs), commit=tip))
    return made


def stem_of(step: Step) -> str:
    """The name of an input's file without all that says how it is packed."""
    name = step.one.path.name
    while name.lower().endswith(_PACKED):
        name = name[: name.rindex(".")]
    return name or step.one.path.name


def _name(step: Step) -> str:
    mail = step.one.mail
    stem = stem_of(step)
    if mail is not None and (":" in Path(step.one.file).name or stem[:4].isdigit()):
        return slug(mail.subject)
    return slug(stem)


def _author(
    step: Step, firsts: Mapping[Path, First], me: Callable[[], tuple[bytes, bytes]]
) -> Person:
    """Who wrote an input: its mail, who committed the file first, else the user at its last change.

    Where git does not know the user either, the author is unknown.
    """
    if step.one.mail is not None:
        return step.one.mail.author
    if (first := firsts.get(step.one.path)) is not None:
        return first.author
    seconds = int(step.one.path.stat().st_mtime)
    return Person(*me(), b"%d +0000" % seconds)


def _user() -> tuple[bytes, bytes]:
    try:
        who = identity()
    except StackError:
        return _UNKNOWN
    return who.name, who.email


def _message(step: Step) -> bytes:
    one = step.one
    identity_of = ("Patch-Id", step.digest[:16])
    flags = tuple(sorted({*map(str, one.flags), *(
        str(flag) for _, fit in step.fits for flag in fit.flags
    )}))
    if one.mail is not None:
        kept = tuple(pair for pair in one.mail.trailers if pair[0].lower() != "patch-id")
        own = one.mail.trailer("Patch-Id")
        body = body_of(Path(one.file).name, "", one.mail.body, flags)
        trailers = (*kept, ("Patch-Id", own) if own else identity_of)
        return render_message(one.mail.subject or stem_of(step), body, trailers)
    subject = subject_of(stem_of(step), one.words)
    body = body_of(Path(one.file).name, "", one.words, flags)
    return render_message(subject, body, (identity_of,))
