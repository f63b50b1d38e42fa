"""Who in an upstream's history is behind the outcome of a carried patch.

Every patch of a series is followed path by path: onto what stood there after each upstream
commit, the patches before it are carried first (with their own lines where they conflict), then
the patch itself. A commit is named only if the answer differs just before and just after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from stack.model.diff.linediff import Change
from stack.model.diff.merge3 import Answer
from stack.model.objects import Entry
from stack.repo.carry import WHOLE, MergedPath, Merger
from stack.repo.carry_series import CarriedStep
from stack.repo.history import History, Landed, State
from stack.repo.replay import show

Side = tuple[Entry | None, Entry | None]
Test = Callable[[MergedPath, "Entry | None"], bool]


class Tracer:
    """Asks one history about the steps of one carried series."""

    def __init__(
        self, merger: Merger, history: History, steps: Sequence[CarriedStep], answer: Answer
    ) -> None:
        self.merger, self.history, self.steps, self.answer = merger, history, steps, answer
        self.odb = merger.odb
        self._pin = self.odb.commit(history.old).tree
        self._base = self.odb.commit(history.base).tree if history.base else None

    def culprit(self, step: CarriedStep) -> tuple[Landed, str] | None:
        """The first upstream commit after which a patch no longer merges, and the one before it."""
        moved = {new: old for old, new in step.moved.items()}
        wanted = {moved.get(one.path, one.path) for one in step.trouble}
        found = [
            state
            for path in self.odb.changed(step.before, step.after)
            if show(path) in wanted
            and (state := self._turn(path, step, lambda one, target: one.trouble is not None))
        ]
        if not found:
            return None
        first = min(found, key=lambda state: state.order)
        return self.history.landed(first.commit), self.history.before(first.commit)

    def taken_in(self, step: CarriedStep) -> Landed | None:
        """The first upstream commit whose tree already has the whole effect of a patch."""
        paths = list(self.odb.changed(step.before, step.after))
        events: dict[int, tuple[str, dict[bytes, bool]]] = {}
        whole: dict[bytes, bool] = {}
        for path in paths:
            whole[path] = False
            for state, there in self._answers(path, step, _is_there):
                if state is None:
                    whole[path] = there
                else:
                    events.setdefault(state.order, (state.commit, {}))[1][path] = there
        for _, (commit, changes) in sorted(events.items()):
            whole |= changes
            if all(whole.values()):
                return self.history.landed(commit)
        return None

    def place_taken_in(self, step: CarriedStep, path: bytes, place: Change) -> Landed | None:
        """The upstream commit that brought one place of a patch's change."""
        state = self._turn(path, step, lambda one, target: one.there == WHOLE or place in one.there)
        return self.history.landed(state.commit) if state else None

    def undone(self, step: CarriedStep) -> list[str]:
        """The paths that a patch turns back to an older upstream content."""
        if step.tree is None:
            return []
        return [
            show(path)
            for path, (left, right) in self.odb.changed(step.parent_tree, step.tree).items()
            if left and right and left.oid != right.oid and right.oid in self.history.held(path)
        ]

    def _turn(self, path: bytes, step: CarriedStep, test: Test) -> State | None:
        """The first state at which something begins to hold that did not hold just before.

        Where it holds from the beginning on, the beginning was only estimated too late: then the
        last time that it began to hold before.
        """
        before = True
        always = True
        for state, holds in self._answers(path, step, test):
            always = always and holds
            if state is not None and holds and not before:
                return state
            before = holds
        _, earlier = self._earlier(path, step)
        found: State | None = None
        for state in reversed(earlier) if always else ():
            if not self._answer(path, step, test, state):
                return found
            found = state
        return None

    def _answers(
        self, path: bytes, step: CarriedStep, test: Test
    ) -> Iterator[tuple[State | None, bool]]:
        """Whether something holds at each state of a path, oldest first; None is the beginning."""
        start, states = self._states(path, step)
        yield None, self._answer(path, step, test, start)
        for state in states:
            yield state, self._answer(path, step, test, state)

    def _answer(self, path: bytes, step: CarriedStep, test: Test, state: State) -> bool:
        """Carry a path's changes up to the step onto one content, and judge the step's own."""
        entry = state.entry
        *front, own = self._chain(path, step)
        for old, new in front:
            entry = self._assumed(path, old, new, entry)
        return test(self.merger.path(path, *own, entry, self.answer), entry)

    def _assumed(
        self, path: bytes, base: Entry | None, side: Entry | None, target: Entry | None
    ) -> Entry | None:
        """A path after an earlier patch, with the patch's own lines where it conflicts."""
        one = self.merger.path(path, base, side, target, self.answer)
        if one.trouble and one.trouble.regions:
            one = self.merger.path(path, base, side, target, lambda region: region.patch)
        return one.entries.get(path, target)

    def _chain(self, path: bytes, step: CarriedStep) -> list[Side]:
        """What each patch up to `step` makes of a path, the step's own change last."""
        found: list[Side] = []
        for one in self.steps:
            sides = self.odb.find(one.before, path), self.odb.find(one.after, path)
            if sides[0] != sides[1]:
                found.append(sides)
            if one.name == step.name:
                break
        return found

    def _states(self, path: bytes, step: CarriedStep) -> tuple[State, list[State]]:
        """What stood at a path at the beginning, and its states, followed where it moved to."""
        states = self._all(path, step)
        if self._base is not None:
            entry = self.odb.find(self._base, path)
            return State(order=-1, commit=self.history.base or "", entry=entry), states
        at = self._anchor(path)
        if at is None:
            at = max(
                (state.order for one in self.history.paths if (state := self._pinned(one))),
                default=-1,
            )
        before = [state for state in states if state.order <= at]
        start = before[-1] if before else State(order=-1, commit="", entry=None)
        return start, states[len(before) :]

    def _earlier(self, path: bytes, step: CarriedStep) -> tuple[State, list[State]]:
        """The states before an estimated beginning, with it."""
        start, states = self._states(path, step)
        every = self._all(path, step)
        if self._base is not None or self._anchor(path) is not None:
            return start, []
        return start, every[: len(every) - len(states)]

    def _all(self, path: bytes, step: CarriedStep) -> list[State]:
        states = self.history.states.get(path, [])
        home = next((new for old, new in step.moved.items() if old == show(path)), None)
        if home is None:
            return states
        return _followed(states, self.history.states.get(home.encode(), []))

    def _anchor(self, path: bytes) -> int | None:
        state = self._pinned(path)
        return state.order if state else None

    def _pinned(self, path: bytes) -> State | None:
        """The last state of a path that is what the pin has: where the pin left this history."""
        wanted = self.odb.find(self._pin, path)
        states = self.history.states.get(path, [])
        return next((one for one in reversed(states) if wanted and one.entry == wanted), None)


def _followed(old: Sequence[State], new: Sequence[State]) -> list[State]:
    """The states of a path that moved: the new place counts while nothing stands at the old."""
    found: list[State] = []
    here: dict[bool, Entry | None] = {False: None, True: None}
    for state, at_new in sorted(
        [(state, False) for state in old] + [(state, True) for state in new],
        key=lambda pair: pair[0].order,
    ):
        here[at_new] = state.entry
        entry = here[False] if here[False] is not None else here[True]
        if found and found[-1].order == state.order:
            found.pop()
        found.append(State(order=state.order, commit=state.commit, entry=entry))
    return found


def _is_there(one: MergedPath, target: Entry | None) -> bool:
    """Whether the whole change of a path is there: merging it in changes nothing."""
    return one.trouble is None and all(entry == target for entry in one.entries.values())
