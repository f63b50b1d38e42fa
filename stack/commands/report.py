"""`stack report`: the last verdicts as a table, as text for others, or as a page."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import click

from stack.console import Console
from stack.context import Answer, Context, Verb
from stack.errors import StateError, UsageError
from stack.flows.results import ledger_evidence
from stack.flows.results import report as flow
from stack.model.exchange.evidence import Evidence
from stack.model.visible import visible
from stack.store import atomic
from stack.store.project import Line

Format = Literal["html", "md", "csv"]
History = list[tuple[Line, Path, Evidence]]


@click.command("report")
@click.option("--profile", metavar="NAME", help="A profile of stack.toml [default: its default]")
@click.option("--md", "as_markdown", is_flag=True, help="Print Markdown, for a README")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV with unrounded numbers")
@click.option("--html", "as_html", is_flag=True, help="Print one page that holds everything")
@click.option(
    "--forecast", "revisions", multiple=True, metavar="[UPSTREAM@]REV",
    help="Say on the page what a rebase there would meet as well",
)
@click.option(
    "-o", "--output", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
    help="Write to FILE instead; of --html, --md or --csv",
)
def command(
    *, profile: str | None, as_markdown: bool, as_csv: bool, as_html: bool,
    revisions: tuple[str, ...], output: Path | None,
) -> Verb:
    """Show the last verdicts as a table.

    Every number comes from the ledger; nothing is measured. The page of --html has the line as a
    ladder, the history of each bench, machines, and each patch with its diff; it loads nothing, so
    it can be sent as it is. What other labs measured (`stack ledger import`) stands apart, below.
    """

    def run(context: Context) -> Answer:
        if revisions and not as_html:
            hint = "stack report --html --forecast REV"
            raise UsageError("--forecast is for the page", hint=hint)
        form = _format(as_html=as_html, as_markdown=as_markdown, as_csv=as_csv, output=output)
        alone = form == "html" and not (profile or context.project.settings.profile)
        if alone and (page := _only_imported(context)) is not None:
            return _alone(context, page, output)
        name, chosen = context.project.profile(profile)
        history = ledger_evidence.of_profile(context.project, chosen)
        try:
            found = flow.report(context.project, profile, context.console.emit)
        except StateError as wrong:
            if form == "html" and (page := _only_imported(context)) is not None:
                return _alone(context, page, output)
            if not history or form is not None:
                raise
            return _only_history(context, history, name, wrong)
        data = {
            "profile": found.profile,
            "patches": flow.documents(found.verdicts, found.trials, found.stale),
            "history": ledger_evidence.documents(history, context.project),
        }
        if form is not None:
            text = _text(context, found, form, revisions)
            if form == "md":
                text += ledger_evidence.to_markdown(history)
            return _written(context, text, output, data)

        def show(console: Console) -> None:
            rows = flow.rows(found.verdicts, found.stale)
            console.table(flow.COLUMNS, rows, right=flow.RIGHT)
            _show_history(console, history)

        return Answer(data=data, show=show)

    return run


def _only_imported(context: Context) -> str | None:
    """The page of what an import took and set aside, where nothing was measured yet."""
    from stack.flows.results import report_page

    return report_page.imported(context.project)


def _alone(context: Context, page: str, output: Path | None) -> Answer:
    """That page as the answer."""
    data: dict[str, object] = {"profile": None, "patches": [], "history": []}
    more = ": nothing was measured yet, so it has the import alone"
    return _written(context, page, output, data, more)


def _written(
    context: Context, text: str, output: Path | None, data: Mapping[str, object], more: str = ""
) -> Answer:
    """A text in a form for others: into `output`, else shown."""
    text = visible(text)
    if output is not None:
        atomic.write(context.folder / output, text.encode())

    def show(console: Console) -> None:
        if output is not None:
            console.say(f"wrote {output}{more}")
        else:
            console.raw(text.encode())

    return Answer(data=data, show=show)


def _only_history(
    context: Context, history: History, name: str, wrong: StateError
) -> Answer:
    """The answer where nothing was measured here, but other labs told what they found."""

    def show(console: Console) -> None:
        console.say(f"{wrong.message}; hint: {wrong.hint}")
        _show_history(console, history)

    documents = ledger_evidence.documents(history, context.project)
    return Answer(data={"profile": name, "patches": [], "history": documents}, show=show)


def _show_history(console: Console, history: History) -> None:
    for line, _, evidence in history:
        console.out(f"\n{line.id}, {ledger_evidence.title(evidence)}")
        cells = ledger_evidence.rows([evidence])
        console.table(ledger_evidence.COLUMNS, cells, right=ledger_evidence.RIGHT)
        for fact in ledger_evidence.facts(evidence):
            console.out(fact)


def _format(
    *, as_html: bool, as_markdown: bool, as_csv: bool, output: Path | None
) -> Format | None:
    """The one format that was asked for; `UsageError` for two, or where it cannot be shown."""
    asked: dict[Format, bool] = {"html": as_html, "md": as_markdown, "csv": as_csv}
    chosen = [name for name, given in asked.items() if given]
    if len(chosen) > 1:
        flags = " and ".join(f"--{name}" for name in chosen)
        raise UsageError(f"{flags} are {len(chosen)} formats", hint="choose one of them")
    if output is not None and not chosen:
        raise UsageError("-o needs a format", hint=f"stack report --html -o {output}")
    if as_html and output is None and sys.stdout.isatty():
        raise UsageError("a page is for a browser", hint="stack report --html -o report.html")
    return chosen[0] if chosen else None


def _text(
    context: Context, found: flow.Report, form: Format, revisions: tuple[str, ...]
) -> str:
    if form == "html":
        from stack.flows.results import report_page

        return report_page.page(
            context.project, found, context.console.emit, revisions=revisions
        )
    return flow.to_markdown(found) if form == "md" else flow.to_csv(found)
