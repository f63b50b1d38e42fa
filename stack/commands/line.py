"""`stack line`: the lines of a project."""

from __future__ import annotations

import click
import msgspec

from stack import options
from stack.console import Console
from stack.context import Answer, Context, Verb
from stack.errors import UsageError
from stack.flows.line import project_setup


@click.group(short_help="Add, list and remove lines, and choose the default")
def command() -> None:
    """Add, list and remove lines, and choose the default."""


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


@command.command("default")
@click.argument("line", metavar="LINE", shell_complete=options.complete_lines)
def default(line: str) -> Verb:
    """Make a line the one that its upstream's name alone means."""

    def run(ctx: Context) -> Answer:
        project = ctx.project
        chosen = project.find(line)
        changed = project_setup.set_default(project, chosen)

        def show(console: Console) -> None:
            word = "is now" if changed else "was already"
            console.say(f"{chosen.id} {word} the default line of {chosen.series.upstream}")

        return Answer(data={"line": chosen.id, "changed": changed}, show=show)

    return run


@command.command("remove")
@click.argument("line", metavar="LINE", shell_complete=options.complete_lines)
@options.dry_run
def remove(line: str, *, dry_run: bool) -> Verb:
    """Remove a line: its patch files and its workspace, which must be clean.

    `stack undo` brings both back.
    """

    def run(ctx: Context) -> Answer:
        project = ctx.project
        if "/" not in line:
            raise UsageError(f"`{line}` is not a line", hint="stack line remove UPSTREAM/LABEL")
        chosen = project.find(line)
        project_setup.remove_line(
            project, chosen, ctx.console.emit, dry_run=dry_run, command=ctx.command
        )
        count = len(chosen.series.patch)

        def show(console: Console) -> None:
            word = "would be removed" if dry_run else "removed; stack undo brings it back"
            console.say(f"{chosen.id} with {count} patches {word}")

        data = {
            "line": chosen.id, "dry_run": dry_run,
            "patches": [{"name": member.name} for member in chosen.series.patch],
        }
        return Answer(data=data, show=show)

    return run
