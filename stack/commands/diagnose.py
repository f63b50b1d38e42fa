"""`stack diagnose`: what logs say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from stack.console import Console
from stack.context import Answer, Context, Verb
from stack.flows.results import diagnose as flow
from stack.store import atomic, paths


@click.command("diagnose", short_help="Say how runs ended and why, from their logs")
@click.argument("logs", metavar="LOG...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--layers", type=click.IntRange(min=1), metavar="N",
    help="The model has N layers with experts; shows where the time of a token goes",
)
@click.option("--all", "everything", is_flag=True, help="Show what else the logs complain about")
@click.option(
    "--svg", "picture", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
    help="Draw where the time goes into FILE",
)
def command(
    *, logs: tuple[Path, ...], layers: int | None, everything: bool, picture: Path | None
) -> Verb:
    """Say how runs ended and why, from their logs.

    For each log: the outcome class, the innermost cause, where it stands and what to do; then
    throughput, memory, graphs, compilation and tables of times, as far as the log has them. Needs
    no project; inside of one its [[signature]] tables count too.

    Exit codes: 0 every log is ok, 1 one is not.
    """

    def run(ctx: Context) -> Answer:
        project = ctx.project if paths.find_root(ctx.folder) else None
        # A path that is absolute stays itself; data names logs as they were typed.
        found = flow.diagnose(project, [ctx.folder / log for log in logs], layers=layers)
        for document, log in zip(found, logs, strict=True):
            document["path"] = str(log)
        if picture is not None:
            from stack.report.log_picture import draw

            atomic.write(ctx.folder / picture, draw(found).encode())

        def show(console: Console) -> None:
            for at, document in enumerate(found):
                if at:
                    console.out()
                _show(console, document, everything=everything)
            if picture is not None:
                console.say(f"wrote {picture}")

        good = all(document["class"] == flow.OK for document in found)
        return Answer(data={"logs": found}, show=show, exit_code=0 if good else 1)

    return run


def _show(console: Console, document: Mapping[str, Any], *, everything: bool) -> None:
    path = flow.printable(document["path"])
    good = document["class"] == flow.OK
    outcome = (console.good if good else console.bad)(document["class"])
    console.out(f"{path}: {outcome}")
    if document["cause"]:
        where = f"{path}:{document['line']}: " if document["line"] else ""
        console.out(f"  {where}{flow.printable(document['cause'])}")
    if document["hint"]:
        console.out(f"  hint: {document['hint']}")
    if everything:
        for finding in document["findings"]:
            often = f" ({finding['count']} times)" if finding["count"] > 1 else ""
            text = flow.printable(finding["text"])
            console.out(f"  {path}:{finding['line']}: {finding['class']}: {text}{often}")
    elif document["findings"] and not good:
        more = f"and {len(document['findings'])} more: --all"
        console.out(f"  {console.dim(more)}")
    facts = list(flow.facts(document))
    width = max((len(name) for name, _ in facts), default=0)
    for name, text in facts:
        console.out(f"  {name:{width}}  {text}")
    for table in flow.tables(document):
        console.out()
        console.out(table.title)
        console.table(table.columns, table.rows, right=table.right)
