"""`stack apply`: a line's patches become commits in its workspace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from stack import options
from stack.console import Console
from stack.context import Answer, Context, Verb
from stack.errors import UsageError
from stack.flows.base import forced
from stack.flows.line import apply as flow
from stack.flows.prefixes import patch_rows
from stack.store.project import Line, Project


@click.command(short_help="Apply a line in its workspace")
@options.choose_line
@options.choose_patches
@click.option("--from", "source", metavar="git|path|sdist", help="Take the base from this source")
@click.option("--profile", metavar="NAME", help="Apply every line of this profile")
@options.dry_run
def command(
    upstream: str | None, line: str | None, to: str | None, with_: tuple[str, ...],
    without: tuple[str, ...], source: str | None, profile: str | None, dry_run: bool,
) -> Verb:
    """Apply a line in its workspace, all or nothing, one commit per patch.

    The base comes from whichever source can serve the pin. A hunk goes exactly where its patch
    says, or to the only other place where its lines stand; there is no fuzz. Applying again gives
    the same ids and touches nothing. With --profile every line of it is applied, once it is sure
    that each of them can be, and that what their patches need of each other is there.
    """

    def run(ctx: Context) -> Answer:
        project = ctx.project
        forced_source = forced(source)
        if profile is not None:
            if upstream or line or to or with_ or without:
                raise UsageError("--profile names lines and patches, so nothing else may")
            name, _ = project.profile(profile)
            done = flow.apply_profile(
                project, name, ctx.console.emit, source=forced_source, dry_run=dry_run,
                command=ctx.command,
            )
            found = [_data(*one) for one in done]
            data = {
                "profile": name, "lines": found, "changed": any(one.changed for _, one in done),
                "patches": [
                    {"line": one["line"], **row} for one in found for row in one["patches"]
                ],
            }
            return Answer(data=data, show=_show(project, done, dry_run=dry_run))
        chosen = options.find_line(project, upstream, line)
        members = chosen.series.select(to=to, with_=with_, without=without)
        one = flow.apply(
            project, chosen, members, ctx.console.emit, source=forced_source, dry_run=dry_run,
            command=ctx.command,
        )
        pair = [(chosen, one)]
        return Answer(data=_data(chosen, one), show=_show(project, pair, dry_run=dry_run))

    return run


def _data(line: Line, done: flow.Applied) -> dict[str, Any]:
    receipt = done.receipt
    return {
        "line": line.id, "base": receipt.base, "base_tree": receipt.base_tree,
        "source": receipt.source, "digest": receipt.digest, "head": receipt.head,
        "tree": receipt.tree, "workspace": done.tree, "changed": done.changed,
        "left_out": list(done.left_out), "patches": patch_rows(line, receipt.steps),
    }


def _show(
    project: Project, found: Sequence[tuple[Line, flow.Applied]], *, dry_run: bool
) -> Callable[[Console], None]:
    def show(console: Console) -> None:
        for line, done in found:
            receipt = done.receipt
            console.table(
                ("patch", "outcome", "commit", "tree", "note"),
                [
                    (
                        step.name, f"{step.outcome.sigil} {step.outcome.value}",
                        (step.commit or "")[:12], (step.tree or "")[:12], "; ".join(step.offsets),
                    )
                    for step in receipt.steps
                ],
            )
            what = "would be applied" if dry_run else "applied" if done.changed else "unchanged"
            console.say(
                f"{line.id}: {flow.outcome_counts(receipt.steps)}, {what}; base "
                f"{receipt.base[:12]} from the {receipt.source}; {project.shown(Path(done.tree))}"
            )
            for path in done.left_out:
                console.warn(f"{line.id}: the source does not have {path}; left out")

    return show
