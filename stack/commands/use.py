"""`stack use`: a profile runs another prefix from now on."""

from __future__ import annotations

import click
import msgspec

from stack import options
from stack.console import Console
from stack.context import Answer, Context, Verb
from stack.flows.builds import serve as flow


@click.command(short_help="Make a profile run a prefix of a line from now on")
@click.argument("prefix", metavar="LINE[:PATCH]")
@click.option("--profile", metavar="NAME", help="A profile of stack.toml [default: its default]")
@options.dry_run
def command(prefix: str, profile: str | None, *, dry_run: bool) -> Verb:
    """Make a profile run a prefix of a line from now on.

    The prefix ends with PATCH; without one it is the whole line, and with nothing behind the
    colon the unpatched base. Missing layers are made first; the switch itself is one link,
    renamed, so what runs already keeps its files. `stack run` starts programs in it, `stack
    rollback` goes back.
    """

    def run(ctx: Context) -> Answer:
        serving, changed = flow.use(
            ctx.project, prefix, ctx.console.emit, profile=profile, dry_run=dry_run
        )

        def show(console: Console) -> None:
            for one in serving.layers:
                console.out(f"{one.line}  {one.patch or '(base)'}  {one.tree[:12]}")
            if dry_run:
                word = "would run" if changed else "runs already"
                console.say(f"profile {serving.profile} {word} {serving.chosen()}")
                return
            word = "runs" if changed else "runs already"
            console.say(
                f"profile {serving.profile} {word} {serving.chosen()} (number {serving.number}); "
                "next: stack run -- COMMAND"
            )

        data = {"changed": changed, "serving": msgspec.to_builtins(serving), "dry_run": dry_run}
        return Answer(data=data, show=show)

    return run
