"""`stack bisect`: which patch, or which upstream commit, changed a bench."""

from __future__ import annotations

import click
import msgspec

from stack import options
from stack.console import Console
from stack.context import Answer, Context, Verb
from stack.flows.verify import bisect as flow


@click.command(short_help="Find the patch or upstream commit that changed a bench")
@click.option("--bench", metavar="NAME", required=True, help="A bench of stack.toml")
@click.option("--good", metavar="PATCH", help="The last good prefix [default: the base]")
@click.option("--bad", metavar="PATCH", help="A bad prefix [default: the last patch]")
@click.option(
    "--upstream", "commits", metavar="GOOD..BAD",
    help="Look among upstream's commits instead, with the line carried to each",
)
@click.option("--line", metavar="UPSTREAM/LABEL", help="The line of that name")
@click.option("--profile", metavar="NAME", help="A profile of stack.toml [default: its default]")
@click.option(
    "--pairs", type=click.IntRange(3, 8), metavar="N", default=flow.PAIRS, show_default=True,
    help="At most so many pairs of trials for each state",
)
@options.trust
@click.option("--fresh", is_flag=True, help="Measure again what the ledger holds already")
def command(
    *, bench: str, good: str | None, bad: str | None, commits: str | None, line: str | None,
    profile: str | None, pairs: int, trust: bool, fresh: bool,
) -> Verb:
    """Find what changed a bench: whether it runs, its gate, or its metric.

    The two ends are compared first; then the states between them, each a prefix of the line or an
    upstream commit with the line on top. A state that cannot be built, or whose command ends with
    125, cannot tell. What was measured before is not run again.

    Exit codes: 0 found, 1 nothing changed, 125 several are left and cannot be told apart.
    """

    def run(ctx: Context) -> Answer:
        options.end_on_term()
        name, settings = ctx.project.profile(profile)
        chosen = options.find_line(ctx.project, None, line or next(iter(settings.lines), None))
        if commits and (good or bad):
            raise click.UsageError("--upstream names both ends; --good and --bad are patches")
        done = options.trusting(
            ctx,
            lambda: flow.bisect(
                ctx.project, chosen, bench, ctx.console.emit, profile_name=name, good=good,
                bad=bad, upstream=commits, pairs=pairs, fresh=fresh,
            ),
            trust=trust,
        )
        data = {**msgspec.to_builtins(done), "profile": name}
        return Answer(
            data=data, exit_code=done.exit_code, show=lambda console: _show(console, done)
        )

    return run


def _show(console: Console, done: flow.Bisected) -> None:
    rows = [(one.name, one.answer, one.note) for one in done.asked]
    if rows:
        console.table(("state", "answer", "note"), rows)
    if done.ends is None:
        console.say(f"{done.good} and {done.bad} do not differ in {done.bench}")
    elif len(done.suspects) == 1:
        console.say(f"{done.suspects[0]} is the first that differs: {done.ends.note}")
    else:
        console.say(f"one of {', '.join(done.suspects)}; the others cannot tell")
