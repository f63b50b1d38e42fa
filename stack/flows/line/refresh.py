"""Uncommitted work becomes a patch of its own, or goes into one that is there."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Sequence

import msgspec

from stack.errors import ConfigError, StateError, UsageError
from stack.flows.events import Emit
from stack.flows.line.arrange import picks
from stack.flows.line.restack import Plan, Restacked, restack
from stack.flows.line.standing import Standing
from stack.model.line.line import Member, PatchKind
from stack.model.line.restack import Pick
from stack.model.mail.mail import render_message
from stack.model.objects import Commit, Person
from stack.repo.client import Git
from stack.repo.format import refuse_unmailable
from stack.repo.odb import ObjectStore
from stack.store.project import Line, Project

_NAME = re.compile(r"[a-z0-9][a-z0-9._+-]{0,79}")
_IDENT = re.compile(rb"(.*?) ?<(.*)> (\d+ [+-]\d{4})")


class Words(msgspec.Struct, frozen=True, kw_only=True):
    """What a new patch says of itself; `text` is the subject and any further paragraphs."""

    text: Sequence[str] = ()
    why: str | None = None
    kind: PatchKind = "feature"


def new(
    project: Project, line: Line, name: str, words: Words, emit: Emit, *, dry_run: bool = False,
    command: tuple[str, ...] = (),
) -> Restacked:
    """Make a patch of the workspace's uncommitted changes, behind the last applied one."""
    check_name(name)
    what = f"new {name}"

    def plan(here: Standing) -> Plan:
        if name in here.names or here.line.patch_path(name).exists():
            raise UsageError(f"{here.line.id} has a patch `{name}` already", hint="stack list")
        work = _work(here, "make a patch of")
        oid = _worded(here, work, _message(name, words))
        below = here.last_applied()
        found = picks(here)
        at = [pick.name for pick in found].index(below) + 1 if below else 0
        found.insert(at, Pick(name=name, commit=oid))
        order = list(here.names)
        order.insert(order.index(below) + 1 if below else 0, name)
        return Plan(
            what=what, picks=found, order=order, added=[Member(name=name, kind=words.kind)],
            taken=work,
        )

    return restack(project, line, what, plan, emit, mode="work", dry_run=dry_run, command=command)


def refresh(
    project: Project, line: Line, name: str | None, emit: Emit, *, dry_run: bool = False,
    command: tuple[str, ...] = (),
) -> Restacked:
    """Put the workspace's uncommitted changes into a patch: by default the last applied one."""

    def plan(here: Standing) -> Plan:
        target = name or here.last_applied()
        if target is None:
            raise UsageError("no patch is applied that could take them", hint="stack new NAME")
        here.commit_of(target)
        work = _work(here, f"put into `{target}`")
        found = picks(here)
        at = [pick.name for pick in found].index(target) + 1
        found.insert(at, Pick(name=target, commit=work, into=True))
        return Plan(what=f"refresh {target}", picks=found, order=here.names, taken=work)

    what = f"refresh {name or ''}".strip()
    return restack(project, line, what, plan, emit, mode="work", dry_run=dry_run, command=command)


def check_name(name: str) -> None:
    """Raise `UsageError` where a patch cannot be called so."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"`{name}` cannot be the name of a patch",
            hint="lower case letters, digits, and . _ + - inside; at most 80",
        )


def identity() -> Person:
    """The user as git knows them, now; `ConfigError` where git does not."""
    found = Git().run("var", "GIT_AUTHOR_IDENT", ok=(0, 128), user_config=True)
    if found.code or (match := _IDENT.fullmatch(found.out.strip())) is None:
        raise ConfigError(
            "git does not know who you are",
            hint="git config --global user.name NAME; git config --global user.email ADDRESS",
        )
    stamp = match[3] or str(int(time.time())).encode() + b" +0000"
    return Person(match[1], match[2], stamp)


def _work(here: Standing, purpose: str) -> str:
    if here.work is None:
        raise StateError(
            f"{here.project.shown(here.workspace.tree)}: no changes to {purpose}",
            hint="edit files there first; new files count, ignored ones do not",
        )
    return here.work


def _message(name: str, words: Words) -> bytes:
    subject, *body = [part.strip() for part in words.text if part.strip()] or [
        name.replace("-", " ").capitalize()
    ]
    trailers = [("Why", "\n".join(words.why.split("\n")))] if words.why else []
    trailers += [("Upstream-Status", "Pending"), ("Patch-Id", secrets.token_hex(8))]
    return render_message(subject, "\n\n".join(body), tuple(trailers))


def _worded(here: Standing, work: str, message: bytes) -> str:
    """The commit of some work with its author and message."""
    odb: ObjectStore = here.odb
    who, work_is = identity(), odb.commit(work)
    made = Commit(
        tree=work_is.tree, parents=work_is.parents, author=who, committer=who, message=message
    )
    oid = odb.add("commit", made.render())
    refuse_unmailable(message, "the new patch")
    return oid
