"""`stack doctor`: what is here and what is missing."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from stack import options
from stack.console import Console
from stack.context import Answer, Context, Verb
from stack.errors import StateError, UsageError
from stack.flows.doctor import doctor as flow
from stack.flows.doctor.model import examine_model
from stack.flows.doctor.profile import examine_profile
from stack.store.project import Project


@click.command(short_help="Check this machine and project, and name what is missing")
@click.option("--profile", metavar="NAME", help="Check what this profile needs of the machine")
@click.option("--model", metavar="DIR", help="With --profile: weigh and preflight this checkpoint")
@click.option(
    "--bench", "benches", metavar="NAME", multiple=True,
    help="With --profile: the arguments of this bench [default: those that the profile names]",
)
@options.trust
def command(
    profile: str | None, model: str | None, benches: tuple[str, ...], trust: bool
) -> Verb:
    """Check this machine and project, and name what is missing. Changes nothing.

    With --profile: Python, compilers and the libraries that they link, devices, drivers, and
    memory for the checkpoint, each against what that profile asks for; and what vLLM would refuse
    of the checkpoint with the arguments of a bench, before anything is loaded.
    """

    def run(ctx: Context) -> Answer:
        if trust:
            options.allow(ctx)
        if profile is not None:
            name, _ = ctx.project.profile(profile)
            folder = ctx.folder / model if model else None
            project: Project | None = ctx.project
            checks = [
                *examine_profile(ctx.project, name, folder),
                *examine_model(ctx.project, name, folder, benches),
            ]
        elif model is not None or benches:
            said = "--model weighs a checkpoint" if model else "--bench names arguments"
            raise UsageError(f"{said} for a profile", hint="--profile NAME")
        else:
            try:
                project = ctx.project
            except StateError:
                project = None
            checks = list(flow.examine(project))
        bad = [check for check in checks if check.result in ("missing", "refused")]

        def show(console: Console) -> None:
            width = max(len(check.what) for check in checks)
            for check in checks:
                paint = {"ok": console.good, "note": console.dim}.get(check.result, console.bad)
                mark = paint(check.result.ljust(7))
                console.out(f"{mark} {check.what.ljust(width)}  {check.text}")
                if check.hint:
                    console.out(f"{'':7} {'':{width}}  hint: {check.hint}")
            if project is None:
                console.say("not in a project: only the machine was checked")

        refused = sum(check.result == "refused" for check in checks)
        data: dict[str, Any] = {
            "checks": msgspec.to_builtins(checks), "missing": len(bad) - refused,
            "refused": refused,
        }
        if profile is not None:
            data["profile"] = profile
        return Answer(data=data, show=show, exit_code=1 if bad else 0)

    return run
