"""A patch on its way home: the commit that upstream would take, and where its review stands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from stack.errors import BadPatch, StackError, StateError, UsageError
from stack.flows import upstream_news
from stack.flows.base import Base, open_base
from stack.flows.events import Emit, Said
from stack.flows.line import restack_state
from stack.flows.line.apply import refuse_unexported
from stack.flows.line.chain import read_items, receipt_of
from stack.flows.line.refresh import identity
from stack.flows.pins import resolve_pin
from stack.flows.prefixes import replayed
from stack.flows.rebase.forecast import at_pin
from stack.flows.transaction import (
    Change,
    commit,
    line_files,
    read_receipt,
    refuse_editing,
    workspace_of,
    writing,
)
from stack.model.line.line import Member, Pin
from stack.model.mail.mail import Mail, parse_mail, render_message
from stack.model.objects import Commit
from stack.repo.carry import Merger, carry
from stack.repo.format import format_commits, refuse_unmailable
from stack.repo.odb import ObjectStore
from stack.repo.renames import Renames
from stack.repo.replay import replay
from stack.repo.semantics import suspects
from stack.store.project import Line, Project

OURS = ("why", "upstream-status", "patch-id")
STATUS = ("Pending", "Submitted", "Backport", "Denied", "Inappropriate", "Inactive-Upstream")
_STATUS_LINES = re.compile(rb"^Upstream-Status:[^\n]*\n(?:[ \t][^\n]*\n)*", re.MULTILINE)
_ID_LINE = re.compile(rb"^Patch-Id:", re.MULTILINE)


class ForUpstream(msgspec.Struct, frozen=True, kw_only=True):
    """A patch as upstream wants it: `mail` stands on `revision`, on top of the patches it needs.

    `reasons` say why it could not stand alone, or not on a newer revision.
    """

    line: str
    patch: str
    revision: str
    pin: Pin
    needs: tuple[str, ...]
    reasons: tuple[str, ...]
    subject: str
    mail: bytes


class _Before(msgspec.Struct, frozen=True, kw_only=True):
    """What each patch up to the wanted one did: its name, the trees around it, its paths."""

    name: str
    before: str
    after: str
    paths: frozenset[bytes]


def for_upstream(
    project: Project, line: Line, name: str, emit: Emit, *, onto: str | None = None
) -> ForUpstream:
    """The commit of one patch, alone where it can be: on the newest revision, else on its own pin.

    `onto` names another revision. Nothing of the project is changed.
    """
    line.series.member(name)
    mail = parse_mail(line.files[name], f"{name}.patch")
    chain = [member for member in line.series.patch if member.state == "active"]
    if name not in [member.name for member in chain]:
        chain.append(line.series.member(name))
    at = [member.name for member in chain].index(name)
    reasons: list[str] = []
    # before objects are read: a source that is opened later would not be seen
    bases = list(_bases(project, line, onto, emit, reasons))
    with replayed(project, line, chain[: at + 1], emit) as found:
        tree = found.prefixes[0].tree
        steps: list[_Before] = []
        for step in found.steps:
            after = step.tree or tree
            paths = frozenset(found.odb.changed(tree, after))
            steps.append(_Before(name=step.name, before=tree, after=after, paths=paths))
            tree = after
        if not steps[-1].paths:
            raise StateError(f"patch `{name}` changes nothing on {line.id}", hint="stack apply")
        for revision, pin, base in bases:
            try:
                placed = _place(found.odb, steps, base.tree, line)
            except StackError as wrong:  # also a repository that holds only part of its history
                reasons.append(f"{revision}: {wrong.message}")
                continue
            if isinstance(placed, str):
                reasons.append(f"{revision}: {placed}")
                continue
            needed, below, above, alone = placed
            reasons += [f"{revision}: alone: {alone}"] if alone else []
            made = _commit(found.odb, base.commit, below, above, mail)
            refuse_unmailable(found.odb.commit(made).message, f"patch `{name}`")
            found.odb.write()
            (text,) = format_commits(
                found.git, found.odb.commit(made).parents[0], made, context=line.series.context
            )
            return ForUpstream(
                line=line.id, patch=name, revision=revision, pin=pin, needs=needed,
                reasons=tuple(reasons), subject=mail.subject, mail=text,
            )
    raise StateError(
        f"patch `{name}` stands nowhere without the others", context=reasons,
        hint=f"stack forecast --line {line.id} --onto {line.series.upstream}@REV --why",
    )


def _bases(
    project: Project, line: Line, onto: str | None, emit: Emit, reasons: list[str]
) -> Iterator[tuple[str, Pin, Base]]:
    """The revisions to try that some source serves; why others are not, into `reasons`."""
    for revision, pin in _targets(project, line, onto, emit):
        try:
            yield revision, pin, open_base(project, at_pin(line.series, pin), emit)
        except StackError as wrong:
            reasons.append(f"{revision}: {wrong.message}")


def _targets(
    project: Project, line: Line, onto: str | None, emit: Emit
) -> list[tuple[str, Pin]]:
    """The revisions to try, newest first, the line's own pin last."""
    upstream = line.series.upstream
    if onto is not None:
        revision = onto.partition("@")[2] or onto
        return [(revision, resolve_pin(project, upstream, revision, emit))]
    found: list[tuple[str, Pin]] = []
    newest = upstream_news.newest(project, line)
    if newest is not None:
        pin = Pin(label="newest", commit=newest.commit, tree=newest.tree)
        found.append((f"{newest.name} ({newest.commit[:12]})", pin))
    else:
        emit(Said(f"{upstream}: no newer revision is at hand; stack upstream fetch brings it"))
    return [*found, (line.series.pin.label, line.series.pin)]


def _place(
    odb: ObjectStore, steps: Sequence[_Before], onto: str, line: Line
) -> tuple[tuple[str, ...], str, str, str] | str:
    """The patches needed, the trees below and above the last step, and why not alone; or why not.

    First it is tried alone, then on all patches that came before, from which those are dropped one
    by one without which it stands as well.
    """
    merger, renames = Merger(odb), Renames(odb, steps[0].before, onto)
    *earlier, last = steps

    def stand(chosen: Sequence[_Before]) -> tuple[str, str] | str:
        tree = onto
        for one in chosen:
            done = carry(merger, one.before, one.after, tree, renames=renames)
            if done.trouble:
                return f"`{one.name}`: {done.trouble[0].path}: {done.trouble[0].why}"
            tree = done.tree
        done = carry(merger, last.before, last.after, tree, renames=renames)
        if done.trouble:
            return f"{done.trouble[0].path}: {done.trouble[0].why}"
        if done.tree == tree:
            return "upstream has it already"
        if doubts := suspects(merger, last.before, last.after, tree, done):
            return doubts[0]
        return tree, done.tree

    named = {need.partition(":")[2] for need in line.series.member(last.name).needs
             if need.startswith(f"{line.series.upstream}:")}
    must = [one for one in earlier if one.name in named]
    alone = stand(must)
    if not isinstance(alone, str):
        return tuple(one.name for one in must), *alone, ""
    related = [one for one in earlier if one in must or one.paths & last.paths]
    for chosen in (related, list(earlier)):
        placed = stand(chosen)
        if isinstance(placed, str):
            continue
        for one in list(chosen):
            fewer = [other for other in chosen if other is not one]
            tried = alone if one in must else stand(fewer)
            if not isinstance(tried, str):
                chosen, placed = fewer, tried
        return tuple(one.name for one in chosen), *placed, alone
    return alone


def _commit(odb: ObjectStore, base: str, below: str, above: str, mail: Mail) -> str:
    """The commit by its author, signed off by the user, on a parent that holds what it needs."""
    who = identity()
    parent = base
    if odb.commit(base).tree != below:
        under = Commit(
            tree=below, parents=(base,), author=mail.author, committer=mail.author,
            message=b"what the patch needs\n",
        )
        parent = odb.add("commit", under.render())
    made = Commit(
        tree=above, parents=(parent,), author=mail.author, committer=who,
        message=message_for_upstream(mail, who.name.decode(), who.email.decode()),
    )
    return odb.add("commit", made.render())


def message_for_upstream(mail: Mail, name: str, email: str) -> bytes:
    """Subject, text and the trailers that are not ours, signed off last and once.

    A patch without a text gives its `Why:` as one, since upstream asks for the reason too.
    """
    sign = ("Signed-off-by", f"{name} <{email}>")
    kept = [pair for pair in mail.trailers if pair[0].lower() not in OURS and pair != sign]
    why = " ".join((mail.trailer("Why") or "").split())
    return render_message(mail.subject, mail.body or why, (*kept, sign))


def set_status(
    project: Project, line: Line, name: str, status: str, emit: Emit, *, link: str | None = None,
    dry_run: bool = False, command: tuple[str, ...] = (),
) -> tuple[str, str]:
    """Set a patch's `Upstream-Status:` and nothing else; its value before and now.

    Patch file and workspace change together; every id of the patch but its commit's stays.
    """
    if link is None and status not in ("Pending", "Denied"):
        what = "the commit" if status == "Backport" else (
            "the reason" if status == "Inappropriate" else "the address")
        raise UsageError(f"{status} needs {what}", hint=f"--status {status} --link TEXT")
    value = f"{status} [{link}]" if link else status
    member = line.series.member(name)
    data = line.files[name]
    before = parse_mail(data, f"{name}.patch").trailer("Upstream-Status") or ""
    text = _with_status(data, name, value)
    if dry_run or text == data:
        return before, value
    with writing(project, f"upstreamed {name}", emit):
        restack_state.refuse_stopped(project)
        upstream, label = line.series.upstream, line.series.pin.label
        line = project.line(upstream, label)
        text = _with_status(line.files[name], name, value)
        _change(project, line, member, text, command, f"{name}: upstream status {value}")
    return before, value


def _change(
    project: Project, line: Line, member: Member, text: bytes, command: tuple[str, ...],
    summary: str,
) -> None:
    upstream, label = line.series.upstream, line.series.pin.label
    workspace = workspace_of(project, upstream, label)
    receipt = read_receipt(project, upstream, label)
    refuse_editing(receipt)
    files = {**(line_files(line.folder) or {}), f"{member.name}.patch": text}
    new = {**line.files, member.name: text}
    with ObjectStore(workspace.repository) as odb:
        change = Change(upstream=upstream, label=label, files=files)
        if receipt is not None and workspace.exists and member.name in receipt.selected:
            refuse_unexported(project, line, workspace, receipt)
            if line.digest(receipt.selected) == receipt.digest:  # else `apply` has more to bring
                steps = replay(odb, receipt.base, read_items(receipt.selected, new))
                fresh = receipt_of(line, receipt, {member.name: text}, steps)
                change = msgspec.structs.replace(change, head=fresh.head, receipt=fresh)
        commit(project, odb, change, command, summary)


def _with_status(data: bytes, name: str, value: str) -> bytes:
    """A patch file with another `Upstream-Status:`; the diff and all other trailers stay."""
    old = parse_mail(data, f"{name}.patch")
    line = f"Upstream-Status: {value}\n".encode()
    cut = len(data) - len(old.diff) if data.endswith(old.diff) else len(data)
    head, rest = data[:cut], data[cut:]
    if found := list(_STATUS_LINES.finditer(head)):
        last = found[-1]
        head = head[: last.start()] + line + head[last.end() :]
    elif found := list(_ID_LINE.finditer(head)):
        head = head[: found[-1].start()] + line + head[found[-1].start() :]
    text = head + rest
    new = parse_mail(text, f"{name}.patch")
    others = [pair for pair in old.trailers if pair[0] != "Upstream-Status"]
    if (
        new.trailer("Upstream-Status") != value or new.diff != old.diff or new.body != old.body
        or [pair for pair in new.trailers if pair[0] != "Upstream-Status"] != others
    ):
        raise BadPatch(
            f"{name}.patch: its trailers are not written so that one of them can be changed",
            hint="stack edit; or put `Upstream-Status:` and `Patch-Id:` into its last paragraph",
        )
    return text
