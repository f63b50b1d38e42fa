"""`stack drop`: take patches out of a line."""

from __future__ import annotations

import click

from stack import options
from stack.context import Answer, Context, Verb
from stack.errors import UsageError
from stack.flows.line import arrange as flow


@click.command(short_help="Take patches out of a line")
@click.argument("patches", metavar="PATCH...", nargs=-1)
@options.choose_line
@options.going_on
@options.dry_run
def command(
    patches: tuple[str, ...], upstream: str | None, line: str | None, continue_: bool,
    abort_: bool, dry_run: bool,
) -> Verb:
    """Take patches out of a line: their files and entries go, and those above are replayed.

    At a conflict the files with markers wait in `.stack/restack/tree`: edit them, then --continue.
    """

    def run(ctx: Context) -> Answer:
        if continue_ or abort_:
            return options.go_on(ctx, abort=abort_, given=bool(patches))
        if not patches:
            raise UsageError("no patch named", hint="stack drop PATCH...")
        chosen = options.find_line(ctx.project, upstream, line)
        done = flow.drop(
            ctx.project, chosen, patches, ctx.console.emit, dry_run=dry_run, command=ctx.command
        )
        return options.restacked(ctx, done)

    return run
