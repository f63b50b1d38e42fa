"""`stack screen`: knobs of a bench against the best setting so far."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from stack import options
from stack.console import Console
from stack.context import Answer, Context, Verb
from stack.flows.results import report
from stack.flows.verify import screen as flow
from stack.flows.verify import screen_plan
from stack.model.measure.screen_setting import Setting, arguments, environment, label

_GOOD = ("FASTER", "SAME", "UNBLOCKED")
_BAD = ("SLOWER", "BROKEN", "STALLED", "BLOCKED")
_COLUMNS = ("setting", "against", "verdict", "ratio", "pairs", "note")


@click.command("screen", short_help="Try knobs of a bench against the best setting so far")
@click.argument("wanted", metavar="NAME|FILE")
@click.option("--profile", metavar="NAME", help="Another profile than the screen's")
@click.option(
    "--runs", type=click.IntRange(min=1), metavar="N", help="Begin no candidate after N trials"
)
@click.option(
    "--minutes", type=click.FloatRange(min=0, min_open=True), metavar="M",
    help="Begin no candidate after M minutes",
)
@click.option(
    "--pairs", type=click.IntRange(1, 8), metavar="N",
    help="At most so many pairs of trials for each candidate",
)
@options.on_cluster
@options.trust
@click.option("--fresh", is_flag=True, help="Measure again what the ledger holds already")
@options.dry_run
def command(
    *, wanted: str, profile: str | None, runs: int | None, minutes: float | None,
    pairs: int | None, on: str, address: str | None, trust: bool, fresh: bool, dry_run: bool,
) -> Verb:
    """Try knobs of a bench against the best setting so far.

    A screen stands in [screen.NAME] of stack.toml or in a FILE: knobs and their values, which
    change together, which not at all, and a budget. What vLLM would refuse is never started; the
    others alternate with the best setting in fresh processes, are given up early where that
    is hopeless, and get verdicts as `stack verify` gives them. Ctrl-C keeps what was measured.

    Exit codes: 0 done, 5 nothing could be measured.
    """

    def run(context: Context) -> Answer:
        project, emit = context.project, context.console.emit
        where = options.where(on, address)
        name, found = screen_plan.find(project, wanted, context.folder)
        plan = options.trusting(
            context,
            lambda: screen_plan.plan(project, name, found, emit, profile=profile, pairs=pairs),
            trust=trust,
        )
        if dry_run:
            return _planned(plan)
        options.end_on_term()
        done = options.trusting(
            context,
            lambda: flow.screen(
                project, plan, emit, runs=runs, minutes=minutes, fresh=fresh, where=where
            ),
            trust=trust,
        )
        rows = [_document(one) for one in done.tried]
        data = {
            "screen": name, "profile": plan.profile_name, "bench": found.bench,
            "machine": {"id": done.machine.id, **done.machine.facts}, "runs": done.runs,
            "best": _setting(done.best), "candidates": rows,
            "left": [one.label for one in done.left],
        }
        return Answer(
            data=data, show=lambda console: _show(console, done), exit_code=done.exit_code,
            partial=bool(done.left),
        )

    return run


def _setting(setting: Setting) -> dict[str, Any]:
    return {
        "label": label(setting), "env": environment(setting), "arguments": arguments(setting),
    }


def _document(one: flow.Tried) -> dict[str, Any]:
    record = one.record
    return {
        **_setting(one.candidate.setting), "against": one.against, "verdict": record.verdict,
        "ratio": record.ratio,
        "interval": None if record.low is None else [record.low, record.high],
        "pairs": record.pairs, "note": record.note, "cause": record.cause,
        "before": record.before_value, "after": record.after_value, "unit": record.unit,
        "tokens_differ": one.tokens_differ,
        "refused": msgspec.to_builtins(one.candidate.refusal),
        "trials": [msgspec.to_builtins(trial) for trial in one.trials],
    }


def _planned(plan: screen_plan.Plan) -> Answer:
    open_ = [one for one in plan.candidates if one.refusal is None]
    most = len(open_) * plan.each

    def show(console: Console) -> None:
        for one in plan.candidates:
            point = one.refusal
            why = f"{console.bad('refused')}  {point.what}: {point.text}" if point else ""
            console.out(f"{one.label}  {why}".rstrip())
        console.say(
            f"{len(open_)} of {len(plan.candidates)} settings would be tried on "
            f"{plan.profile_name}: at most {most} trials of {plan.screen.bench}"
        )

    data = {
        "screen": plan.name, "profile": plan.profile_name, "bench": plan.screen.bench,
        "dry_run": True, "trials": most,
        "candidates": [
            {**_setting(one.setting), "refused": msgspec.to_builtins(one.refusal)}
            for one in plan.candidates
        ],
    }
    return Answer(data=data, show=show)


def _show(console: Console, done: flow.Screened) -> None:
    rows = []
    for one in done.tried:
        verdict = one.record.verdict
        paint = console.good if verdict in _GOOD else console.bad if verdict in _BAD else str
        rows.append((
            one.candidate.label, one.against, paint(verdict), report.ratio(one.record),
            str(one.record.pairs or "-"), one.record.note,
        ))
    console.table(_COLUMNS, rows, right=("ratio", "pairs"))
    console.say(f"best: {label(done.best)}")
    if done.left:
        left = ", ".join(one.label for one in done.left)
        console.say(f"left: {left}; the same command goes on from here")
