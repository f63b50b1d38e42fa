"""`stack upstreamed`: where upstream's review of a patch stands."""

from __future__ import annotations

import click

from stack import options
from stack.console import Console
from stack.context import Answer, Context, Verb
from stack.flows.sharing import upstreaming as flow


@click.command(short_help="Record where upstream's review of a patch stands")
@click.argument("patch")
@options.choose_line
@click.option(
    "--status", type=click.Choice(flow.STATUS), required=True, help="In OpenEmbedded's words"
)
@click.option("--link", metavar="TEXT", help="The address, commit or reason that goes with it")
@options.dry_run
def command(
    patch: str, upstream: str | None, line: str | None, status: str, link: str | None, *,
    dry_run: bool,
) -> Verb:
    """Record where upstream's review of a patch stands, with its address.

    Only the `Upstream-Status:` trailer changes; patch file and workspace change together, and
    `stack undo` takes it back.
    """

    def run(ctx: Context) -> Answer:
        project = ctx.project
        chosen = options.find_line(project, upstream, line)
        before, now = flow.set_status(
            project, chosen, patch, status, ctx.console.emit, link=link, dry_run=dry_run,
            command=ctx.command,
        )

        def show(console: Console) -> None:
            word = "would become" if dry_run else "is now"
            console.say(
                f"{chosen.id}: {patch} {word} `{now}`" + (f", was `{before}`" if before else "")
            )

        data = {
            "line": chosen.id, "patch": patch, "before": before, "status": now,
            "changed": before != now, "dry_run": dry_run,
        }
        return Answer(data=data, show=show)

    return run
