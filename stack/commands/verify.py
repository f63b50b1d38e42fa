"""`stack verify`: measure each patch against the prefix before it, or the noise of a machine."""

from __future__ import annotations

import click
import msgspec

from stack import options
from stack.console import Console
from stack.context import Answer, Context, Verb
from stack.errors import UsageError
from stack.flows.cluster.clustering import Where
from stack.flows.results import report
from stack.flows.verify import calibrate as noise
from stack.flows.verify import verify as flow
from stack.model.measure.trial import Mode, VerdictRecord

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
    "--mode", type=click.Choice(["marginal", "cumulative", "leave-one-out"]), default="marginal",
    show_default=True,
    help="marginal: each prefix against the one before it; cumulative: against the base; "
    "leave-one-out: the whole line without the patch against the whole line",
)
@click.option(
    "--calibrate", is_flag=True,
    help="Measure the noise of this machine instead: pairs with nothing changed [default: 8 pairs]",
)
@options.on_cluster
@click.option(
    "--machines", type=click.IntRange(min=1), metavar="N",
    help="With --on ray, measure each comparison on N different machines [default: 1; with "
    "--calibrate all]",
)
@options.trust
@click.option("--fresh", is_flag=True, help="Measure again what the ledger holds already")
def command(
    *, patches: tuple[str, ...], profile: str | None, pairs: int | None, mode: Mode,
    calibrate: bool, on: str, address: str | None, machines: int | None, trust: bool, fresh: bool,
) -> Verb:
    """Measure each patch against the prefix before it.

    Gates run first and a red gate gives no number. Trials alternate, each in a fresh process with
    caches of its own; patches that share a prefix share its trials. A patch with switches is also
    measured with them off, where it has to be the same. Ctrl-C keeps what was measured; the next
    run goes on from there. Without --calibrate first, verdicts are marked uncalibrated.

    Exit codes: 0 every claim holds, 1 one does not, 5 nothing could be measured.
    """

    def run(context: Context) -> Answer:
        where = options.where(on, address, machines)
        options.end_on_term()
        if calibrate:
            if where and machines is None:  # the noise of every machine that is there
                where = msgspec.structs.replace(where, machines=None)
            return options.trusting(
                context,
                lambda: _calibrate(
                    context, profile, patches, pairs, mode=mode, fresh=fresh, where=where
                ),
                trust=trust,
            )
        found = options.trusting(
            context,
            lambda: flow.verify(
                context.project, profile, patches, context.console.emit, pairs=pairs, mode=mode,
                fresh=fresh, where=where,
            ),
            trust=trust,
        )
        verdicts = [one.record for one in found.proved]
        trials = {trial.id: trial for one in found.proved for trial in one.trials}
        data = {
            "profile": found.profile,
            "machine": {"id": found.machine.id, **found.machine.facts},
            "measured": found.measured,
            "hosts": {trial.host: trial.machine for trial in trials.values() if trial.host},
            "patches": report.documents(verdicts, trials),
        }
        return Answer(
            data=data, exit_code=found.exit_code, show=lambda console: _show(console, verdicts)
        )

    return run


def _calibrate(
    context: Context, profile: str | None, patches: tuple[str, ...], pairs: int | None, *,
    mode: Mode, fresh: bool, where: Where | None,
) -> Answer:
    if mode != "marginal":
        raise UsageError("--calibrate compares nothing, so it has no --mode", hint="give one")
    found = noise.calibrate(
        context.project, profile, patches, context.console.emit, pairs=pairs or noise.PAIRS,
        fresh=fresh, where=where,
    )
    rows = [
        (
            one.bench, f"{one.value:.4g} {one.unit}", str(len(one.ratios)),
            f"{100 * one.sd:.2f} %", ", ".join(f"{100 * ratio:+.1f}" for ratio in one.ratios),
        )
        for one in found.benches
    ]
    columns = ("bench", "value", "pairs", "sd of a pair", "differences in %")
    data = {
        "profile": found.profile,
        "machine": {"id": found.machine.id, **found.machine.facts},
        "calibrations": [msgspec.to_builtins(one) for one in found.benches],
    }
    return Answer(data=data, show=lambda console: console.table(columns, rows))


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
