"""`stack init`: a project begins."""

from __future__ import annotations

import click

from stack.console import Console
from stack.context import Answer, Context, Verb
from stack.flows.line import project_setup


@click.command(short_help="Start a project in a folder")
def command() -> Verb:
    """Start a project in this folder (or in the one that -C names)."""

    def run(ctx: Context) -> Answer:
        config = project_setup.init(ctx.folder)

        def show(console: Console) -> None:
            console.say(f"wrote {config}; next: stack upstream add NAME URL|PATH|pypi:PACKAGE")

        return Answer(data={"config": str(config.resolve())}, show=show)

    return run
