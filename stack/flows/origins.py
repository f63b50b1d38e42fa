"""Who in upstream's history is behind an outcome, where the history is at hand."""

from __future__ import annotations

import msgspec

from stack.model.outcome import Outcome
from stack.repo import history as past
from stack.repo.carry_series import CarriedStep
from stack.repo.odb import ObjectStore


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """`what` happened to a patch because of an upstream commit.

    `what` is `culprit` (it made the patch conflict), `upstreamed` (it has the whole effect),
    `taken-in` (it has `places` of one path) or `undone` (the patch turns a path back).
    """

    what: str
    commit: str | None = None
    subject: str | None = None
    pull: int | None = None
    path: str | None = None
    places: int = 0
    last_good: str | None = None

    def __str__(self) -> str:
        who = f"{self.commit[:12]} {self.subject}" if self.commit else "an upstream commit"
        return {
            "culprit": f"since {who}",
            "upstreamed": f"upstream has it since {who}",
            "taken-in": f"{self.path}: {self.places} places there already, since {who}",
            "undone": f"{self.path}: the result equals an older upstream content: it undoes an "
            "upstream change",
        }[self.what]


def origins(
    odb: ObjectStore, step: CarriedStep, old: str, new: str
) -> tuple[Origin, ...]:
    """The upstream commits behind the outcome of one patch carried from pin `old` to `new`."""
    history = past.History(odb.git, old, new)
    if not history.known:
        return ()
    if step.outcome is Outcome.CONFLICT:
        if (found := past.culprit(odb, history, step.before, step.after)) is None:
            return ()
        return (_of("culprit", found[0], last_good=found[1]),)
    if step.outcome is Outcome.UPSTREAMED:
        landed = past.taken_in(odb, history, step.before, step.after)
        return (_of("upstreamed", landed),) if landed else ()
    rows: list[Origin] = []
    if step.shrunk:
        for path, places, landed in past.places_taken_in(
            odb, history, step.before, step.after, step.parent_tree
        ):
            if landed:
                rows.append(_of("taken-in", landed, path=path, places=places))
    if step.tree:
        rows += [
            Origin(what="undone", path=path)
            for path in past.undone(odb, history, step.parent_tree, step.tree, new)
        ]
    return tuple(rows)


def _of(
    what: str, landed: past.Landed, *, path: str | None = None, places: int = 0,
    last_good: str | None = None,
) -> Origin:
    return Origin(
        what=what, commit=landed.commit, subject=landed.subject, pull=landed.pull, path=path,
        places=places, last_good=last_good,
    )
