"""`stack range-diff`: how the patches of one line differ from those of another."""

from __future__ import annotations

import click
import msgspec

from stack.console import Console
from stack.context import Answer, Context, Verb
from stack.flows.rebase import range_diff as flow

SIGILS = {"same": "=", "changed": "!", "removed": "<", "added": ">"}


@click.command("range-diff", short_help="Compare the patches of two lines")
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@click.option("--stat", is_flag=True, help="Only which patches differ, not how")
def command(old: str, new: str, stat: bool) -> Verb:
    """Show how the patches of one line differ from those of another, as a diff of diffs.

    OLD and NEW are lines (vllm/0.20.1) or patches of them (vllm/0.20.1:qk-contig). = the same,
    ! changed, < only in OLD, > only in NEW.
    """

    def run(ctx: Context) -> Answer:
        found = flow.range_diff(ctx.project, old, new, ctx.console.emit)

        def show(console: Console) -> None:
            for pair in found.pairs:
                names = dict.fromkeys(name for name in (pair.old, pair.new) if name)
                title = " -> ".join(names)
                console.out(f"{SIGILS[pair.status]} {title}  {pair.subject}")
                if not stat:
                    for row in pair.diff.splitlines():
                        console.out(f"    {row}")
            counts: dict[str, int] = {}
            for pair in found.pairs:
                counts[pair.status] = counts.get(pair.status, 0) + 1
            console.say(", ".join(f"{count} {word}" for word, count in counts.items()))

        return Answer(data=msgspec.to_builtins(found), show=show)

    return run
