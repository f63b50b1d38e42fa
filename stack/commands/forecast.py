"""`stack forecast`: what a rebase would meet."""

from __future__ import annotations

import click
import msgspec

from stack import options
from stack.console import Console
from stack.context import Answer, Context, Verb
from stack.errors import UsageError
from stack.flows.rebase import forecast as flow


@click.command(short_help="Say what a rebase would meet, without touching anything")
@options.choose_line
@options.choose_patches
@click.option(
    "--onto",
    "onto",
    multiple=True,
    required=True,
    metavar="NAME@REV",
    help="A revision to look at; may be given again",
)
@click.option(
    "--why",
    is_flag=True,
    help="Name the upstream commit behind each outcome (asks the history: slower)",
)
@click.option("--strict", is_flag=True, help="Exit 1 where a clean merge is suspect")
@click.argument("more", nargs=-1, metavar="[NAME@REV]...")
def command(
    upstream: str | None, line: str | None, to: str | None, with_: tuple[str, ...],
    without: tuple[str, ...], onto: tuple[str, ...], more: tuple[str, ...], why: bool,
    strict: bool,
) -> Verb:
    """Say what a rebase of a line would meet at each revision, without touching anything.

    One letter a patch and revision: + clean, ~ merged with changes, = upstream has it, 0 empty,
    ! conflict, . not tried. Behind a conflict the patch's own lines are assumed, so that the
    patches after it are judged too.
    """

    def run(ctx: Context) -> Answer:
        project = ctx.project
        revisions = [*onto, *more]
        names = {text.partition("@")[0] for text in revisions}
        if len(names) > 1 or not all(text.partition("@")[2] for text in revisions):
            raise UsageError(
                "--onto takes NAME@REV, all of one upstream", hint="--onto vllm@0.29.0"
            )
        chosen = options.find_line(project, upstream or (None if line else names.pop()), line)
        members = chosen.series.select(to=to, with_=with_, without=without)
        found = flow.forecast(
            project, chosen, members, [text.partition("@")[2] for text in revisions],
            ctx.console.emit, why=why,
        )

        def show(console: Console) -> None:
            told = [column for column in found.columns if column.error is None]
            console.table(
                ("patch", *(column.revision for column in told)),
                [
                    (name, *(flow.LETTERS[column.cells[at].outcome] for column in told))
                    for at, name in enumerate(found.patches)
                ],
            )
            for column in told:
                for name, cell in zip(found.patches, column.cells, strict=True):
                    for text in (*cell.trouble, *cell.shrunk, *cell.moved, *cell.origins):
                        console.out(f"{column.revision}  {name}: {text}")
                    for text in cell.suspects:
                        console.out(f"{column.revision}  {name}: suspect: {text}")
            for column in found.columns:
                if column.error:
                    console.warn(f"{column.revision}: {column.error}")
            regions = sum(column.regions for column in told)
            answered = sum(column.answered for column in told)
            console.say(
                f"{regions} conflict regions, {found.distinct} distinct, {answered} answered "
                "from memory; nothing was written"
            )

        doubtful = any(cell.suspects for column in found.columns for cell in column.cells)
        return Answer(
            data=msgspec.to_builtins(found), show=show, exit_code=1 if strict and doubtful else 0
        )

    return run
