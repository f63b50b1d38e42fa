"""`stack move`: put a patch elsewhere in its line."""

from __future__ import annotations

import click

from stack import options
from stack.context import Answer, Context, Verb
from stack.errors import UsageError
from stack.flows.line import arrange as flow


@click.command(short_help="Put a patch elsewhere in its line")
@click.argument("patch", required=False)
@click.option("--before", metavar="PATCH", help="Put it right before this one")
@click.option("--after", metavar="PATCH", help="Put it right after this one")
@options.choose_line
@options.going_on
@options.dry_run
def command(
    patch: str | None, before: str | None, after: str | None, upstream: str | None,
    line: str | None, continue_: bool, abort_: bool, dry_run: bool,
) -> Verb:
    """Put a patch elsewhere in its line; what stands between and above is replayed.

    At a conflict the files with markers wait in `.stack/restack/tree`: edit them, then --continue.
    """

    def run(ctx: Context) -> Answer:
        if continue_ or abort_:
            return options.go_on(ctx, abort=abort_, given=bool(patch or before or after))
        if patch is None or bool(before) == bool(after):
            raise UsageError(
                "one patch and one place are needed",
                hint="stack move PATCH --before OTHER, or --after OTHER",
            )
        chosen = options.find_line(ctx.project, upstream, line)
        done = flow.move(
            ctx.project, chosen, patch, ctx.console.emit, before=before, after=after,
            dry_run=dry_run, command=ctx.command,
        )
        return options.restacked(ctx, done)

    return run
