"""`stack list`: lines and their patches."""

from __future__ import annotations

import click
import msgspec

from stack import quick
from stack.console import Console
from stack.context import Answer, Context, Verb
from stack.errors import UsageError
from stack.model.line.line import near


@click.command(short_help="List lines and their patches")
@click.argument("names", nargs=-1, metavar="[UPSTREAM | LINE]...")
def command(names: tuple[str, ...]) -> Verb:
    """List lines and their patches, in order.

    + is applied by default, - is parked, x was left behind by a rebase.
    """

    def run(ctx: Context) -> Answer:
        project = ctx.project
        root = str(project.paths.root)
        known = quick.lines(root)
        wanted = [*known, *{line.partition("/")[0] for line in known}]
        for name in names:
            if name not in wanted:
                raise UsageError(
                    f"no line or upstream `{name}`", hint=near(name, wanted, "stack list")
                )
        chosen = [
            project.series(*line.split("/", 1))
            for line in known
            if not names or {line, line.partition("/")[0]} & set(names)
        ]
        data = {
            "lines": [
                {
                    "line": series.id, "pin": msgspec.to_builtins(series.pin),
                    "patches": [msgspec.to_builtins(member) for member in series.patch],
                    "left": [msgspec.to_builtins(one) for one in series.left],
                }
                for series in chosen
            ]
        }

        def show(console: Console) -> None:
            console.out(quick.list_text(root, list(names)).rstrip("\n"))

        return Answer(data=data, show=show)

    return run
