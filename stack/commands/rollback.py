"""`stack rollback`: a profile runs again what it ran before."""

from __future__ import annotations

import click
import msgspec

from stack import options
from stack.console import Console
from stack.context import Answer, Context, Verb
from stack.flows.builds import serve as flow


@click.command(short_help="Make a profile run again what it ran before")
@click.option("--profile", metavar="NAME", help="A profile of stack.toml [default: its default]")
@options.dry_run
def command(profile: str | None, *, dry_run: bool) -> Verb:
    """Make a profile run again what it ran before the last `stack use`; again for the one before.

    Nothing is built: one link is renamed.
    """

    def run(ctx: Context) -> Answer:
        left, now = flow.rollback(ctx.project, profile, dry_run=dry_run)

        def show(console: Console) -> None:
            word = "would run" if dry_run else "runs"
            console.say(
                f"profile {now.profile} {word} {now.chosen()} again, no more {left.chosen()}"
            )

        data = {
            "left": msgspec.to_builtins(left), "serving": msgspec.to_builtins(now),
            "dry_run": dry_run,
        }
        return Answer(data=data, show=show)

    return run
