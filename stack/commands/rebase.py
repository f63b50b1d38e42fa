"""`stack rebase`: carry a line to another commit."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from stack import options
from stack.console import Console
from stack.context import Answer, Context, Verb
from stack.errors import Conflict, UsageError
from stack.flows import pins
from stack.flows.rebase import rebase as flow
from stack.flows.rebase import tree as rebase_tree
from stack.model.line.line import REASONS, Reason
from stack.model.line.outcome import Outcome
from stack.model.line.rebase import Rebase
from stack.store.project import Project


@click.command(short_help="Carry a line to another commit")
@click.option(
    "--onto", metavar="NAME@REV",
    help="Where to: a commit, tag, branch, label or release (default: the newest release)",
)
@options.choose_line
@click.option("--label", metavar="LABEL", help="Call the new line so")
@click.option("--into", metavar="LINE", help="Join a line that exists at the target")
@click.option(
    "--ours", is_flag=True, help="With --into: of two patches with one Patch-Id keep ours"
)
@click.option(
    "--continue", "continue_", is_flag=True, help="Go on with what stands in the worktree"
)
@click.option("--skip", is_flag=True, help="Leave the patch out and go on")
@click.option(
    "--park", type=click.Choice(REASONS),
    help="Leave the patch behind for good, with this reason in series.toml, and go on",
)
@click.option(
    "--leave", multiple=True, metavar="PATCH=REASON",
    help=f"Leave this patch behind from the start; REASON is {', '.join(REASONS)}",
)
@click.option(
    "--replace",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Go on with a rewritten patch of the same Patch-Id",
)
@click.option("--abort", "abort_", is_flag=True, help="Give the rebase up; everything is as it was")
@click.option("--strict", is_flag=True, help="Exit 1 where a clean merge is suspect")
@options.dry_run
def command(
    onto: str | None, upstream: str | None, line: str | None, label: str | None, into: str | None,
    ours: bool, continue_: bool, skip: bool, park: Reason | None, leave: tuple[str, ...],
    replace: Path | None, abort_: bool, strict: bool, dry_run: bool,
) -> Verb:
    """Carry a line to another commit by merging each patch's two trees with the new one.

    The new line appears when all of it is carried; the old one stays. At a conflict the worktree
    `.stack/rebase/tree` holds the files with markers: edit them, then `--continue`. Every answer
    is kept in patches/UPSTREAM/resolutions/ and used again wherever the same question comes.
    """
    steps = [continue_, skip, park is not None, replace is not None, abort_]
    if sum(steps) > 1 or (any(steps) and onto):
        raise click.UsageError(
            "--onto, --continue, --skip, --park, --replace and --abort exclude each other"
        )

    def run(ctx: Context) -> Answer:
        project, behind = ctx.project, dict(map(_left, leave))
        if abort_:
            state = flow.abort(project, ctx.console.emit)
            text = f"gave up the rebase of {state.source} to {state.target}; nothing was changed"
            return Answer(data={"aborted": state.target}, show=lambda console: console.say(text))
        if any(steps):
            done = flow.resume(
                project, ctx.console.emit, skip=skip, park=park,
                replacement=replace.read_bytes() if replace else None,
            )
        else:
            name, _, revision = (onto or "").partition("@")
            chosen = options.find_line(project, upstream or (None if line else name or None), line)
            if name and chosen.series.upstream != name:
                raise UsageError(f"{chosen.id} is not a line of {name}")
            if not revision:
                name = chosen.series.upstream
                revision = pins.newest_release(project, name, ctx.console.emit)
            done = flow.start(
                project, chosen, revision, ctx.console.emit, label=label, into=into, ours=ours,
                leave=behind, dry_run=dry_run, command=ctx.command,
            )
        if not done.finished and not dry_run:
            raise _stopped(project, done)
        return Answer(
            data=_data(done.state) | {"parked": list(done.parked), "left_behind": list(done.left)},
            show=lambda console: _show(console, done),
            exit_code=3 if not done.finished else 1 if strict and _suspect(done.state) else 0,
        )

    return run


def _left(text: str) -> tuple[str, Reason]:
    """`PATCH=REASON` taken apart."""
    name, _, said = text.partition("=")
    reason = next((known for known in REASONS if known == said), None)
    if reason is None:
        raise UsageError(
            f"--leave {text}: `{said}` is no reason", hint=f"PATCH=REASON, {', '.join(REASONS)}"
        )
    return name, reason


def _suspect(state: Rebase) -> bool:
    return any(note.startswith("suspect: ") for done in state.done for note in done.notes)


class _Stopped(Conflict):
    """A rebase that waits for an answer."""

    def __init__(self, error: Conflict, data: dict[str, object]) -> None:
        super().__init__(error.message, context=error.context, hint=error.hint)
        self.data = data


def _stopped(project: Project, done: flow.Rebased) -> Conflict:
    state, remembered = done.state, done.remembered
    tree = project.shown(rebase_tree.worktree(project, state).tree)
    context = [f"{one.outcome.sigil} {one.name}" for one in state.done]
    for place in state.stopped:
        lines = ", ".join(str(region.line) for region in place.regions[:6])
        context.append(f"{tree}/{place.path}" + (f":{lines}" if lines else "") + f": {place.why}")
    context.append(
        f"{done.ahead.regions} open conflict regions from here on, {done.ahead.distinct} "
        f"distinct, {done.ahead.answered} more answered from memory"
    )
    if remembered:
        context.append(f"{remembered} answers kept for next time")
    error = Conflict(
        f"patch `{state.current}` ({state.at + 1} of {len(state.members)}) conflicts at "
        f"{state.target}",
        context=context,
        hint="edit the files there (or stack resolve), then stack rebase --continue; "
        "--skip, --park REASON, --replace FILE or --abort",
    )
    return _Stopped(error, _data(state) | {"ahead": msgspec.to_builtins(done.ahead)})


def _data(state: Rebase) -> dict[str, object]:
    rows: list[dict[str, object]] = [
        {
            "name": done.name, "state": "active", "outcome": done.outcome.value,
            "commit": done.commit, "tree": done.tree, "notes": list(done.notes),
            "dropped": done.dropped,
        }
        for done in state.done
    ]
    if state.current is not None:
        rows.append(
            {
                "name": state.current, "state": "active", "outcome": "conflict", "commit": None,
                "tree": None, "notes": [f"{place.path}: {place.why}" for place in state.stopped],
                "regions": [region.key for place in state.stopped for region in place.regions],
            }
        )
        rows += [
            {
                "name": member.name,
                "state": "active",
                "outcome": "not-tried",
                "commit": None,
                "tree": None,
            }
            for member in state.members[state.at + 1 :]
        ]
    return {
        "left": [msgspec.to_builtins(one) for one in state.left],
        "line": state.source, "target": state.target, "pin": msgspec.to_builtins(state.pin),
        "finished": state.current is None, "patches": rows,
    }


def _show(console: Console, done: flow.Rebased) -> None:
    state = done.state
    console.table(
        ("patch", "outcome", "commit", "note"),
        [
            (
                one.name, f"{one.outcome.sigil} {one.outcome.value}",
                "" if one.dropped else one.commit[:12], "; ".join(one.notes),
            )
            for one in state.done
        ],
    )
    for place in state.stopped:
        console.out(f"! {state.current}: {place.path}: {place.why}")
    word = "would be carried" if done.dry_run else "carried"
    console.say(f"{state.source} to {state.target}: {flow.outcomes(state.done)}, {word}")
    if done.parked:
        console.say(f"parked patches that came along: {', '.join(done.parked)}")
    for one in state.left:
        console.say(f"left behind for good: {one.name} ({one.reason})")
    if done.left:
        console.say(f"parked patches left behind: {', '.join(done.left)}")
    changed = [
        one.name for one in state.done if one.outcome is Outcome.MODIFIED and not one.dropped
    ]
    if changed and not done.dry_run:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        console.say(
            f"changed by the merge: {changed[0]}{more}; stack range-diff "
            f"{state.source}:{changed[0]} {state.target}:{changed[0]}"
        )
    if not done.dry_run:
        console.say(f"next: stack apply --line {state.target}")
