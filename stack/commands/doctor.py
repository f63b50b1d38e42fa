"""`stack doctor`: what is here and what is missing."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from stack.console import Console
from stack.context import Answer, Context, Verb
from stack.errors import StateError, UsageError
from stack.flows import doctor as flow
from stack.flows.doctor_profile import examine_profile
from stack.store.project import Project


@click.command(short_help="Check this machine and project, and name what is missing")
@click.option("--profile", metavar="NAME", help="Check what this profile needs of the machine")
@click.option("--model", metavar="DIR", help="With --profile: weigh this checkpoint")
def command(profile: str | None, model: str | None) -> Verb:
    """Check this machine and project, and name what is missing. Changes nothing.

    With --profile: Python, compilers and the libraries that they link, devices, drivers, and
    memory for the checkpoint, each against what that profile asks for.
    """

    def run(ctx: Context) -> Answer:
        if profile is not None:
            name, _ = ctx.project.profile(profile)
            folder = ctx.folder / model if model else None
            project: Project | None = ctx.project
            checks = list(examine_profile(ctx.project, name, folder))
        elif model is not None:
            raise UsageError("--model weighs a checkpoint for a profile", hint="--profile NAME")
        else:
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

        data: dict[str, Any] = {"checks": msgspec.to_builtins(checks), "missing": len(bad)}
        if profile is not None:
            data["profile"] = profile
        return Answer(data=data, show=show, exit_code=1 if bad else 0)

    return run
