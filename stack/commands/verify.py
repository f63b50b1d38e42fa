"""`stack verify`: measure each patch against the prefix before it."""

from __future__ import annotations

import signal

import click

from stack.console import Console
from stack.context import Answer, Context, Verb
from stack.flows import report
from stack.flows import verify as flow
from stack.model.trial import Mode, VerdictRecord

_GOOD = ("FASTER", "SAME", "UNBLOCKED")
_BAD = ("SLOWER", "BROKEN", "STALLED")


@click.command("verify")
@click.argument("patches", metavar="[PATCH]...", nargs=-1)
@click.option("--profile", metavar="NAME", help="A profile of stack.toml [default: its default]")
@click.option(
    "--pairs", type=click.IntRange(1, 8), metavar="N",
    help="At most so many pairs of trials for each patch [default: what the bench says]",
)
@click.option(
    "--mode", type=click.Choice(["marginal"]), default="marginal", show_default=True,
    help="Against which prefix: marginal is the one before the patch",
)
@click.option("--fresh", is_flag=True, help="Measure again what the ledger holds already")
def command(
    *, patches: tuple[str, ...], profile: str | None, pairs: int | None, mode: Mode, fresh: bool
) -> Verb:
    """Measure each patch against the prefix before it.

    Gates run first and a red gate gives no number. Trials alternate, each in a fresh process with
    caches of its own. Ctrl-C keeps what was measured; the next run goes on from there.

    Exit codes: 0 every claim holds, 1 one does not, 5 nothing could be measured.
    """

    def run(context: Context) -> Answer:
        signal.signal(signal.SIGTERM, _interrupt)
        found = flow.verify(
            context.project, profile, patches, context.console.emit, pairs=pairs,
            mode=mode, fresh=fresh,
        )
        verdicts = [one.record for one in found.proved]
        trials = {trial.id: trial for one in found.proved for trial in one.trials}
        data = {
            "profile": found.profile,
            "machine": {"id": found.machine.id, **found.machine.facts},
            "measured": found.measured,
            "patches": report.documents(verdicts, trials),
        }
        return Answer(
            data=data, exit_code=found.exit_code, show=lambda console: _show(console, verdicts)
        )

    return run


def _interrupt(*_: object) -> None:
    """End like Ctrl-C, so that the engine under test is ended too."""
    raise KeyboardInterrupt


def _show(console: Console, verdicts: list[VerdictRecord]) -> None:
    at = report.COLUMNS.index("verdict")
    shown = []
    for row in report.rows(verdicts):
        paint = console.good if row[at] in _GOOD else console.bad if row[at] in _BAD else str
        shown.append((*row[:at], paint(row[at]), *row[at + 1 :]))
    console.table(report.COLUMNS, shown, right=report.RIGHT)
    for record in verdicts:
        if record.holds is False:
            claim = f"claims to be {record.claim}" if record.claim else "has to be no worse"
            console.say(f"{record.patch}: {claim}, but it is {record.verdict}")
