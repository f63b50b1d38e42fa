"""`verify`: each patch against the prefix before it, measured, judged and written to the ledger."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stack.flows.cluster.clustering import Where, check, pool_of
from stack.flows.events import Emit
from stack.flows.measure.measuring import measuring
from stack.flows.measure.plan import check_benches, choose, comparisons
from stack.flows.measure.proving import Proved
from stack.flows.verify.verifying import Verifying
from stack.model.measure.trial import Machine, Mode
from stack.model.measure.verdict import Verdict
from stack.store.project import Project


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
    where: Where | None = None,
) -> Verified:
    """Build what is missing, then put each patch of the profile's lines to the test.

    `patches` picks some of them, `pairs` overrides what the benches say, `fresh` measures again
    what the ledger holds. Gates and warm-ups of all come before any timing; comparisons that share
    a side are then timed together, here or on the hosts of a cluster. Raises `Locked` while another
    run measures here; an interrupt keeps every finished trial, and the next run goes on from there.
    """
    name, profile = project.profile(profile_name)
    wanted = choose(project, profile, patches)
    check_benches(project, name, profile, wanted)
    check(profile, name, where)
    with measuring(project, name, profile, emit, fresh=fresh) as here:
        asked = list(comparisons(project, profile, here.built, wanted, emit, mode=mode))
        with pool_of(project, profile, here, where, emit) as pool:
            proved = Verifying(pool, asked, pairs, emit).run()
    return Verified(profile=name, machine=here.machine, proved=proved)
