"""`stack ledger`: what other labs measured comes in, what was measured here goes out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click
import msgspec

from stack import options
from stack.console import Console
from stack.context import Answer, Context, Verb
from stack.errors import UsageError
from stack.flows.results import ledger_evidence, ledger_import, ledger_out
from stack.model.visible import visible, visible_json
from stack.store import atomic


@click.group(short_help="Take in results of other labs, and hand out ours")
def command() -> None:
    """Take in results of other labs, and hand out ours."""


@command.command("import")
@click.argument(
    "paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@options.choose_line
@click.option("--by", metavar="LAB", required=True, help="Who measured")
@click.option("--ours", is_flag=True, help="These very patches, measured outside of verify")
@click.option("--machine", metavar="TEXT", help="On what")
@click.option("--model", metavar="NAME", help="Of what")
@click.option("--engine", metavar="TEXT", help="With what")
@options.dry_run
def import_(
    *, paths: tuple[Path, ...], upstream: str | None, line: str | None, by: str, ours: bool,
    machine: str | None, model: str | None, engine: str | None, dry_run: bool,
) -> Verb:
    """Put results of other labs beside a line, as history.

    Reads vLLM's bench JSON (throughput, latency, serve), PyTorch benchmark records, engine logs,
    and CSV or Markdown tables. They go to patches/LINE/evidence/, show in `stack report` as that
    lab's, and no verdict rests on them.
    """

    def run(ctx: Context) -> Answer:
        found = ledger_import.import_(
            ctx.project, options.find_line(ctx.project, upstream, line),
            [ctx.folder / path for path in paths],
            ledger_import.Lab(by=by, ours=ours, machine=machine, model=model, engine=engine),
            ctx.console.emit, dry_run=dry_run,
        )
        place = ctx.project.shown(found.path)

        def show(console: Console) -> None:
            fresh = msgspec.structs.replace(found.evidence, result=found.fresh)
            if found.fresh:
                cells = ledger_evidence.rows([fresh])
                console.table(ledger_evidence.COLUMNS, cells, right=ledger_evidence.RIGHT)
            word = "would add" if dry_run else "added"
            known = f", {found.known} were there" if found.known else ""
            console.say(f"{word} {len(found.fresh)} results to {place}{known}")

        data = {
            "path": place, "dry_run": dry_run, "known": found.known,
            "added": msgspec.to_builtins(found.fresh),
        }
        return Answer(data=data, show=show)

    return run


@command.command("out")
@click.option("--profile", metavar="NAME", help="A profile of stack.toml [default: its default]")
@click.option("--bench", "benches", metavar="NAME", multiple=True, help="Only this bench")
@click.option("--localmaxxing", "form", flag_value="localmaxxing", help="POST bodies, one a line")
@click.option("--vllm", "form", flag_value="vllm", help="PyTorch benchmark records, as vLLM's")
@click.option("--markdown", "form", flag_value="markdown", help="A table for a README")
@click.option("--csv", "form", flag_value="csv", help="A table with unrounded numbers")
@click.option("--model", metavar="OWNER/NAME", help="With --localmaxxing: the model's name there")
@click.option("--quantization", metavar="NAME", help="With --localmaxxing: such as int4")
@click.option(
    "-o", "--output", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
    help="Write to FILE instead",
)
def out(
    *, profile: str | None, benches: tuple[str, ...], form: str | None, model: str | None,
    quantization: str | None, output: Path | None,
) -> Verb:
    """Hand out what was measured here, in a form that others read.

    A sample is the median of the timed trials of one bench on one prefix and one machine. Nothing
    is sent anywhere: stdout is the document, without a form a table for people.
    """

    def run(ctx: Context) -> Answer:
        if output is not None and form is None:
            raise UsageError("-o needs a form", hint=f"stack ledger out --csv -o {output}")
        found = ledger_out.collect(ctx.project, profile, benches, ctx.console.emit)
        forms: dict[str, Callable[[], str]] = {
            "localmaxxing": lambda: ledger_out.payloads(
                ctx.project, found, model=model, quantization=quantization, emit=ctx.console.emit
            ),
            "vllm": lambda: ledger_out.vllm(found),
            "markdown": lambda: ledger_out.to_markdown(found),
            "csv": lambda: ledger_out.to_csv(found),
        }
        text = forms[form]() if form else ""
        text = visible(text) if form in ("markdown", "csv") else visible_json(text)
        if output is not None:
            atomic.write(ctx.folder / output, text.encode())

        def show(console: Console) -> None:
            if output is not None:
                console.say(f"wrote {output}")
            elif form is not None:
                console.raw(text.encode())
            else:
                rows = [
                    (one.run, str(len(one.values)), f"{one.value:.6g} {one.unit}", one.since[:10])
                    for one in found
                ]
                console.table(("run", "trials", "median", "since"), rows, right=("trials",))

        data = {"samples": msgspec.to_builtins(found), "form": form, "document": text or None}
        return Answer(data=data, show=show)

    return run
