"""`stack import`: mail patches, a branch, or a pile of whatever people have joins a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import msgspec

from stack import options
from stack.console import Console
from stack.context import Answer, Context, Verb
from stack.errors import UsageError
from stack.flows.base import forced
from stack.flows.events import Said
from stack.flows.intake import branch as import_branch
from stack.flows.intake import kind as import_kind
from stack.flows.intake import mails as flow
from stack.flows.intake import piles
from stack.flows.pile import base as pile_base
from stack.flows.pile.fit import Prefer
from stack.store.project import Line


def _kinds(
    context: click.Context, parameter: click.Parameter, given: tuple[str, ...]
) -> dict[str, Prefer]:
    """The kinds by input; the last word on an input counts."""
    said: dict[str, Prefer] = {}
    for text in given:
        name, equals, kind = text.rpartition("=")
        if not equals or kind not in ("snapshot", "increment"):
            raise click.BadParameter(f"`{text}` is no FILE=snapshot or FILE=increment")
        said[name] = "snapshot" if kind == "snapshot" else "increment"
    return said


@click.command("import", short_help="Take mail patches, a branch or a pile of diffs into a line")
@click.argument(
    "paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH... | A..B"
)
@options.choose_line
@click.option(
    "--git", "repository", metavar="REPO", type=click.Path(path_type=Path),
    help="Take the commits A..B of this repository",
)
@click.option(
    "--as", "kind", type=click.Choice(["mails", "pile"]),
    help="Read everything as mail, strictly, or as a pile (otherwise told by what is there)",
)
@click.option(
    "--base", "bases", multiple=True, metavar="NAME@REV",
    help="The revision that a pile was made on, instead of the vote of its blob ids",
)
@click.option(
    "--kind", "kinds", multiple=True, metavar="FILE=snapshot|increment", callback=_kinds,
    help="What a diff of a pile is, where it fits its base and what stands as well",
)
@click.option("--from", "source", metavar="git|path|sdist", help="Take the base from this source")
@options.dry_run
def command(
    paths: tuple[Path, ...], upstream: str | None, line: str | None, source: str | None,
    repository: Path | None, kind: str | None, bases: tuple[str, ...],
    kinds: dict[str, Prefer], dry_run: bool,
) -> Verb:
    """Take mail patches, a branch, or a pile of diffs into a line, in order.

    Mail files, mailboxes and folders of them are read strictly: each must apply on the line's
    active patches and on those imported before it. Author, date and message are kept; a
    `Patch-Id:` is added where there is none. With --git the commits of a branch are taken, which
    must be a straight line.

    Everything else is a pile: plain, compressed or base64 diffs, diffs in Markdown, quilt series
    with options, snapshots of a worktree, an edited checkout or site-packages. Its base is found
    by a vote of blob ids, its order by series file, first commit, mail date or name; then the
    worktree is replayed and what each file changed becomes a patch. What cannot be taken whole is
    set aside: patches/imported.toml lists every file with the reason, and the exit code is 1, as
    it is where a diff without ids could have been meant in another way: `stack drop` it, then
    --kind settles it. What an import before has taken is skipped.
    """

    def run(ctx: Context) -> Answer:
        folder = ctx.folder.absolute()  # git runs elsewhere
        where = [folder / path for path in paths]
        if repository is None and not (kind == "mails" and not bases):
            why = "--as pile" if kind == "pile" else "--base" if bases else None
            why = why or ("--kind" if kinds else None)
            why = why or import_kind.why_pile(ctx.project, where, folder)
            if why is not None and kind != "mails":
                ctx.console.emit(Said(f"read as a pile: {why}"))
                return _pile(ctx, where, upstream, line, bases, kinds, source, dry_run=dry_run)
        if bases or kinds:
            word = "--base" if bases else "--kind"
            raise UsageError(f"{word} is for piles", hint="--upstream NAME@REV names the line")
        chosen = options.find_line(ctx.project, upstream, line)
        return _mails(
            ctx, chosen, where, folder / repository if repository else None, source,
            dry_run=dry_run, span=str(paths[0]),
        )

    return run


def _mails(
    ctx: Context, chosen: Line, where: Sequence[Path], repository: Path | None, source: str | None,
    *, dry_run: bool, span: str,
) -> Answer:
    """The strict way: mails, or the commits of a branch."""
    if repository is not None:
        if len(where) != 1:
            raise UsageError("--git takes one range", hint="stack import --git REPO A..B")
        placed = import_branch.import_branch(
            ctx.project, chosen, repository, span, ctx.console.emit, dry_run=dry_run,
            source=forced(source), command=ctx.command,
        )
    else:
        placed = flow.import_mails(
            ctx.project, chosen, where, ctx.console.emit, dry_run=dry_run, source=forced(source),
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

    name = chosen.series.upstream
    data = {
        "line": chosen.id, "patches": msgspec.to_builtins(placed),
        "inputs": [flow.as_input(row, name) for row in placed],
        "bases": {name: {"line": chosen.id, "revision": chosen.series.pin.label,
                         "tree": chosen.series.pin.tree}},
    }
    return Answer(data=data, show=show, exit_code=1 if aside else 0, partial=bool(aside))


def _pile(
    ctx: Context, where: Sequence[Path], upstream: str | None, line: str | None,
    bases: Sequence[str], kinds: Mapping[str, Prefer], source: str | None, *, dry_run: bool,
) -> Answer:
    """The tolerant way."""
    given = {text.partition("@")[0]: text.partition("@")[2] for text in bases}
    for name, revision in given.items():
        ctx.project.upstream(name)
        if not revision:
            raise UsageError(f"`{name}` names no revision", hint=f"--base {name}@REV")
    chosen = options.find_line(ctx.project, upstream, line) if upstream or line else None
    done = piles.import_pile(
        ctx.project, where, ctx.folder.absolute(), ctx.console.emit, line=chosen, bases=given,
        kinds=kinds, dry_run=dry_run, source=forced(source), command=ctx.command,
    )

    def show(console: Console) -> None:
        console.table(
            ("file", "upstream", "result", "patch", "reason"),
            [
                (
                    Path(row.file).name, row.upstream or "-",
                    f"{row.result} (known)" if row.known else row.result,
                    ", ".join(row.patches) or "-", _reason(row.reason, row.suggestion),
                )
                for row in done.rows
            ],
        )
        for name, one in done.votes.items():
            console.say(f"base of {one.said}; line {done.lines[name]}")
        word = "would come in" if dry_run else "came in"
        there = sum(not row.aside for row in done.rows) - done.added
        doubt = f", {done.unsure} could have been meant otherwise (--kind)" if done.unsure else ""
        listed = f"; listed in {ctx.project.shown(done.written)}" if done.written else ""
        console.say(
            f"ordered by {done.order}: {done.added} patches {word}, {there} brought nothing new, "
            f"{done.aside} set aside{doubt}{listed}"
        )

    data = {
        "inputs": msgspec.to_builtins(done.rows), "bases": pile_base.bases_of(done.votes),
        "lines": dict(done.lines), "order": done.order, "added": done.added, "dry_run": dry_run,
        "list": ctx.project.shown(done.written) if done.written else None,
    }
    left = bool(done.aside or done.unsure)
    return Answer(data=data, show=show, exit_code=1 if left else 0, partial=left)


def _reason(reason: str, suggestion: str) -> str:
    return "; ".join(text for text in (reason, suggestion) if text)
