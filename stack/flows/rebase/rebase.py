"""Rebase: carry a line to another pin; the new line appears when all of it is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from stack.errors import Conflict, StateError, UsageError
from stack.flows.base import open_base
from stack.flows.events import Emit
from stack.flows.pins import resolve_pin
from stack.flows.prefixes import items
from stack.flows.rebase import tree as trees
from stack.flows.rebase.finish import finish
from stack.flows.rebase.forecast import at_pin
from stack.flows.rebase.steps import Ahead, behind, blamed, look_ahead, opened, settled
from stack.flows.transaction import writing
from stack.model.diff.parse import parse_diff
from stack.model.line.line import Left, Member, Reason
from stack.model.line.outcome import Outcome
from stack.model.line.rebase import Done, Rebase
from stack.model.mail.mail import parse_mail
from stack.repo.carry_series import carry_series
from stack.repo.odb import ObjectStore
from stack.repo.replay import Item, apply_patch, make_commit, replay
from stack.store.project import Line, Project
from stack.store.resolutions import Memory


class Rebased(msgspec.Struct, frozen=True, kw_only=True):
    """Where a rebase stands; `remembered` answers were kept just now."""

    state: Rebase
    ahead: Ahead = Ahead()
    finished: bool
    dry_run: bool = False
    remembered: int = 0
    parked: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def start(
    project: Project, line: Line, revision: str, emit: Emit, *, label: str | None = None,
    into: str | None = None, ours: bool = False, leave: Mapping[str, Reason] | None = None,
    dry_run: bool = False, command: tuple[str, ...] = (),
) -> Rebased:
    """Carry the active patches of a line to `revision`.

    With `into` they join a line that exists there: its patches first; of two with one Patch-Id its
    version wins, unless `ours`, and what it goes without already is not asked again. `leave` are
    patches that stay behind, with the reason that the new line keeps. Raises `Conflict` at the
    first patch that needs an answer.
    """
    if (running := trees.load(project)) is not None:
        raise StateError(
            f"a rebase of {running.source} to {running.target} is under way",
            hint="stack rebase --continue, --skip or --abort",
        )
    upstream = line.series.upstream
    pin = resolve_pin(project, upstream, revision, emit, label=label)
    joined = _joined(project, line, pin.label, into)
    target = joined or project_line(line, at_pin(line.series, pin).pin)
    base = open_base(project, target.series, emit)
    if base.tree == line.series.pin.tree and joined is None:
        raise UsageError(f"{line.id} is pinned there already", hint="stack list")
    with writing(project, f"rebase {line.id}", emit):
        left = tuple(_left(line, name, reason) for name, reason in (leave or {}).items())
        kept, members = _merged(line, joined, ours, {one.name for one in left})
        with ObjectStore(base.git) as odb:
            front = items(target, kept, project) if joined else []
            steps = replay(odb, base.commit, front)
            broken = next((s.name for s in steps if s.outcome is Outcome.CONFLICT), None)
            if broken:
                raise Conflict(
                    f"patch `{broken}` of {target.id} does not apply there", hint="stack apply"
                )
            tip = next((s.commit for s in reversed(steps) if s.commit), base.commit)
            state = Rebase(
                source=line.id, target=f"{upstream}/{pin.label}", pin=pin, base=base.commit,
                start=tip, into=joined is not None, kept=tuple(kept), members=tuple(members),
                left=left, digest=line.digest([member.name for member in members]),
                command=command,
            )
            return _go_on(project, line, odb, state, emit, dry_run=dry_run)


def project_line(line: Line, pin: object) -> Line:
    """The empty line that a rebase will fill."""
    return msgspec.structs.replace(
        line, series=msgspec.structs.replace(line.series, pin=pin, patch=()), files={}
    )


def _joined(project: Project, line: Line, label: str, into: str | None) -> Line | None:
    """The line at the target that the patches join."""
    upstream = line.series.upstream
    exists = label in project.labels(upstream)
    if into is None:
        if exists:
            raise StateError(
                f"line {upstream}/{label} exists",
                hint=f"--into {upstream}/{label} joins it; --label NAME makes a second line there",
            )
        return None
    joined = project.find(into)
    if joined.series.pin.label != label:
        raise UsageError(
            f"{joined.id} is not pinned at the target", hint=f"the line there is {upstream}/{label}"
        )
    return joined


def _left(line: Line, name: str, reason: Reason) -> Left:
    """What the new line says of a patch that stays behind."""
    member = line.series.member(name)
    return Left(name=name, reason=reason, source=line.id, id=_patch_id(line, member))


def _merged(
    line: Line, joined: Line | None, ours: bool, stay: set[str]
) -> tuple[list[Member], list[Member]]:
    """The members that stay in front, and those to carry, each Patch-Id once."""
    members = [member for member in line.series.select() if member.name not in stay]
    if joined is None:
        return [], members
    kept = list(joined.series.select())
    own = {_patch_id(line, member) for member in members}
    if ours:
        kept = [member for member in kept if _patch_id(joined, member) not in own]
    else:
        settled = {_patch_id(joined, member) for member in joined.series.patch}
        settled |= {one.id or one.name for one in joined.series.left}
        members = [member for member in members if _patch_id(line, member) not in settled]
    return kept, members


def _patch_id(line: Line, member: Member) -> str:
    mail = parse_mail(line.files[member.name], member.name)
    return mail.trailer("Patch-Id") or member.name


def _go_on(
    project: Project, line: Line, odb: ObjectStore, state: Rebase, emit: Emit, *,
    dry_run: bool = False, remembered: int = 0,
) -> Rebased:
    """Carry from `state.at` on, to the end or to the next conflict."""
    memory = Memory(project.paths.patches / line.series.upstream / "resolutions")
    parsed = items(line, state.members, project)
    old_base = open_base(project, line.series, emit).commit
    steps = carry_series(
        odb, parsed, old_base, state.base, answer=memory.answer, start=(state.at, state.tip)
    )
    found = behind(odb, parsed, old_base, state, steps, memory)
    for step in steps:
        if step.outcome in (Outcome.CONFLICT, Outcome.NOT_TRIED):
            break
        done = settled(step, state, found.get(step.name, ()))
        state = msgspec.structs.replace(
            state, done=(*state.done, done), at=state.at + 1, stopped=()
        )
    stopped = next((step for step in steps if step.outcome is Outcome.CONFLICT), None)
    ahead = Ahead()
    if stopped is not None:
        stopped = blamed(stopped, found.get(stopped.name, ()))
        ahead = look_ahead(odb, parsed, old_base, state, memory)
    if dry_run:
        return Rebased(
            state=opened(state, stopped), finished=stopped is None, dry_run=True, ahead=ahead
        )
    if stopped is None:
        trees.ending(project)
        parked, left = finish(project, line, odb, state, emit)
        trees.discard(project, state)
        return Rebased(
            state=state, finished=True, remembered=remembered, parked=parked, left=left
        )
    marked = stopped.tree or stopped.parent_tree
    place = trees.worktree(project, state)
    places = trees.present(odb, place, state.tip, stopped.trouble, marked)
    state = msgspec.structs.replace(state, stopped=places)
    trees.save(project, state)
    return Rebased(state=state, finished=False, remembered=remembered, ahead=ahead)


def resume(
    project: Project, emit: Emit, *, skip: bool = False, park: Reason | None = None,
    replacement: bytes | None = None,
) -> Rebased:
    """Go on after a conflict: with what stands in the worktree, or without the patch (`skip`).

    `replacement` is a rewritten patch mail with the same Patch-Id, made for the tip so far; `park`
    leaves the patch out with a reason. Raises `StateError` while markers remain.
    """
    with writing(project, "rebase", emit):
        state = trees.need(project)
        line = project.find(state.source)
        if line.digest([member.name for member in state.members]) != state.digest:
            raise StateError(
                f"the patch files of {line.id} changed during the rebase",
                hint="git restores them; stack rebase --abort begins anew",
            )
        workspace = trees.worktree(project, state)
        memory = Memory(project.paths.patches / line.series.upstream / "resolutions")
        with ObjectStore(workspace.repository) as odb:
            if not state.stopped:  # killed after its answer was kept: the worktree shows nothing
                return _go_on(project, line, odb, state, emit)
            item = items(line, [state.members[state.at]], project)[0]
            tip_tree = odb.commit(state.tip).tree
            remembered = 0
            if skip or park:
                tree, outcome = tip_tree, Outcome.NOT_TRIED
            elif replacement is not None:
                item = _replacement(item, replacement)
                done = apply_patch(odb, tip_tree, item.files)
                if done.tree is None:
                    raise Conflict(
                        "the replacement does not apply here",
                        context=[t for clash in done.clashes for t in clash.describe()],
                    )
                tree, outcome = done.tree, Outcome.MODIFIED
            else:
                if left := trees.unanswered(workspace, state.stopped):
                    raise StateError(
                        f"patch `{state.current}`: conflict markers remain",
                        context=left,
                        hint=f"edit them in {project.shown(workspace.tree)}, "
                        "then stack rebase --continue",
                    )
                tree = workspace.written_tree()
                outcome = Outcome.MODIFIED
                remembered = trees.remember(workspace, state.stopped, memory, state.current)
            dropped = tree == tip_tree
            commit = state.tip if dropped else make_commit(odb, tree, state.tip, item.mail)
            odb.write(commit)
            reason = park or ("skipped" if skip else None)
            settled = Done(
                name=item.name, outcome=Outcome.UPSTREAMED if dropped and not reason else outcome,
                commit=commit, tree=tree, dropped=dropped, notes=(reason,) if reason else (),
            )
            behind = (_left(line, item.name, park),) if park else ()
            state = msgspec.structs.replace(
                state, done=(*state.done, settled), at=state.at + 1, stopped=(),
                left=(*state.left, *behind),
            )
            trees.save(project, state)
            return _go_on(project, line, odb, state, emit, remembered=remembered)


def _replacement(item: Item, data: bytes) -> Item:
    """A rewritten patch, which must be the same patch by its Patch-Id."""
    mail = parse_mail(data, "the replacement")
    if mail.trailer("Patch-Id") != item.mail.trailer("Patch-Id"):
        raise UsageError(
            f"the replacement's Patch-Id is {mail.trailer('Patch-Id')}, but that of "
            f"`{item.name}` is {item.mail.trailer('Patch-Id')}"
        )
    files = parse_diff(mail.diff, "the replacement", first=mail.diff_line)
    return Item(name=item.name, mail=mail, files=files)


def abort(project: Project, emit: Emit) -> Rebase:
    """Give a rebase up; nothing of it remains but the answers that were given."""
    with writing(project, "rebase --abort", emit):
        state = trees.need(project)
        trees.discard(project, state)
        return state


def outcomes(done: Sequence[Done]) -> str:
    """`4 clean, 1 modified`."""
    counts: dict[str, int] = {}
    for one in done:
        counts[one.outcome.value] = counts.get(one.outcome.value, 0) + 1
    return ", ".join(f"{count} {name}" for name, count in counts.items()) or "no patches"
