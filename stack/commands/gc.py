"""`stack gc`: remove what nothing needs any more."""

from __future__ import annotations

import click
import msgspec

from stack import options
from stack.console import Console
from stack.context import Answer, Context, Verb
from stack.flows.builds import gc as flow


@click.command(short_help="Remove what nothing needs any more")
@options.dry_run
def command(dry_run: bool) -> Verb:
    """Remove bases and layers that no profile uses, and what killed runs left.

    Patch files, workspaces, the log for undo and the ledger stay.
    """

    def run(ctx: Context) -> Answer:
        found = flow.collect(ctx.project, ctx.console.emit, dry_run=dry_run)
        size = sum(one.size for one in found)

        def show(console: Console) -> None:
            for one in found:
                console.out(f"{one.size / 1e6:10.1f} MB  {one.path}  ({one.why})")
            word = "would be removed" if dry_run else "removed"
            console.say(f"{len(found)} things {word}, {size / 1e6:.1f} MB")

        data = {"removed": msgspec.to_builtins(found), "bytes": size, "dry_run": dry_run}
        return Answer(data=data, show=show)

    return run
