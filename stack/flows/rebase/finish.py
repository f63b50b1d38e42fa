"""The end of a rebase: the carried commits become the patch files of the new line."""

from __future__ import annotations

from stack.flows.base import open_base
from stack.flows.events import Emit
from stack.flows.prefixes import items
from stack.flows.transaction import Change, commit
from stack.model.line import edit
from stack.model.line.line import Member
from stack.model.line.outcome import Outcome
from stack.model.line.rebase import Rebase
from stack.repo.carry import Merger, carry
from stack.repo.format import format_commits
from stack.repo.odb import ObjectStore
from stack.repo.renames import Renames
from stack.repo.replay import Item, apply_patch, make_commit, replay
from stack.store.project import SERIES, Line, Project


def finish(
    project: Project, line: Line, odb: ObjectStore, state: Rebase, emit: Emit
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Write the new line in one step; which parked patches came along, and which did not."""
    upstream = line.series.upstream
    joined = project.line(upstream, state.pin.label) if state.into else None
    carried = [done for done in state.done if not done.dropped]
    odb.write(state.tip)
    texts = format_commits(odb.git, state.start, state.tip, context=line.series.context)
    files = {f"{done.name}.patch": text for done, text in zip(carried, texts, strict=True)}
    by_name = {member.name: member for member in state.members}
    members = [*state.kept, *(by_name[done.name] for done in carried)]
    parked, left = _parked(project, line, odb, state, emit)
    files |= {f"{member.name}.patch": text for member, text in parked}
    members += [member for member, _ in parked]
    if joined is not None:
        taken = {member.name for member in members}
        rest = [m for m in joined.series.patch if m.state == "parked" and m.name not in taken]
        members += rest
        held = {f"{m.name}.patch": joined.files[m.name] for m in (*state.kept, *rest)}
        text = (joined.folder / SERIES).read_bytes()
        files = {**held, **files}
    else:
        text = edit.new_series(upstream, state.pin, context=line.series.context)
    files[SERIES] = edit.add_left(edit.set_members(text, members), state.left)
    change = Change(upstream=upstream, label=state.pin.label, files=files)
    commit(
        project, odb, change, state.command,
        f"rebased {state.source} to {state.target}: {len(carried)} patches carried",
    )
    return tuple(member.name for member, _ in parked), tuple(left)


def _parked(
    project: Project, line: Line, odb: ObjectStore, state: Rebase, emit: Emit
) -> tuple[list[tuple[Member, bytes]], list[str]]:
    """The parked patches that merge clean on top of the carried ones, alone, and the others."""
    taken = {member.name for member in (*state.kept, *state.members)}
    taken |= {one.name for one in state.left}
    parked = [m for m in line.series.patch if m.state == "parked" and m.name not in taken]
    if not parked:
        return [], []
    old = open_base(project, line.series, emit).commit
    active = items(line, line.series.select(), project)
    before = _tree_after(odb, old, active)
    renames = Renames(odb, odb.commit(old).tree, odb.commit(state.base).tree)
    merger = Merger(odb)
    onto = odb.commit(state.tip).tree
    came: list[tuple[Member, bytes]] = []
    left: list[str] = []
    for member in parked:
        item = items(line, [member], project)[0]
        after = apply_patch(odb, before, item.files).tree
        done = carry(merger, before, after, onto, renames=renames) if after else None
        if done is None or done.trouble or done.tree == onto:
            left.append(member.name)
            continue
        oid = make_commit(odb, done.tree, state.tip, item.mail)
        odb.write(oid)
        text = format_commits(odb.git, state.tip, oid, context=line.series.context)[0]
        came.append((member, text))
    return came, left


def _tree_after(odb: ObjectStore, base: str, found: list[Item]) -> str:
    steps = replay(odb, base, found)
    clean = [step.tree for step in steps if step.tree and step.outcome is not Outcome.CONFLICT]
    return clean[-1] if clean else odb.commit(base).tree

