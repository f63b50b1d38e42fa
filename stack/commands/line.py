"""`stack line`: the lines of a project."""

from __future__ import annotations

import click
import msgspec

from stack.console import Console
from stack.context import Answer, Context, Verb
from stack.flows import project_setup


@click.group(short_help="Add and list lines")
def command() -> None:
    """Add and list lines."""


@command.command("add")
@click.argument("pin", metavar="NAME@REV")
@click.option("--label", metavar="LABEL", help="Call the line so; default: the tag or release")
def add(pin: str, label: str | None) -> Verb:
    """Begin an empty line pinned at a commit, tag, branch or release."""

    def run(ctx: Context) -> Answer:
        name = pin.partition("@")[0]
        made = project_setup.add_line(
            ctx.project, pin, ctx.console.emit, label=label, command=ctx.command
        )

        def show(console: Console) -> None:
            console.say(
                f"began line {name}/{made.label} at {made.revision[:12]} (tree {made.tree[:12]}); "
                f"next: stack import --upstream {name}@{made.label} PATCH..."
            )

        return Answer(
            data={"line": f"{name}/{made.label}", "pin": msgspec.to_builtins(made)}, show=show
        )

    return run


@command.command("list")
def list_() -> Verb:
    """List the lines with their pins; * marks each upstream's default."""

    def run(ctx: Context) -> Answer:
        project = ctx.project
        rows = []
        for name, upstream in project.settings.upstream.items():
            labels = project.labels(name)
            for label in labels:
                series = project.series(name, label)
                default = label == (upstream.default or labels[-1])
                rows.append(
                    {
                        "line": series.id, "default": default, "patches": len(series.patch),
                        "pin": msgspec.to_builtins(series.pin), "revision": series.pin.revision,
                    }
                )

        def show(console: Console) -> None:
            for row in rows:
                mark = "*" if row["default"] else " "
                console.out(
                    f"{mark} {row['line']}  {str(row['revision'])[:12]}  {row['patches']} patches"
                )

        return Answer(data={"lines": rows}, show=show)

    return run
