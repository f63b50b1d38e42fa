"""`stack apply`: a line's patches become commits in its workspace."""

from __future__ import annotations

from pathlib import Path

import click

from stack import options
from stack.console import Console
from stack.context import Answer, Context, Verb
from stack.flows import apply as flow
from stack.flows.base import forced
from stack.flows.prefixes import patch_rows


@click.command(short_help="Apply a line in its workspace")
@options.choose_line
@options.choose_patches
@click.option("--from", "source", metavar="git|path|sdist", help="Take the base from this source")
@options.dry_run
def command(
    upstream: str | None, line: str | None, to: str | None, with_: tuple[str, ...],
    without: tuple[str, ...], source: str | None, dry_run: bool,
) -> Verb:
    """Apply a line in its workspace, all or nothing, one commit per patch.

    The base comes from whichever source can serve the pin. A hunk goes exactly where its patch
    says, or to the only other place where its lines stand; there is no fuzz. Applying again gives
    the same ids and touches nothing.
    """

    def run(ctx: Context) -> Answer:
        project = ctx.project
        chosen = options.find_line(project, upstream, line)
        members = chosen.series.select(to=to, with_=with_, without=without)
        done = flow.apply(
            project, chosen, members, ctx.console.emit, source=forced(source), dry_run=dry_run,
            command=ctx.command,
        )
        receipt = done.receipt
        data = {
            "line": chosen.id, "base": receipt.base, "base_tree": receipt.base_tree,
            "source": receipt.source, "digest": receipt.digest, "head": receipt.head,
            "tree": receipt.tree, "workspace": done.tree, "changed": done.changed,
            "patches": patch_rows(chosen, receipt.steps),
        }

        def show(console: Console) -> None:
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
                f"{chosen.id}: {flow.outcome_counts(receipt.steps)}, {what}; base "
                f"{receipt.base[:12]} from the {receipt.source}; {project.shown(Path(done.tree))}"
            )

        return Answer(data=data, show=show)

    return run
