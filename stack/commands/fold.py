"""`stack fold`: make one patch of two."""

from __future__ import annotations

import click

from stack import options
from stack.context import Answer, Context, Verb
from stack.errors import UsageError
from stack.flows.line import arrange as flow


@click.command(short_help="Make one patch of two")
@click.argument("patch", required=False)
@click.argument("target", metavar="[INTO]", required=False)
@click.option("--into", metavar="PATCH", help="The patch that stays")
@options.choose_line
@options.going_on
@options.dry_run
def command(
    patch: str | None, target: str | None, into: str | None, upstream: str | None,
    line: str | None, continue_: bool, abort_: bool, dry_run: bool,
) -> Verb:
    """Make one patch of two: PATCH goes into INTO, which keeps its place, message and author.

    At a conflict the files with markers wait in `.stack/restack/tree`: edit them, then --continue.
    """

    def run(ctx: Context) -> Answer:
        if continue_ or abort_:
            return options.go_on(ctx, abort=abort_, given=bool(patch or into))
        kept = into or target
        if patch is None or kept is None or (into and target):
            raise UsageError("two patches are needed", hint="stack fold PATCH --into PATCH")
        chosen = options.find_line(ctx.project, upstream, line)
        done = flow.fold(
            ctx.project, chosen, patch, kept, ctx.console.emit, dry_run=dry_run,
            command=ctx.command,
        )
        return options.restacked(ctx, done)

    return run
