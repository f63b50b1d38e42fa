"""What kind of diff an input is, where ids do not say: a snapshot of the base, or an increment.

A section without ids often fits the base and what stands as well. One diff is of one kind, so what
one section shows holds for all; where nothing shows it, the likelier is taken and said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from stack.flows.pile.fit import Fit, Prefer
from stack.flows.pile.read import Input
from stack.flows.pile.world import View
from stack.model.objects import Entry
from stack.model.pile.sections import Flag

_TAKEN = {"snapshot": "a snapshot of the base", "increment": "made on what stood"}


def kind_of(fits: Iterable[Fit]) -> Prefer:
    """The one kind that the sections of a diff show; none where they show none, or both."""
    said: set[Prefer] = {fit.says for fit in fits if fit.says}
    return said.pop() if len(said) == 1 else ""


def declared(one: Input) -> Prefer:
    """What the user says; a series and a mail are of commits, each made on those before it."""
    by_form: Prefer = "increment" if one.series is not None or one.mail is not None else ""
    return one.meant or by_form


def unsure(fits: Iterable[Fit], kind: Prefer) -> list[Fit]:
    """Those that fit the base and what stands, and nothing shows which was meant."""
    return [
        fit for fit in fits
        if Flag.TWO_STATES in fit.flags or (fit.torn and not fit.says and not kind)
    ]


def against(meant: Prefer, fits: Iterable[Fit]) -> str:
    """What a diff shows itself to be although the user says that it is not; empty where it agrees.

    A place that the diff does not have cannot be given to it by saying so.
    """
    shown = next((fit.says for fit in fits if meant and fit.says and fit.says != meant), "")
    if not shown:
        return ""
    return f"taken as {_TAKEN[shown]}: it fits nothing else, though --kind says {meant}"


def doubtful(fits: Sequence[Fit]) -> str:
    """How sections were taken that could have been meant in two ways; empty where none was."""
    if not fits:
        return ""
    on_base = any(fit.how == "snapshot" or fit.says == "snapshot" for fit in fits)
    taken, other = (_TAKEN["snapshot"], "what stood") if on_base else (
        _TAKEN["increment"], "the base"
    )
    count = f"{len(fits)} files fit" if len(fits) > 1 else "it fits"
    return f"taken as {taken}, but {count} {other} as well, and nothing shows which was meant"


def shown(view: View, path: bytes, here: Fit, was: Fit) -> Prefer:
    """What a section shows whose two readings differ: on what stands, and on the base.

    A snapshot repeats what stands. Where its numbers are right on one side only, it is of that
    side; and a state that a later input names was there.
    """
    if not was.entries:
        return "snapshot"
    moved = Flag.MOVED in here.flags, Flag.MOVED in was.flags
    if moved[0] != moved[1]:
        return "snapshot" if moved[0] else "increment"
    named = tuple(view.is_named(path, fit.entries.get(path)) for fit in (here, was))
    if named[0] != named[1]:
        return "increment" if named[0] else "snapshot"
    return ""


def likelier(view: View, path: bytes, here: Fit, was: Fit, now: Entry, base: Entry) -> Prefer:
    """A snapshot where its place would be a guess on what stands, or where it has most of it."""
    if _holds(view, path, was, now, base):
        return "snapshot"
    return "increment"


def _holds(view: View, path: bytes, was: Fit, now: Entry, base: Entry) -> bool:
    """Whether a snapshot has most of what stands there over the base, as one of then would."""
    made = was.entries.get(path)
    if made is None:
        return not was.entries
    old, here, then = (Counter(view.world.lines(one.oid).lines) for one in (base, now, made))
    added, removed = here - old, old - here
    kept = (added & (then - old)).total() + (removed & (old - then)).total()
    return 0 < added.total() + removed.total() <= 2 * kept
