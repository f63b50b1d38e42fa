"""Export: the workspace's commits become the patch files, changing no byte that need not change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from stack import __version__
from stack.errors import BadPatch, StateError
from stack.flows.events import Emit, Said
from stack.flows.transaction import Change, commit, line_files, read_receipt, workspace_of, writing
from stack.model import edit
from stack.model.line import Member
from stack.model.mail import Mail, parse_mail, split_message
from stack.model.objects import Commit
from stack.model.outcome import Outcome, Step
from stack.model.parse_diff import parse_diff
from stack.model.records import Receipt
from stack.repo.client import Git
from stack.repo.format import format_commits, refuse_unmailable, slug, unique
from stack.repo.odb import ObjectStore
from stack.repo.replay import Item, apply_patch, replay
from stack.store.project import SERIES, Line, Project

_OWN_COMMIT = (Outcome.CLEAN, Outcome.MODIFIED)


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """What `export` wrote or would write: file names by what happens to them."""

    written: tuple[str, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    reordered: bool
    uncommitted: tuple[str, ...]

    @property
    def differs(self) -> bool:
        return bool(self.written or self.added or self.removed or self.reordered)


def export(
    project: Project, line: Line, emit: Emit, *, check: bool = False, force: bool = False,
    command: tuple[str, ...] = (),
) -> Exported:
    """Write the workspace's commits back to the line's patch files.

    With `check` nothing is written. A file is written only where replaying it would not give the
    commit again. Raises `StateError` where both the files and the workspace changed, unless
    `force`; what is overwritten then can be had back with `stack undo`.
    """
    if check:
        return _export(project, line, emit, None, force=True)
    with writing(project, f"export {line.id}", emit):
        line = project.line(line.series.upstream, line.series.pin.label)
        return _export(project, line, emit, command, force=force)


def _export(
    project: Project, line: Line, emit: Emit, command: tuple[str, ...] | None, *, force: bool
) -> Exported:
    series = line.series
    workspace = workspace_of(project, series.upstream, series.pin.label)
    receipt = read_receipt(project, series.upstream, series.pin.label)
    if not workspace.exists or receipt is None:
        raise StateError(
            f"{line.id} has no workspace to export", hint=f"stack apply --line {line.id}"
        )
    known = {member.name for member in series.patch}
    stale = not set(receipt.selected) <= known or line.digest(receipt.selected) != receipt.digest
    if stale and not force:
        raise StateError(
            f"the patch files of {line.id} changed since they were applied",
            hint="stack apply brings them into the workspace; stack export --force overwrites them",
        )
    uncommitted = tuple(workspace.edited())
    if uncommitted and command is not None:
        count = f"{len(uncommitted)} uncommitted changes in the workspace are not exported"
        emit(Said(count, warning=True))
    with ObjectStore(workspace.repository) as odb:
        ids = workspace.commits(receipt.base)
        on_disk = line_files(line.folder) or {}
        taken = known | {name.removesuffix(".patch") for name in on_disk}
        matched = _match(odb, line, receipt, ids, taken)
        files, changed = _files(odb, workspace.git, line, receipt.base, ids, matched)
        members = _order(line, receipt, matched)
        text = edit.set_members((line.folder / SERIES).read_bytes(), members)
        before = [member.name for member in series.patch]
        names = set(before)
        now = [member.name for member in members]
        exported = Exported(
            written=tuple(name for name in changed if name in names),
            added=tuple(name for name in matched if name not in names),
            removed=tuple(sorted(names - set(now))),
            reordered=[n for n in now if n in names] != [n for n in before if n in now],
            uncommitted=uncommitted,
        )
        if command is not None and (exported.differs or stale):
            gone = {f"{name}.patch" for name in names - set(now)}
            new = {name: data for name, data in on_disk.items() if name not in gone}
            new |= {f"{name}.patch": data for name, data in files.items()}
            fresh = _receipt(odb, line, receipt, matched, files, ids)
            change = Change(
                upstream=series.upstream, label=series.pin.label, files={**new, SERIES: text},
                head=fresh.head, receipt=fresh,
            )
            commit(project, odb, change, command, f"exported {_summary(exported)} of {line.id}")
        return exported


def _match(
    odb: ObjectStore, line: Line, receipt: Receipt, ids: Sequence[str], taken: set[str]
) -> dict[str, str]:
    """The patch name of every commit, in commit order: by id, by Patch-Id, by subject, or new.

    Each rule goes over all commits before the next one is asked, so that an untouched commit keeps
    its name whatever was put before it.
    """
    own = {step.commit: step.name for step in receipt.steps if step.outcome in _OWN_COMMIT}
    mails = {name: _mail(line, name) for name in own.values() if name in line.files}
    heads = {oid: split_message(odb.commit(oid).message) for oid in ids}
    found: dict[str, str] = {}

    def take(oid: str, names: Iterable[str]) -> None:
        if oid not in found:
            free = [name for name in names if name not in found.values()]
            found.update({oid: free[0]} if free else {})

    for oid in ids:
        take(oid, [own[oid]] if own.get(oid) in line.files else [])
    for oid in ids:
        wanted = [value for key, value in heads[oid][2] if key.lower() == "patch-id"]
        take(oid, [n for n, mail in mails.items() if mail and mail.trailer("Patch-Id") in wanted])
    for oid in ids:
        take(oid, [n for n, mail in mails.items() if mail and mail.subject == heads[oid][0]])
    for oid in ids:
        name = unique(slug(heads[oid][0]), taken)
        take(oid, [name])
        taken.add(found[oid])
    return {found[oid]: oid for oid in ids}


def _mail(line: Line, name: str) -> Mail | None:
    try:
        return parse_mail(line.files[name], f"{name}.patch")
    except BadPatch:
        return None


def _files(
    odb: ObjectStore, git: Git, line: Line, base: str, ids: Sequence[str],
    matched: Mapping[str, str],
) -> tuple[dict[str, bytes], list[str]]:
    """The bytes of every patch file, and the names of those that differ from what is on disk."""
    files: dict[str, bytes] = {}
    changed: list[str] = []
    fresh: list[bytes] | None = None
    parent = base
    for at, (name, oid) in enumerate(matched.items()):
        made = odb.commit(oid)
        if made.tree == odb.commit(parent).tree:
            raise StateError(
                f"commit {oid[:12]} of the workspace is empty: no patch file can carry it",
                hint="git rebase --interactive in the workspace can drop it",
            )
        held = line.files.get(name)
        if held is not None and _says(odb, held, name, odb.commit(parent).tree, made):
            files[name] = held
        else:
            if fresh is None:
                for each in ids:
                    refuse_unmailable(odb.commit(each).message, each)
                fresh = format_commits(git, base, ids[-1], context=line.series.context)
            files[name] = fresh[at]
            changed.append(name)
        parent = oid
    return files, changed


def _says(odb: ObjectStore, data: bytes, name: str, tree: str, made: Commit) -> bool:
    """Whether a patch file, replayed on `tree`, gives that commit: message, author and tree."""
    try:
        mail = parse_mail(data, name)
        files = parse_diff(mail.diff, name, first=mail.diff_line)
    except BadPatch:
        return False
    same_text = mail.message.strip() == made.message.strip()
    if not same_text or mail.author != made.author:
        return False
    return apply_patch(odb, tree, files).tree == made.tree


def _order(line: Line, receipt: Receipt, matched: Mapping[str, str]) -> list[Member]:
    """The members in their new order; one without a commit stays behind its neighbour."""
    applied = {step.name for step in receipt.steps if step.outcome in _OWN_COMMIT}
    behind: dict[str | None, list[Member]] = {}
    anchor: str | None = None
    for member in line.series.patch:
        if member.name in applied:
            if member.name in matched:
                anchor = member.name
        else:
            behind.setdefault(anchor, []).append(member)
    known = {member.name: member for member in line.series.patch}
    ordered = list(behind.get(None, ()))
    for name in matched:
        ordered.append(known.get(name) or Member(name=name))
        ordered += behind.get(name, ())
    return ordered


def _receipt(
    odb: ObjectStore, line: Line, old: Receipt, matched: Mapping[str, str],
    files: Mapping[str, bytes], ids: Sequence[str],
) -> Receipt:
    """The receipt of the exported state, made by replaying the new files: proof that they hold."""
    found: list[Item] = []
    for name in matched:
        mail = parse_mail(files[name], f"{name}.patch")
        diff = parse_diff(mail.diff, f"{name}.patch", first=mail.diff_line)
        found.append(Item(name=name, mail=mail, files=diff))
    steps: list[Step] = replay(odb, old.base, found)
    for step, item, oid in zip(steps, found, ids, strict=True):
        made, mail = odb.commit(oid), item.mail
        if split_message(made.message) != (mail.subject, mail.body, mail.trailers):
            raise StateError(
                f"commit {oid[:12]}: its message would not come back from a patch mail",
                context=[f"it would read: {mail.subject}"],
                hint="reword it in UTF-8 without `[PATCH]` or `Re:` in front, then export again",
            )
        if step.outcome is not Outcome.CLEAN or step.tree != made.tree:
            raise StateError(
                f"commit {oid[:12]} cannot be written as a patch file that gives it again",
                context=[text for clash in step.clashes for text in clash.describe()],
                hint="please report this with the commit",
            )
    names = tuple(matched)
    state = msgspec.structs.replace(line, files={**line.files, **files})
    return msgspec.structs.replace(
        old, digest=state.digest(names), selected=names, steps=tuple(steps),
        head=steps[-1].commit or old.base if steps else old.base,
        tree=steps[-1].tree or old.base_tree if steps else old.base_tree,
        stack_version=__version__,
    )


def _summary(exported: Exported) -> str:
    parts = [
        f"{len(names)} {word}"
        for names, word in (
            (exported.written, "changed"), (exported.added, "new"), (exported.removed, "removed"),
        )
        if names
    ]
    if not parts:
        return "the order"
    return ", ".join(parts) + (", reordered" if exported.reordered else "")
