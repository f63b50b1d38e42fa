"""`stack report`: the last verdicts as a table."""

from __future__ import annotations

import click

from stack.console import Console
from stack.context import Answer, Context, Verb
from stack.errors import UsageError
from stack.flows import report as flow


@click.command("report")
@click.option("--profile", metavar="NAME", help="A profile of stack.toml [default: its default]")
@click.option("--md", "as_markdown", is_flag=True, help="Print Markdown, for a README")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV with unrounded numbers")
def command(*, profile: str | None, as_markdown: bool, as_csv: bool) -> Verb:
    """Show the last verdicts as a table.

    Every number comes from the ledger; nothing is measured.
    """

    def run(context: Context) -> Answer:
        if as_markdown and as_csv:
            raise UsageError("--md and --csv are two formats", hint="choose one of them")
        found = flow.report(context.project, profile, context.console.emit)

        def show(console: Console) -> None:
            if as_markdown:
                console.raw(flow.to_markdown(found).encode())
            elif as_csv:
                console.raw(flow.to_csv(found).encode())
            else:
                console.table(flow.COLUMNS, flow.rows(found.verdicts), right=flow.RIGHT)

        patches = flow.documents(found.verdicts, found.trials)
        return Answer(data={"profile": found.profile, "patches": patches}, show=show)

    return run
