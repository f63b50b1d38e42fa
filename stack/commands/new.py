"""`stack new`: make a patch of what is changed in the workspace."""

from __future__ import annotations

import click

from stack import options
from stack.context import Answer, Context, Verb
from stack.errors import UsageError
from stack.flows.line import refresh as flow
from stack.model.line.line import PatchKind

KINDS = ("fix", "feature", "diagnostic", "experiment")


@click.command(short_help="Make a patch of what is changed in the workspace")
@click.argument("name", required=False)
@click.option(
    "-m", "--message", multiple=True, metavar="TEXT",
    help="The subject; again for further paragraphs",
)
@click.option("--why", metavar="TEXT", help="The reason, for the `Why:` trailer")
@click.option("--kind", type=click.Choice(KINDS), default="feature", show_default=True,
              help="What sort of patch it is")
@options.choose_line
@options.going_on
@options.dry_run
def command(
    name: str | None, message: tuple[str, ...], why: str | None, kind: PatchKind,
    upstream: str | None, line: str | None, continue_: bool, abort_: bool, dry_run: bool,
) -> Verb:
    """Make the patch NAME of what is changed in the workspace and not committed, new files too.

    It comes right behind the last applied patch, with a `Patch-Id:` of its own and
    `Upstream-Status: Pending`.
    """

    def run(ctx: Context) -> Answer:
        if continue_ or abort_:
            return options.go_on(ctx, abort=abort_, given=bool(name))
        if name is None:
            raise UsageError("the patch needs a name", hint="stack new NAME -m SUBJECT --why TEXT")
        chosen = options.find_line(ctx.project, upstream, line)
        words = flow.Words(text=message, why=why, kind=kind)
        done = flow.new(
            ctx.project, chosen, name, words, ctx.console.emit, dry_run=dry_run,
            command=ctx.command,
        )
        if why is None and not dry_run:
            ctx.console.warn(f"{name} has no `Why:` yet: stack edit {name} --message")
        return options.restacked(ctx, done)

    return run
