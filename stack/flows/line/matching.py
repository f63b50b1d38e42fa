"""Which patch each commit of a workspace is: by id, `Patch-Id:`, subject, content, or a new one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from stack.flows.line.chain import OWN_COMMIT
from stack.flows.line.likeness import Contents, mail_of
from stack.model.line.records import Receipt
from stack.model.mail.mail import render_message, split_message
from stack.model.objects import Commit
from stack.repo.format import slug, unique
from stack.repo.odb import ObjectStore
from stack.store.project import Line

How = Literal["id", "patch-id", "subject", "content", "new"]


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """A commit, the name of the patch that it is, and what told."""

    commit: str
    name: str
    how: How

    @property
    def told(self) -> str:
        """What told, in words."""
        return "no patch is like it" if self.how == "new" else f"by its {self.how}"


def match(
    odb: ObjectStore, line: Line, receipt: Receipt, ids: Sequence[str], taken: set[str]
) -> list[Match]:
    """The patch of every commit, in commit order.

    Each rule goes over all commits before the next one is asked, so that an untouched commit keeps
    its name whatever was put before it. Of several commits with one `Patch-Id:` (a patch that was
    split) the one with most of the patch's lines is the patch. `taken` are names for nobody new.
    """
    own = {step.commit: step.name for step in receipt.steps if step.outcome in OWN_COMMIT}
    mails = {name: mail_of(line, name) for name in own.values() if name in line.files}
    heads = {oid: split_message(odb.commit(oid).message) for oid in ids}
    found: dict[str, Match] = {}
    used: set[str] = set()

    def take(oid: str, names: Iterable[str], how: How) -> None:
        free = next((name for name in names if name not in used), None)
        if oid not in found and free is not None:
            found[oid] = Match(commit=oid, name=free, how=how)
            used.add(free)

    for oid in ids:
        take(oid, [own[oid]] if own.get(oid) in line.files else [], "id")
    contents = Contents(odb, line)
    for name, mail in mails.items():
        wanted = mail.trailer("Patch-Id") if mail else None
        bearers = [oid for oid in ids if oid not in found and wanted in _patch_ids(heads[oid][2])]
        if wanted and len(bearers) > 1:
            bearers.sort(key=lambda oid: -contents.shared(oid, name))
        for oid in bearers[:1] if wanted else ():
            take(oid, [name], "patch-id")
    for oid in ids:
        subject = heads[oid][0]
        take(oid, [n for n, mail in mails.items() if mail and mail.subject == subject], "subject")
    left = [name for name in mails if name not in used]
    rest = [oid for oid in ids if oid not in found]
    scores = [(contents.likeness(oid, name), oid, name) for oid in rest for name in left]
    for score, oid, name in sorted(scores, key=lambda row: -row[0]):
        if score > 0:
            take(oid, [name], "content")
    for oid in ids:
        if oid not in found:
            name = unique(slug(heads[oid][0]), taken)
            take(oid, [name], "new")
            taken.add(name)
    return [found[oid] for oid in ids]


def reworded(odb: ObjectStore, line: Line, base: str, matches: Sequence[Match]) -> dict[str, str]:
    """The chain of commits by name, each with its patch's own `Patch-Id:` and no other's.

    A commit that lost it (reworded) gets it again; the second half of a split patch, and a new
    patch, get one that nothing else has. Commits above one that changed are made again.
    """
    chain: dict[str, str] = {}
    parent, seen = base, set()
    for one in matches:
        made = odb.commit(one.commit)
        subject, body, trailers = split_message(made.message)
        has = next(iter(reversed(_patch_ids(trailers))), None)
        mail = mail_of(line, one.name) if one.how == "content" else None
        wanted = (mail.trailer("Patch-Id") if mail else None) or has
        if one.how == "new" and (has is None or has in seen or has in _all_ids(line)):
            state = made.message + made.author.render() + made.tree.encode()
            wanted = hashlib.sha256(state).hexdigest()[:16]
        message = made.message
        if wanted != has and wanted is not None:
            kept = tuple(row for row in trailers if row[0].lower() != "patch-id")
            message = render_message(subject, body, (*kept, ("Patch-Id", wanted)))
        seen.add(wanted)
        oid = one.commit
        if message != made.message or made.parents[0] != parent:
            again = Commit(
                tree=made.tree, parents=(parent,), author=made.author, committer=made.author,
                message=message,
            )
            oid = odb.add("commit", again.render())
        chain[one.name] = parent = oid
    return chain


def _all_ids(line: Line) -> set[str | None]:
    mails = [mail_of(line, name) for name in line.files]
    return {mail.trailer("Patch-Id") for mail in mails if mail}


def _patch_ids(trailers: Iterable[tuple[str, str]]) -> list[str]:
    return [value for key, value in trailers if key.lower() == "patch-id"]
