"""`stack capture`: edits in an installed package become a patch."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from stack import options
from stack.console import Console
from stack.context import Answer, Context, Verb
from stack.errors import UsageError
from stack.flows.intake import capture as flow


@click.command(short_help="Make a patch of the edits in an installed package")
@click.argument("name")
@options.choose_line
@click.option(
    "--venv", metavar="VENV", type=click.Path(path_type=Path), help="An environment of your own"
)
@click.option(
    "--profile", metavar="NAME", help="The environment of a profile [default: its default]"
)
@click.option("--subject", metavar="TEXT", help="The commit's first line [default: the name]")
@click.option("--why", metavar="TEXT", help="The reason, for the `Why:` trailer")
@click.option("--only", multiple=True, metavar="PATH", help="Only this file; may be given again")
@options.dry_run
def command(
    name: str, upstream: str | None, line: str | None, venv: Path | None, profile: str | None,
    subject: str | None, why: str | None, only: tuple[str, ...], dry_run: bool,
) -> Verb:
    """Make a patch NAME of the edits that were made in an installed package.

    What differs from the package as it was installed, and from the layer that stands before it,
    becomes the last patch of the line. The edited files stay as they are.
    """

    def run(ctx: Context) -> Answer:
        project = ctx.project
        if venv is not None and profile is not None:
            raise UsageError("--venv and --profile both name an environment", hint="give one")
        chosen = options.find_line(project, upstream, line)
        place = (
            flow.place_of_venv(project, chosen, venv if venv.is_absolute() else ctx.folder / venv)
            if venv is not None
            else flow.place_of_profile(project, chosen, profile)
        )
        done = flow.capture(
            project, chosen, name, place, ctx.console.emit, subject=subject, why=why, only=only,
            dry_run=dry_run, command=ctx.command,
        )

        def show(console: Console) -> None:
            for word, paths in (
                ("changed", done.changed), ("added", done.added), ("removed", done.removed),
                ("left out", done.left_out),
            ):
                for path in paths:
                    console.out(f"{word:8} {path}")
            if not why and not dry_run:
                console.warn("no --why was given; stack lint will ask for a `Why:`")
            word = "would be" if dry_run else "is"
            console.say(
                f"{chosen.id}: patch {name} {word} its last; next: stack apply, stack show {name}"
            )

        return Answer(data={**msgspec.to_builtins(done), "dry_run": dry_run}, show=show)

    return run
