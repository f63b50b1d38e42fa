"""`stack promote`: make a patch active because a measurement says so."""

from __future__ import annotations

import click
import msgspec

from stack import options
from stack.console import Console
from stack.context import Answer, Context, Verb
from stack.flows.results import promote as flow


@click.command(short_help="Make a patch active because a measurement says so")
@click.argument("patch")
@options.choose_line
@click.option("--profile", metavar="NAME", help="Whose verdicts [default: the default profile]")
@click.option("--note", metavar="TEXT", help="A sentence for the evidence")
@click.option("--force", is_flag=True, help="Without a verdict for it; the evidence will say so")
@options.dry_run
def command(
    *, patch: str, upstream: str | None, line: str | None, profile: str | None, note: str | None,
    force: bool, dry_run: bool,
) -> Verb:
    """Make PATCH active, and keep the verdicts that say so beside its line.

    It needs a verdict FASTER or UNBLOCKED of the patch as it stands, and none against it. The file
    `evidence/PATCH.json` gets numbers, ids and machine; `stack undo` takes both back.
    """

    def run(ctx: Context) -> Answer:
        chosen = options.find_line(ctx.project, upstream, line)
        done = flow.decide(
            ctx.project, chosen, patch, "promoted", ctx.console.emit, profile_name=profile,
            note=note, force=force, dry_run=dry_run, command=ctx.command,
        )

        def show(console: Console) -> None:
            word = "would be" if dry_run else "is"
            forced = f", by force: {done.decision.missing}" if done.decision.forced else ""
            console.say(f"{done.line}: `{patch}` {word} active{forced}; {done.file}")
            if done.before != "active" and not dry_run:
                console.say(f"next: stack apply --line {done.line}")

        return Answer(data={**msgspec.to_builtins(done), "dry_run": dry_run}, show=show)

    return run
