"""`stack import`: mail patches join a line."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from stack import options
from stack.console import Console
from stack.context import Answer, Context, Verb
from stack.errors import UsageError
from stack.flows import import_branch
from stack.flows import import_mails as flow
from stack.flows.base import forced


@click.command("import", short_help="Take mail patches into a line, in order")
@click.argument(
    "paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH... | A..B"
)
@options.choose_line
@click.option(
    "--git", "repository", metavar="REPO", type=click.Path(path_type=Path),
    help="Take the commits A..B of this repository",
)
@click.option("--from", "source", metavar="git|path|sdist", help="Take the base from this source")
@options.dry_run
def command(
    paths: tuple[Path, ...], upstream: str | None, line: str | None, source: str | None,
    repository: Path | None, dry_run: bool,
) -> Verb:
    """Take mail patches, mailboxes and folders of them into a line, in order.

    Each must apply on the line's active patches and on those imported before it. What the line
    has already is skipped. Author, date and message are kept; a `Patch-Id:` is added where there
    is none. With --git the commits of a branch are taken, which must be a straight line.
    """

    def run(ctx: Context) -> Answer:
        project = ctx.project
        chosen = options.find_line(project, upstream, line)
        where = [path if path.is_absolute() else ctx.folder / path for path in paths]
        if repository is not None:
            if len(paths) != 1:
                raise UsageError("--git takes one range", hint="stack import --git REPO A..B")
            placed = import_branch.import_branch(
                project, chosen, ctx.folder / repository, str(paths[0]), ctx.console.emit,
                dry_run=dry_run, source=forced(source), command=ctx.command,
            )
        else:
            placed = flow.import_mails(
                project, chosen, where, ctx.console.emit, dry_run=dry_run, source=forced(source),
                command=ctx.command,
            )
        aside = [row for row in placed if not row.added and not row.known]
        added = sum(row.added for row in placed)

        def show(console: Console) -> None:
            console.table(
                ("file", "patch", "outcome", "note"),
                [
                    (
                        Path(row.file).name, row.name,
                        "" if row.known else f"{row.outcome.sigil} {row.outcome.value}", row.note,
                    )
                    for row in placed
                ],
            )
            word = "would be imported" if dry_run else "imported"
            console.say(
                f"{chosen.id}: {added} {word}, {len(placed) - added - len(aside)} there already, "
                f"{len(aside)} set aside; next: stack apply --line {chosen.id}"
            )

        data = {"line": chosen.id, "patches": msgspec.to_builtins(placed)}
        return Answer(data=data, show=show, exit_code=1 if aside else 0, partial=bool(aside))

    return run
