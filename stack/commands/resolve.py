"""`stack resolve`: conflict regions, open and remembered."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from stack.console import Console
from stack.context import Answer, Context, Verb
from stack.flows.rebase import resolve as flow
from stack.flows.rebase import tree as rebase_tree
from stack.model.diff.merge3 import Region


@click.command(short_help="Answer conflict regions, and tend the memory of answers")
@click.argument("region", required=False, metavar="[KEY | PATH]")
@click.option(
    "--take",
    type=click.Choice(["target", "patch", "both"]),
    help="Put that side in place of the region, of a path's regions, or of all",
)
@click.option("--list", "list_", is_flag=True, help="List the remembered answers")
@click.option("--show", is_flag=True, help="Show a region, or a remembered answer, with its sides")
@click.option("--forget", is_flag=True, help="Forget the remembered answer KEY")
@click.option("--upstream", metavar="NAME", help="Whose memory")
def command(
    region: str | None, take: str | None, list_: bool, show: bool, forget: bool,
    upstream: str | None,
) -> Verb:
    """Answer the open regions of a stopped rebase, and tend the memory of answers.

    Without options it lists what is open. Editing the files in `.stack/rebase/tree` with any
    editor or `git mergetool` is as good; `stack rebase --continue` keeps the answers either way.
    """
    if (show or forget) and not region:
        raise click.UsageError("--show and --forget take a KEY")

    def run(ctx: Context) -> Answer:
        project = ctx.project
        if forget:
            key = flow.forget(
                project, flow.upstream_of(project, upstream), region or "", ctx.console.emit
            )
            return Answer(data={"forgotten": key}, show=lambda c: c.say(f"forgot {key}"))
        if list_:
            known = flow.memory_of(project, flow.upstream_of(project, upstream)).known
            rows = [
                {"key": key, "path": one.path, "patch": one.patch} for key, one in known.items()
            ]

            def answers(console: Console) -> None:
                for row in rows:
                    console.out(f"{row['key'][:12]}  {row['path']}  ({row['patch']})")

            return Answer(data={"answers": rows}, show=answers)
        if take:
            side: flow.Take = take  # type: ignore[assignment]
            done = flow.take(project, region, side, ctx.console.emit)
            left = flow.open_regions(project)

            def told(console: Console) -> None:
                for one in done:
                    console.out(f"{one.path}:{one.line}: took {take}")
                console.say(
                    f"{len(left)} regions left; "
                    + ("stack resolve" if left else "stack rebase --continue")
                )

            return Answer(
                data={"taken": [one.key for one in done], "open": [one.key for one in left]},
                show=told,
            )
        if show and region:
            return _show_one(ctx, region, upstream)
        found = flow.open_regions(project)

        def listed(console: Console) -> None:
            for one in found:
                console.out(f"{one.key[:12]}  {one.path}:{one.line}")
            console.say(
                f"{len(found)} open regions" + ("" if found else "; stack rebase --continue")
            )

        return Answer(data={"open": [msgspec.to_builtins(one) for one in found]}, show=listed)

    return run


def _show_one(ctx: Context, wanted: str, upstream: str | None) -> Answer:
    """An open region, else a remembered answer."""
    project = ctx.project
    if rebase_tree.load(project) is not None:
        for one in flow.open_regions(project):
            if one.key.startswith(wanted) or one.path == wanted:
                return _answer(msgspec.to_builtins(one), one.region, None)
    key, found = flow.remembered(project, flow.upstream_of(project, upstream), wanted)
    data = {"key": key, **msgspec.to_builtins(found)}
    return _answer(data, found.region, found.side("answer"))


def _answer(data: dict[str, Any], region: Region, reply: bytes | None) -> Answer:
    return Answer(data=data, show=lambda console: _sides(console, region, reply))


def _sides(console: Console, region: Region, answer: bytes | None) -> None:
    sides = [("before the patch", region.base), ("target", region.target), ("patch", region.patch)]
    if answer is not None:
        sides.append(("answer", answer))
    for name, data in sides:
        console.out(console.dim(f"--- {name}"))
        console.raw(data if not data or data.endswith(b"\n") else data + b"\n")
