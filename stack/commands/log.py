"""`stack log`: what was done."""

from __future__ import annotations

import click
import msgspec

from stack.console import Console
from stack.context import Answer, Context, Verb
from stack.flows.line.undo import history


@click.command(short_help="List what was done, for undo")
@click.option("--upstream", metavar="NAME", help="Only changes of this upstream")
@click.option(
    "-n", "count", type=click.IntRange(1), default=20, show_default=True, help="At most so many"
)
def command(upstream: str | None, count: int) -> Verb:
    """List the changes that stack made, newest first."""

    def run(ctx: Context) -> Answer:
        name = ctx.project.upstream(upstream)[0] if upstream else None
        rows = history(ctx.project, name)[-count:][::-1]

        def show(console: Console) -> None:
            for row in rows:
                console.out(f"{row.upstream}:{row.number}  {row.time}  {row.summary}")
            if not rows:
                console.say("nothing was done yet")

        return Answer(data={"operations": msgspec.to_builtins(rows)}, show=show)

    return run
