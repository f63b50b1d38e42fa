"""`stack watch`: one page about the verify or screen that runs now."""

from __future__ import annotations

import sys
import time

import click
import msgspec

from stack.console import Console
from stack.context import Answer, Context, Verb
from stack.errors import StateError
from stack.flows.verify import watch as flow
from stack.flows.verify.watch_page import lines


@click.command("watch", short_help="Look on while a verify or screen runs")
@click.option(
    "--interval", type=click.FloatRange(min=0.1), default=1.0, show_default=True, metavar="S",
    help="Look again every S seconds",
)
@click.option("--once", is_flag=True, help="Print one page and end")
def command(*, interval: float, once: bool) -> Verb:
    """Look on while a verify or screen of this project runs, from any other terminal.

    Verdicts so far, the trial that runs, the end of its log, and how long it may take. It only
    reads what the run leaves on disk, ends with it or with Ctrl-C, and prints one page on a pipe.
    """

    def run(ctx: Context) -> Answer:
        page = flow.look(ctx.project)
        if not once and sys.stdout.isatty() and "--json" not in ctx.command:
            with ctx.console.live() as draw:
                try:
                    while True:
                        draw(list(lines(page)))
                        time.sleep(interval)
                        page = flow.look(ctx.project)
                except (StateError, KeyboardInterrupt):
                    pass

        def show(console: Console) -> None:
            for line in lines(page):
                console.out(line)

        return Answer(data=msgspec.to_builtins(page), show=show)

    return run
