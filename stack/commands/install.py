"""`stack install`: a layer in an environment of one's own."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from stack.console import Console
from stack.context import Answer, Context, Verb
from stack.errors import StateError, UsageError
from stack.flows.builds import install_into as flow
from stack.flows.builds.serve import parse


@click.command(short_help="Put a layer into an environment of your own, or take it out")
@click.argument("prefix", required=False, metavar="[LINE[:PATCH]]")
@click.option(
    "--into", "into", required=True, metavar="VENV", type=click.Path(path_type=Path),
    help="The virtual environment",
)
@click.option("--remove", is_flag=True, help="Take it out again, without a trace")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and write nothing")
def command(prefix: str | None, into: Path, *, remove: bool, dry_run: bool) -> Verb:
    """Put the layer of a prefix into a virtual environment that you already have.

    The installed package stays as it is: one path file puts the patched files before it, for every
    program of that environment. Version and files of the package are checked first. With --remove
    the path file and the layer go, and nothing remains.
    """

    def run(ctx: Context) -> Answer:
        project = ctx.project
        venv = flow.open_venv(into if into.is_absolute() else ctx.folder / into)
        if remove:
            chosen = [project.find(parse(prefix)[0]).series.upstream] if prefix else None
            names = [n for n in flow.removable(project, venv) if not chosen or n in chosen]
            if not names:
                raise StateError(f"{venv.path}: no layer of this project stands there",
                                 hint="stack status names the environments that have one")
            if not dry_run:
                for name in names:
                    flow.remove(project, venv, name)
            word = "would be taken" if dry_run else "taken"
            return Answer(
                data={"venv": str(venv.path), "removed": names, "dry_run": dry_run},
                show=lambda console: console.say(
                    f"{', '.join(names)}: the layer is {word} out of {venv.path}"
                ),
            )
        if prefix is not None and not parse(prefix)[0]:
            raise UsageError(f"`{prefix}` names no line", hint="LINE[:PATCH]; stack line list")
        done = flow.install(project, venv, prefix, ctx.console.emit, dry_run=dry_run)

        def show(console: Console) -> None:
            record = done.record
            if not dry_run:
                for name in record.files:
                    console.out(name)
            word = "is there already" if not done.changed else (
                "would be put" if dry_run else "stands")
            console.say(
                f"{record.line}:{record.patch or ''} {word} before {record.distribution} in "
                f"{venv.path}" + ("" if dry_run else "; --remove takes it out")
            )

        data = {**msgspec.to_builtins(done), "dry_run": dry_run}
        return Answer(data=data, show=show)

    return run
