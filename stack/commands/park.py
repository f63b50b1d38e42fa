"""`stack park`: take a patch out of use, with the reason and what was measured."""

from __future__ import annotations

from typing import get_args

import click
import msgspec

from stack import options
from stack.console import Console
from stack.context import Answer, Context, Verb
from stack.flows.results import promote as flow
from stack.model.line.line import Reason


@click.command(short_help="Take a patch out of use, with the reason and what was measured")
@click.argument("patch")
@options.choose_line
@click.option(
    "--reason", type=click.Choice(get_args(Reason)), required=True,
    help="negative needs a verdict against it, neutral one that finds no effect",
)
@click.option("--profile", metavar="NAME", help="Whose verdicts [default: the default profile]")
@click.option("--note", metavar="TEXT", help="A sentence for the evidence")
@click.option("--force", is_flag=True, help="Without a verdict for it; the evidence will say so")
@options.dry_run
def command(
    *, patch: str, upstream: str | None, line: str | None, reason: Reason, profile: str | None,
    note: str | None, force: bool, dry_run: bool,
) -> Verb:
    """Park PATCH: it stays in its place of the series and is not applied any more.

    What was measured goes into `evidence/PATCH.json` beside the line; `stack undo` takes both back,
    and `stack verify PATCH` measures a parked patch where it stands.
    """

    def run(ctx: Context) -> Answer:
        chosen = options.find_line(ctx.project, upstream, line)
        done = flow.decide(
            ctx.project, chosen, patch, "parked", ctx.console.emit, profile_name=profile,
            reason=reason, note=note, force=force, dry_run=dry_run, command=ctx.command,
        )

        def show(console: Console) -> None:
            word = "would be" if dry_run else "is"
            forced = f", by force: {done.decision.missing}" if done.decision.forced else ""
            console.say(f"{done.line}: `{patch}` {word} parked as {reason}{forced}; {done.file}")
            if done.before == "active" and not dry_run:
                console.say(f"next: stack apply --line {done.line}")

        return Answer(data={**msgspec.to_builtins(done), "dry_run": dry_run}, show=show)

    return run
