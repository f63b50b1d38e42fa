"""`verify`: each patch against the prefix before it, measured, judged and written to the ledger."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stack.flows.arms import Comparison
from stack.flows.calibrate import prior_of
from stack.flows.events import Emit, Said
from stack.flows.measuring import measuring
from stack.flows.verify_compare import Comparing, Found
from stack.flows.verify_plan import check_benches, choose, comparisons
from stack.flows.verify_rounds import Rounds, groups
from stack.flows.verify_trials import Session
from stack.model.trial import Machine, Mode, Trial, VerdictRecord
from stack.model.verdict import Judgement, Verdict, holds, over_patches
from stack.store.project import Project
from stack.store.stamps import now, now_id


class Proved(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict with the trials that it rests on."""

    record: VerdictRecord
    trials: tuple[Trial, ...]


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `verify`; `measured` when at least one bench gave a number."""

    profile: str
    machine: Machine
    proved: tuple[Proved, ...]

    @property
    def measured(self) -> bool:
        return any(trial.figures for one in self.proved for trial in one.trials)

    @property
    def exit_code(self) -> int:
        """0 every claim holds, 1 one does not, 5 nothing could be measured at all."""
        verdicts = {one.record.verdict for one in self.proved}
        if not self.measured and verdicts <= {Verdict.BLOCKED, Verdict.STALLED}:
            return 5
        return 1 if any(one.record.holds is False for one in self.proved) else 0


def verify(
    project: Project, profile_name: str | None, patches: Sequence[str], emit: Emit, *,
    pairs: int | None = None, mode: Mode = "marginal", fresh: bool = False,
) -> Verified:
    """Build what is missing, then put each patch of the profile's lines to the test.

    `patches` picks some of them, `pairs` overrides what the benches say, `fresh` measures again
    what the ledger holds. Gates and warm-ups of all come before any timing; comparisons that share
    a side are then timed together. Raises `Locked` while another run measures here; an interrupt
    keeps every finished trial, and the next run goes on from there.
    """
    name, profile = project.profile(profile_name)
    wanted = choose(project, profile, patches)
    check_benches(project, name, profile, wanted)
    with measuring(project, name, profile, emit, fresh=fresh) as here:
        session = here.session
        asked = list(comparisons(project, profile, here.built, wanted, emit, mode=mode))
        verifying = Verifying(session, asked, pairs, emit)
        proved = verifying.run()
    return Verified(profile=name, machine=here.machine, proved=proved)


class Verifying:
    """The comparisons of one verify, from their gates to their corrected verdicts."""

    def __init__(
        self, session: Session, asked: Sequence[Comparison], pairs: int | None, emit: Emit
    ) -> None:
        self.session, self.asked, self.emit = session, asked, emit
        self.counts = [pairs or one.bench.pairs for one in asked]
        self.comparing = [
            Comparing(session, one, count, prior=prior_of(session, one.name, one.bench))
            for one, count in zip(asked, self.counts, strict=True)
        ]
        self.found: dict[int, tuple[Found, VerdictRecord]] = {}

    def run(self) -> tuple[Proved, ...]:
        """Gates of all, then pairs, then the correction for the number of comparisons."""
        left = [2 * (bool(one.bench.gate) + 1) for one in self.asked]
        pairs = [2 * count for count in self.counts]
        for at, one in enumerate(self.comparing):
            self.session.planned = self.session.done + sum(left[at:]) + sum(pairs)
            found = one.prepare()
            if found is not None:
                pairs[at] = 0
                self._tell(at, found)
        family = max(1, len(self.asked) - len(self.found))
        for group in groups(self.asked):
            timed = [at for at in group if at not in self.found]
            self.session.planned = self.session.done + sum(pairs)
            if len(timed) == 1 and len(group) == 1:
                self._tell(timed[0], self.comparing[timed[0]].measure(family=family))
            elif timed:
                for at in timed:
                    rule = msgspec.structs.replace(self.comparing[at].rule, family=family)
                    self.comparing[at].rule = rule
                every = [self.asked[at] for at in group]
                rounds = Rounds(every, [self.comparing[at] for at in timed])
                for at, found in zip(timed, rounds.run(), strict=True):
                    self._tell(at, found)
            for at in timed:
                pairs[at] = 0
        return self._corrected()

    def _tell(self, at: int, found: Found) -> None:
        record = record_of(self.session, self.asked[at], found, found.judgement)
        self.session.ledger.append(record)
        self.found[at] = (found, record)
        self.emit(Said(f"{_label(record)}: {record.verdict}: {record.note}"))

    def _corrected(self) -> tuple[Proved, ...]:
        """The verdicts, corrected for their number; a changed one is recorded as a correction."""
        results = [self.found[at] for at in range(len(self.asked))]
        judgements = over_patches([found.judgement for found, _ in results])
        proved = []
        for at, ((found, first), judgement) in enumerate(zip(results, judgements, strict=True)):
            record = first
            if judgement != found.judgement:
                corrected = record_of(self.session, self.asked[at], found, judgement)
                record = msgspec.structs.replace(corrected, replaces=first.id)
                self.session.ledger.append(record)
                self.emit(Said(f"{_label(record)}: {record.verdict}: {record.note}"))
            proved.append(Proved(record=record, trials=found.trials))
        return tuple(proved)


def _label(record: VerdictRecord) -> str:
    return record.patch if record.mode == "marginal" else f"{record.patch} ({record.mode})"


def record_of(
    session: Session, asked: Comparison, found: Found, judgement: Judgement
) -> VerdictRecord:
    """A judgement as the ledger keeps it."""
    statistics = ("ratio", "low", "high", "level", "pairs", "p", "alpha", "detectable")
    return VerdictRecord(
        id=now_id(), run=session.run, time=now(), profile=session.ground.profile,
        line=asked.line, patch=asked.member.name, state=asked.member.state,
        outcome=asked.outcome.value, claim=asked.claim, mode=asked.mode, bench=asked.name,
        bench_digest=session.bench_digest(asked.name, asked.bench), verdict=judgement.verdict,
        holds=holds(judgement, asked.claim, proof=asked.mode == "default-off"),
        calibrated=judgement.calibrated, method=judgement.method, before=asked.before.prefix,
        after=asked.after.prefix, trees=asked.after.trees, before_trees=asked.before.trees,
        sources=asked.sources,
        before_value=found.before_value, after_value=found.after_value, unit=asked.bench.unit,
        note=judgement.note, cause=judgement.cause, machine=session.ground.machine,
        trials=tuple(trial.id for trial in found.trials),
        **{name: getattr(judgement, name) for name in statistics},
    )
