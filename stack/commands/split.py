"""`stack split`: cut a patch into parts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from stack import options
from stack.console import Console
from stack.context import Answer, Context, Verb
from stack.errors import UsageError
from stack.flows.line import split as flow
from stack.model.line import split as model
from stack.model.line.split import Part, Piece, Plan
from stack.repo.format import slug


@click.command(short_help="Cut a patch into parts whose sum is the patch")
@click.argument("patch")
@click.option(
    "--by", type=click.Choice(["folder", "file", "symbol"]), default=None,
    help="What makes a part: a group of folders (the default), a file, a class or function",
)
@click.option(
    "--plan", "plan_file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Cut as this plan says; where there is no such file, write one to edit",
)
@click.option("--interactive", "-i", is_flag=True, help="Ask for the part of every piece")
@options.choose_line
@options.dry_run
def command(
    patch: str, by: str | None, plan_file: Path | None, interactive: bool, upstream: str | None,
    line: str | None, dry_run: bool,
) -> Verb:
    """Cut a patch of a line into parts, which take its place.

    The sum of the parts is the patch, checked by the tree id; the patches above stay as they are.
    A plan that was edited can be run again: the parts of the last run are put together first.
    """

    def run(ctx: Context) -> Answer:
        if interactive and (plan_file or by):
            raise UsageError("--interactive makes the plan itself", hint="without --by and --plan")
        chosen = options.find_line(ctx.project, upstream, line)
        path = ctx.folder / plan_file if plan_file else None

        def choose(pieces: Sequence[Piece]) -> Plan:
            if interactive:
                return _ask(patch, pieces)
            if path is not None and path.exists() and by is None:
                return flow.read_plan(path, patch, str(plan_file))
            return model.suggested(patch, pieces, by or "folder")

        fresh = path is not None and (by is not None or not path.exists())
        if fresh or dry_run:
            made: list[Plan] = []

            def keep(pieces: Sequence[Piece]) -> Plan:
                made.append(choose(pieces))
                return made[0]

            done = flow.look(ctx.project, chosen, patch, keep, ctx.console.emit)
            if fresh and path is not None and not dry_run:
                flow.write_plan(path, made[0], done.parts)
                return _answer(done, f"wrote {plan_file}: edit it, then run this again")
            return _answer(done, "nothing was written")
        done = flow.split_patch(
            ctx.project, chosen, patch, choose, ctx.console.emit, command=ctx.command
        )
        return _answer(done, f"{len(done.parts)} parts, together tree {done.tree[:12]} as before")

    return run


def _answer(done: flow.Divided, said: str) -> Answer:
    def show(console: Console) -> None:
        console.table(
            ("part", "files", "pieces", "added", "removed"),
            [
                (
                    name, str(len({one.path for one in pieces})), str(len(pieces)),
                    f"+{sum(one.added for one in pieces)}",
                    f"-{sum(one.removed for one in pieces)}",
                )
                for name, pieces in done.parts.items()
            ],
            right=("files", "pieces", "added", "removed"),
        )
        console.say(f"{done.patch}: {said}")

    data = {
        "patch": done.patch, "tree": done.tree, "written": done.restacked is not None,
        "parts": [
            {"name": name, "pieces": msgspec.to_builtins(list(pieces))}
            for name, pieces in done.parts.items()
        ],
    }
    return Answer(data=data, show=show)


def _ask(patch: str, pieces: Sequence[Piece]) -> Plan:
    """A plan from answers: the name of a part for each piece, by default that of the last one."""
    takes: dict[str, list[str]] = {}
    last = f"{patch}-1"
    for piece in pieces:
        what = f"{piece.key} {piece.symbol} +{piece.added} -{piece.removed}".replace("  ", " ")
        last = slug(click.prompt(f"{what}: part", default=last, err=True))
        takes.setdefault(last, []).append(piece.key)
    return Plan(
        patch=patch,
        part=tuple(Part(name=name, take=tuple(some)) for name, some in takes.items()),
    )
