"""`stack ci`: one exit code for a pull request."""

from __future__ import annotations

import os
from pathlib import Path

import click
import msgspec

from stack import options
from stack.console import Console
from stack.context import Answer, Context, Verb
from stack.flows.sharing import ci as flow


@click.command(short_help="Ask everything that a pull request has to answer, in one exit code")
@options.choose_line
@click.option(
    "--artifact", metavar="DIR", type=click.Path(path_type=Path),
    help="Write the files that `export` would write otherwise below DIR, and their diff",
)
@click.option("--no-forecast", is_flag=True, help="Do not ask for the newest release")
@click.option("--strict", is_flag=True, help="Fail on what the newest release would not take")
@click.option(
    "--github", is_flag=True, envvar="GITHUB_ACTIONS", help="Write findings as annotations too"
)
def command(
    upstream: str | None, line: str | None, artifact: Path | None, *, no_forecast: bool,
    strict: bool, github: bool,
) -> Verb:
    """Ask everything that a pull request has to answer: exit 0, or 1 with what to mend.

    Every line applies on its pin; its files are as `stack export` writes them; lint has nothing to
    say; the patches that profiles need are there. A forecast to the newest release tells what is
    coming; it is skipped where no source can be reached, and fails only with --strict.
    """

    def run(ctx: Context) -> Answer:
        project = ctx.project
        if upstream or line:
            lines = [options.find_line(project, upstream, line)]
        else:
            lines = [
                project.line(name, label)
                for name in project.settings.upstream
                for label in project.labels(name)
            ]
        done = flow.judge(
            project, lines, ctx.console.emit, forecast=not no_forecast, strict=strict,
            artifact=ctx.folder / artifact if artifact is not None else None,
        )

        def show(console: Console) -> None:
            console.table(
                ("step", "of", "result", "note"),
                [(step.name, step.subject, step.result, step.text) for step in done.steps],
            )
            for step in done.steps:
                for one in step.findings:
                    where = f"{one.file}:{one.at}: " if one.file else ""
                    console.out(f"{where}{step.name}: {one.text}")
                    if github:
                        console.out(_annotation(step, one, project.paths.root))
                if step.hint:
                    console.say(f"{step.name} of {step.subject}: hint: {step.hint}")
            if done.artifact:
                console.say(f"{len(done.fixed)} fixed files below {done.artifact}")
            failed = [step for step in done.steps if step.result == "failed"]
            console.say(
                f"{len(failed)} of {len(done.steps)} steps failed" if failed
                else f"all {len(done.steps)} steps hold"
            )

        data = {"ok": done.ok, **msgspec.to_builtins(done)}
        return Answer(data=data, show=show, exit_code=0 if done.ok else 1)

    return run


def _annotation(step: flow.Step, finding: flow.Finding, root: Path) -> str:
    """A workflow command of GitHub Actions; `%`, newlines, `,` and `:` as it wants them."""
    level = "error" if step.result == "failed" else "notice"
    text = finding.text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    if not finding.file:
        return f"::{level} title=stack {step.name}::{text}"
    checkout = os.environ.get("GITHUB_WORKSPACE") or root
    file = os.path.relpath(root / finding.file, checkout)
    file = file.replace("%", "%25").replace(",", "%2C").replace(":", "%3A")
    return f"::{level} file={file},line={finding.at},title=stack {step.name}::{text}"
