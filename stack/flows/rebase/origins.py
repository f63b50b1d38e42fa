"""Who in upstream's history is behind an outcome, where the history is at hand."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stack.model.diff.merge3 import Answer
from stack.model.line.outcome import Outcome
from stack.repo.carry import Merger
from stack.repo.carry_series import CarriedStep
from stack.repo.history import History, Landed
from stack.repo.trace import Tracer


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """`what` happened to a patch because of an upstream commit.

    `what` is `culprit` (it made the patch conflict; on `last_good` it still merges), `release`
    (the same of the revisions that were asked for, where no history tells more), `upstreamed` (it
    has the whole effect), `taken-in` (it has `hunk` of one path) or `undone` (the patch turns a
    path back).
    """

    what: str
    commit: str | None = None
    subject: str | None = None
    pull: int | None = None
    path: str | None = None
    hunk: int | None = None
    last_good: str | None = None

    def __str__(self) -> str:
        who = f"{self.commit[:12]} {self.subject}" if self.commit else "an upstream commit"
        part = f"hunk {self.hunk}" if self.hunk else "part of it"
        return {
            "culprit": f"since {who}",
            "release": f"since {self.subject}; at {self.last_good} it still merges",
            "upstreamed": f"upstream has it since {who}",
            "taken-in": f"{self.path}: {part} is upstream since {who}",
            "undone": f"{self.path}: the result equals an older upstream content: it undoes an "
            "upstream change",
        }[self.what]


def origins(
    merger: Merger, steps: Sequence[CarriedStep], old: str, new: str, answer: Answer, *,
    wanted: Sequence[CarriedStep] | None = None,
) -> dict[str, tuple[Origin, ...]]:
    """The upstream commits behind the outcomes of patches carried from pin `old` to `new`.

    `steps` are those of the whole series; only the `wanted` ones are asked about, if given.
    """
    wanted = steps if wanted is None else wanted
    paths = {path for step in wanted for path in merger.odb.changed(step.before, step.after)}
    paths |= {new.encode() for step in wanted for new in step.moved.values()}
    history = History(merger.odb.git, old, new, sorted(paths))
    if not history.known:
        return {}
    tracer = Tracer(merger, history, steps, answer)
    return {step.name: tuple(_behind(tracer, step)) for step in wanted}


def _behind(tracer: Tracer, step: CarriedStep) -> list[Origin]:
    if step.outcome is Outcome.CONFLICT:
        found = tracer.culprit(step)
        return [_of("culprit", found[0], last_good=found[1])] if found else []
    if step.outcome is Outcome.UPSTREAMED:
        landed = tracer.taken_in(step)
        return [_of("upstreamed", landed)] if landed else []
    rows: list[Origin] = []
    for shrunk in step.shrunk:
        for place, hunk in zip(shrunk.places, shrunk.hunk_of, strict=True):
            landed = tracer.place_taken_in(step, shrunk.path.encode(), place)
            row = _of("taken-in", landed, path=shrunk.path, hunk=hunk) if landed else None
            if row is not None and row not in rows:
                rows.append(row)
    return rows + [Origin(what="undone", path=path) for path in tracer.undone(step)]


def _of(
    what: str, landed: Landed, *, path: str | None = None, hunk: int | None = None,
    last_good: str | None = None,
) -> Origin:
    return Origin(
        what=what, commit=landed.commit, subject=landed.subject, pull=landed.pull, path=path,
        hunk=hunk, last_good=last_good,
    )
