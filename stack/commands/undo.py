"""`stack undo`: take the last change back."""

from __future__ import annotations

import click
import msgspec

from stack.console import Console
from stack.context import Answer, Context, Verb
from stack.flows.line import undo as flow


@click.command(short_help="Take the last change back")
@click.option("--upstream", metavar="NAME", help="Only changes of this upstream")
@click.option("--redo", is_flag=True, help="Do again what the last undo took back")
def command(upstream: str | None, redo: bool) -> Verb:
    """Take the last change back: patch files, commits and worktree, as they were.

    Undo again for the change before it. It stops where somebody changed something since.
    """

    def run(ctx: Context) -> Answer:
        project = ctx.project
        name = project.upstream(upstream)[0] if upstream else None
        done = flow.undo(project, ctx.console.emit, upstream=name, redo=redo, command=ctx.command)

        def show(console: Console) -> None:
            console.say(f"{'redid' if redo else 'undid'} {done.number}: {done.summary}")

        return Answer(data={"operation": msgspec.to_builtins(done), "redo": redo}, show=show)

    return run
