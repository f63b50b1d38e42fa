"""`stack doctor`: what is here and what is missing."""

from __future__ import annotations

import click
import msgspec

from stack.console import Console
from stack.context import Answer, Context, Verb
from stack.errors import StateError
from stack.flows import doctor as flow


@click.command(short_help="Check this machine and project, and name what is missing")
def command() -> Verb:
    """Check this machine and project, and name what is missing. Changes nothing."""

    def run(ctx: Context) -> Answer:
        try:
            project = ctx.project
        except StateError:
            project = None
        checks = list(flow.examine(project))
        bad = [check for check in checks if check.result == "missing"]

        def show(console: Console) -> None:
            width = max(len(check.what) for check in checks)
            for check in checks:
                mark = {"ok": "ok", "note": "note", "missing": "missing"}[check.result]
                paint = {"ok": console.good, "note": console.dim, "missing": console.bad}[
                    check.result
                ]
                console.out(f"{paint(mark.ljust(7))} {check.what.ljust(width)}  {check.text}")
                if check.hint:
                    console.out(f"{'':7} {'':{width}}  hint: {check.hint}")
            if project is None:
                console.say("not in a project: only the machine was checked")

        data = {"checks": msgspec.to_builtins(checks), "missing": len(bad)}
        return Answer(data=data, show=show, exit_code=1 if bad else 0)

    return run
