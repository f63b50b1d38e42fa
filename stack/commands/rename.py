"""`stack rename`: give a patch another name."""

from __future__ import annotations

import click

from stack import options
from stack.console import Console
from stack.context import Answer, Context, Verb
from stack.flows.line import rename as flow


@click.command(short_help="Give a patch another name")
@click.argument("patch")
@click.argument("name")
@options.choose_line
@options.dry_run
def command(
    patch: str, name: str, upstream: str | None, line: str | None, dry_run: bool
) -> Verb:
    """Give PATCH another name: its file and its entry; message and `Patch-Id:` stay."""

    def run(ctx: Context) -> Answer:
        chosen = options.find_line(ctx.project, upstream, line)
        flow.rename(
            ctx.project, chosen, patch, name, ctx.console.emit, dry_run=dry_run,
            command=ctx.command,
        )

        def show(console: Console) -> None:
            word = "would be" if dry_run else "is now"
            console.say(f"{chosen.id}: `{patch}` {word} `{name}`")

        data = {"line": chosen.id, "patch": patch, "name": name, "dry_run": dry_run}
        return Answer(data=data, show=show)

    return run
