"""`stack upstream`: the source repositories of a project."""

from __future__ import annotations

import click
import msgspec

from stack.console import Console
from stack.context import Answer, Context, Verb
from stack.flows.line import project_setup
from stack.flows.pins import fetch_upstream


@click.group(short_help="Add, fetch and list upstreams")
def command() -> None:
    """Add, fetch and list upstreams."""


@command.command("add")
@click.argument("name")
@click.argument("where", metavar="URL|PATH|pypi:PACKAGE")
def add(name: str, where: str) -> Verb:
    """Name a source of an upstream; a second one for the same name is an alternative."""

    def run(ctx: Context) -> Answer:
        values = project_setup.add_upstream(ctx.project, name, where, ctx.folder)

        def show(console: Console) -> None:
            what = ", ".join(f"{key} {value}" for key, value in values.items())
            console.say(f"{name}: {what}; next: stack line add {name}@REV")

        return Answer(data={"upstream": name, **values}, show=show)

    return run


@command.command("fetch")
@click.argument("name", required=False)
def fetch(name: str | None) -> Verb:
    """Bring the mirror of an upstream up to date: full history, files when they are needed."""

    def run(ctx: Context) -> Answer:
        chosen, _ = ctx.project.upstream(name)
        text = fetch_upstream(ctx.project, chosen, ctx.console.emit)
        return Answer(data={"upstream": chosen, "done": text}, show=lambda c: c.say(text))

    return run


@command.command("list")
def list_() -> Verb:
    """List the upstreams with their sources and lines."""

    def run(ctx: Context) -> Answer:
        project = ctx.project
        rows = {
            name: {**msgspec.to_builtins(upstream), "lines": project.labels(name)}
            for name, upstream in project.settings.upstream.items()
        }

        def show(console: Console) -> None:
            for name, row in rows.items():
                console.out(name)
                for key in ("git", "path", "sdist", "default"):
                    if row[key]:
                        console.out(f"  {key:8} {row[key]}")
                console.out(f"  {'lines':8} {' '.join(row['lines']) or '(none)'}")
            if not rows:
                console.say("no upstreams yet: stack upstream add NAME URL|PATH|pypi:PACKAGE")

        return Answer(data={"upstreams": rows}, show=show)

    return run
