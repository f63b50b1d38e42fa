"""The replay of a pile: each input changes the worktree as it once did, or is set aside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from stack.flows.events import Emit, Progress
from stack.flows.pile.fit import Fit, Misfit, Prefer, how_text
from stack.flows.pile.kind import against, declared, doubtful, kind_of, unsure
from stack.flows.pile.read import Input
from stack.flows.pile.route import Route, Router, digest_of
from stack.flows.pile.section import Placer
from stack.flows.pile.undo import Undoing, Undone
from stack.flows.pile.wait import Waiting
from stack.flows.pile.world import BASE, View, World
from stack.model.objects import Entry
from stack.repo.replay import show

Result = Literal[
    "placed", "contained", "duplicate", "reverts", "upstreamed", "unplaceable", "damaged", "other",
]
ASIDE = ("unplaceable", "damaged", "other")
_SHOWN = 4
_WHOLE = ("new", "replaced")  # made on nothing, so that no later input can be what it waited for
_DECLARED = "it fits the base only, though a series or mail is made on those before it"
_LOOSE = ("snapshot", "elided")


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one input in one upstream; `patches` are those that came of it.

    `known` says that an import before this one had it, `unsure` that it could have been meant in
    another way, which `reason` tells.
    """

    file: str
    upstream: str | None
    result: Result
    patches: tuple[str, ...] = ()
    reason: str = ""
    digest: str = ""
    flags: tuple[str, ...] = ()
    known: bool = False
    unsure: bool = False
    suggestion: str = ""

    @property
    def aside(self) -> bool:
        return self.result in ASIDE


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """An input that changed a worktree: the trees before and after, and how each file went."""

    one: Input
    upstream: str
    before: str
    after: str
    fits: tuple[tuple[Route, Fit], ...]
    undone: Undone
    digest: str = ""


class Replayed(msgspec.Struct, kw_only=True):
    """The end of a replay: steps in their order per upstream, and rows in the pile's order."""

    steps: dict[str, list[Step]]
    rows: dict[tuple[int, str | None], Row]


class Replay:
    """Replays one pile over the worlds of its upstreams."""

    def __init__(
        self, worlds: Mapping[str, World], router: Router, known: Mapping[tuple[str, str], Row],
    ) -> None:
        self.worlds, self.router, self.known = worlds, router, known
        self.undoing = {name: Undoing(world) for name, world in worlds.items()}
        self.steps: dict[str, list[Step]] = {name: [] for name in worlds}
        self.rows: dict[tuple[int, str | None], Row] = {}
        self.waiting = Waiting(worlds)
        self.seen: dict[tuple[str, str], str] = {}
        self.digests: dict[tuple[int, str], str] = {}

    def remember(self, inputs: Sequence[Input]) -> None:
        """Give the states of patches that the lines have already the turns of their inputs."""
        turns: dict[tuple[str, str], int] = {}
        for turn, one in enumerate(inputs if self.known else ()):
            groups: dict[str, list[Route]] = {}
            for route in self.router.routes(one):
                groups.setdefault(route.upstream or BASE, []).append(route)
            for name, routes in groups.items():
                row = self.known.get((name, digest_of(routes)))
                turns |= {(name, patch): turn for patch in (row.patches if row else ())}
        for name, world in self.worlds.items():
            world.retime({patch: turn for (one, patch), turn in turns.items() if one == name})

    def run(self, inputs: Sequence[Input], emit: Emit) -> Replayed:
        """Take the inputs in order; what does not fit yet is tried again after what it may need."""
        self._name(inputs)
        for turn, one in enumerate(inputs):
            emit(Progress("replaying", turn, len(inputs), one.file))
            self._take(turn, one)
        for name in self.worlds:
            self.waiting.wake_all(name)
            self._again(name)
        return Replayed(steps=self.steps, rows=self.rows)

    def _name(self, inputs: Sequence[Input]) -> None:
        """Tell the worlds which states of their files the inputs name by id."""
        for turn, one in enumerate(inputs):
            for route in self.router.routes(one):
                if route.upstream is not None:
                    named = self.worlds[route.upstream].named.setdefault(route.path, [])
                    ids = (route.section.old_id, route.section.new_id)
                    named += [(turn, oid) for oid in ids if oid]

    def _take(self, turn: int, one: Input) -> None:
        if one.damage is not None:
            self._row(turn, one, None, "damaged", str(one.damage))
            return
        if one.note_of:
            self._row(turn, one, None, "contained", f"its words are kept with {one.note_of}")
            return
        if not one.sections:
            self._row(turn, one, None, "other", one.aside or "holds no diff")
            return
        groups: dict[str | None, list[Route]] = {}
        for route in self.router.routes(one):
            groups.setdefault(route.upstream, []).append(route)
        if foreign := groups.pop(None, None):
            self._row(turn, one, None, "other", _nobody(foreign, list(self.worlds)))
        for name, routes in groups.items():
            assert name is not None
            self._group(turn, one, name, routes)

    def _group(self, turn: int, one: Input, name: str, routes: list[Route]) -> None:
        digest = digest_of(routes)
        self.digests[turn, name] = digest
        if (twin := self.seen.get((name, digest))) is not None:
            self._row(turn, one, name, "duplicate", f"the same as {twin}", digest=digest)
            return
        self.seen[name, digest] = one.file
        if (was := self.known.get((name, digest))) is not None:
            self.rows[turn, name] = msgspec.structs.replace(was, file=one.file, known=True)
            return
        misfits = self._try(turn, one, name, routes, digest)
        if misfits:
            why = _why(misfits, len(routes))
            self._row(turn, one, name, "unplaceable", why, digest=digest)
            self.waiting.add(turn, one, name, routes, digest)
        else:
            self._again(name)

    def _try(
        self, turn: int, one: Input, name: str, routes: list[Route], digest: str,
        *, late: bool = False,
    ) -> list[Misfit]:
        """Place an input as a whole; what keeps it from that."""
        world = self.worlds[name]
        prefer: Prefer = one.meant
        while True:
            view = View(world, turn)
            placer = Placer(view, prefer)
            fits: list[tuple[Route, Fit]] = []
            misfits: list[Misfit] = []
            for route in routes:
                fit = placer.put(route.section, route.path, route.old)
                if isinstance(fit, Misfit):
                    misfits.append(fit)
                    continue
                view.changes |= fit.entries
                fits.append((route, fit))
            if misfits:
                return misfits
            kind = kind_of(fit for _, fit in fits) or declared(one)
            if not prefer and kind and any(fit.torn for _, fit in fits):
                prefer = kind  # one diff is of one kind
                continue
            break
        past = [
            route for route, fit in fits if late and fit.entries and (
                kind == "snapshot" or fit.how in _LOOSE
                or (world.now(route.path).turn > turn and (
                    fit.how in _WHOLE
                    or world.now(route.path).entry == world.upstream(route.path)
                ))
            )
        ]
        if past:  # what came since would be taken back
            return [Misfit(past[0].path, past[0].section.at, "a snapshot of what is past by then")]
        doubt = unsure([fit for _, fit in fits], kind or prefer)
        words = doubtful(doubt) or against(one.meant, [fit for _, fit in fits])
        if not words and declared(one) == "increment" and any(
            fit.how == "snapshot" and fit.entries and not route.section.old_id
            for route, fit in fits
        ):
            words = _DECLARED
        changes = {
            path: entry for path, entry in view.changes.items() if entry != world.now(path).entry
        }
        if not changes:
            self._nothing_new(turn, one, name, fits, digest, words)
            return []
        before = world.tree
        undone = self.undoing[name].take(changes, one.file)
        try:
            after = world.apply(changes, one.file, turn)
        except (NotADirectoryError, IsADirectoryError) as wrong:
            where = show(wrong.args[0])
            why = f"{where} is a file on one side and a folder on the other"
            return [Misfit(routes[0].path, routes[0].section.at, why)]
        self.steps[name].append(Step(
            one=one, upstream=name, before=before, after=after, fits=tuple(fits), undone=undone,
            digest=digest,
        ))
        result: Result = "reverts" if undone.whole else "placed"
        reason = _joined(
            ", ".join(text for text in (how_text([fit for _, fit in fits]), undone.text) if text),
            words,
        )
        if late:
            reason = f"after {self.steps[name][-2].one.file}, on which it was made; {reason}"
        flags = sorted({*one.flags, *(flag for _, fit in fits for flag in fit.flags),
                        *(flag for route in routes for flag in route.section.flags)})
        self._row(
            turn, one, name, result, reason, digest=digest, flags=tuple(map(str, flags)),
            unsure=bool(words),
        )
        self.waiting.wake(name, {path: world.now(path).entry for path in changes})
        return []

    def _again(self, name: str) -> None:
        """Try what waits for the changes since, and for those that come of it."""
        while (key := self.waiting.next(name)) is not None:
            turn, one, _, routes, digest = self.waiting.parts[key]
            if not self._try(turn, one, name, routes, digest, late=True):
                self.waiting.drop(key)

    def _nothing_new(
        self, turn: int, one: Input, name: str, fits: list[tuple[Route, Fit]], digest: str,
        doubt: str,
    ) -> None:
        """An input whose whole effect stands: upstream's, or that of inputs before it."""
        world = self.worlds[name]
        makers = {world.now(route.path).by for route, _ in fits}
        if makers <= {BASE}:
            self._row(turn, one, name, "upstreamed", "upstream has its whole effect", digest=digest)
            return
        named = sorted(makers - {BASE})
        mine = {route.path: self.worlds[name].now(route.path).entry for route, _ in fits}
        twin = next(
            (step for step in self.steps[name]
             if step.one.file in makers and _made(world, step) == mine), None,
        )
        if twin is not None and len(named) == 1 and all(fit.sure for _, fit in fits):
            self._row(turn, one, name, "duplicate", f"the same as {twin.one.file}", digest=digest)
            return
        shown = ", ".join(named[:_SHOWN])
        why = _joined(f"contained in {shown}", doubt)
        self._row(turn, one, name, "contained", why, digest=digest, unsure=bool(doubt))

    def _row(
        self, turn: int, one: Input, name: str | None, result: Result, reason: str, *,
        digest: str = "", flags: tuple[str, ...] | None = None, unsure: bool = False,
    ) -> None:
        said = tuple(sorted(map(str, one.flags))) if flags is None else flags
        self.rows[turn, name] = Row(
            file=one.file, upstream=name, result=result, reason=reason,
            digest=digest or one.digest, flags=said, unsure=unsure,
        )


def _made(world: World, step: Step) -> dict[bytes, Entry | None]:
    """The paths of a step with what stands there now."""
    return {route.path: world.now(route.path).entry for route, _ in step.fits}


def _nobody(routes: Sequence[Route], names: Sequence[str]) -> str:
    paths = [show(route.section.name) for route in routes]
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    whose = " or ".join(names) or "any upstream"
    return f"no file of {whose}: {', '.join(paths[:_SHOWN])}{more}"


def _why(misfits: Sequence[Misfit], count: int) -> str:
    more = f" (and {len(misfits) - 1} more of {count} files)" if len(misfits) > 1 else ""
    return f"{misfits[0]}{more}"


def _joined(*texts: str) -> str:
    return "; ".join(text for text in texts if text)
