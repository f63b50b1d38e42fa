"""A chain of commits becomes the patch files of a line, changing no byte that need not change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from stack import __version__
from stack.errors import BadPatch, StateError
from stack.model.diff.parse import parse_diff
from stack.model.line.outcome import Outcome, Step
from stack.model.line.records import Receipt
from stack.model.mail.mail import parse_mail, split_message
from stack.model.objects import Commit
from stack.repo.client import Git
from stack.repo.format import format_commits, refuse_unmailable
from stack.repo.odb import ObjectStore
from stack.repo.replay import Item, apply_patch, replay
from stack.store.project import Line

OWN_COMMIT = (Outcome.CLEAN, Outcome.MODIFIED)


def files_of(
    odb: ObjectStore, git: Git, line: Line, base: str, chain: Mapping[str, str], *,
    exact: bool = False,
) -> tuple[dict[str, bytes], list[str]]:
    """The bytes of every patch file, and the names of those that differ from what is on disk.

    `chain` are the commits after `base` by patch name, in order. A file stays as it is where it
    gives its commit; with `exact` only where it does so without an offset.
    """
    files: dict[str, bytes] = {}
    changed: list[str] = []
    fresh: list[bytes] | None = None
    parent = base
    for at, (name, oid) in enumerate(chain.items()):
        made = odb.commit(oid)
        if made.tree == odb.commit(parent).tree:
            raise StateError(
                f"commit {oid[:12]} of the workspace is empty: no patch file can carry it",
                hint="git rebase --interactive in the workspace can drop it",
            )
        held = line.files.get(name)
        tree = odb.commit(parent).tree
        if held is not None and _says(odb, held, name, tree, made, exact=exact):
            files[name] = held
        else:
            if fresh is None:
                for each in chain.values():
                    refuse_unmailable(odb.commit(each).message, f"commit {each[:12]}")
                odb.write(*chain.values())
                last = list(chain.values())[-1]
                fresh = format_commits(git, base, last, context=line.series.context)
            files[name] = fresh[at]
            changed.append(name)
        parent = oid
    return files, changed


def _says(
    odb: ObjectStore, data: bytes, name: str, tree: str, made: Commit, *, exact: bool
) -> bool:
    """Whether a patch file, replayed on `tree`, gives that commit: message, author and tree."""
    try:
        mail = parse_mail(data, name)
        files = parse_diff(mail.diff, name, first=mail.diff_line)
    except BadPatch:
        return False
    same_text = mail.message.strip() == made.message.strip()
    if not same_text or mail.author != made.author:
        return False
    applied = apply_patch(odb, tree, files)
    return applied.tree == made.tree and not (exact and applied.offsets)


def read_items(names: Sequence[str], files: Mapping[str, bytes]) -> list[Item]:
    """The patches of these files, ready to replay."""
    found: list[Item] = []
    for name in names:
        mail = parse_mail(files[name], f"{name}.patch")
        diff = parse_diff(mail.diff, f"{name}.patch", first=mail.diff_line)
        found.append(Item(name=name, mail=mail, files=diff))
    return found


def proven(
    odb: ObjectStore, base: str, chain: Mapping[str, str], files: Mapping[str, bytes]
) -> list[Step]:
    """The replay of new files: proof that they hold. `StateError` where one does not."""
    found = read_items(list(chain), files)
    steps: list[Step] = replay(odb, base, found)
    for step, item, oid in zip(steps, found, chain.values(), strict=True):
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
    return steps


def receipt_of(
    line: Line, old: Receipt, files: Mapping[str, bytes], steps: Sequence[Step]
) -> Receipt:
    """The receipt of a replay of new files; what `old` says of the base stays."""
    names = tuple(step.name for step in steps)
    state = msgspec.structs.replace(line, files={**line.files, **files})
    last = next((step for step in reversed(steps) if step.commit), None)
    return msgspec.structs.replace(
        old, digest=state.digest(names), selected=names, steps=tuple(steps),
        head=(last.commit if last else None) or old.base,
        tree=(last.tree if last else None) or old.base_tree,
        stack_version=__version__, editing=None,
    )
