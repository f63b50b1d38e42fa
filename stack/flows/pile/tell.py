"""What is said of each input of a pile: names, needs, suggestions, and what undoes upstream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from stack.flows.pile.make import Made, stem_of
from stack.flows.pile.needs import Need, text_of
from stack.flows.pile.replay import Replayed, Row, Step
from stack.flows.pile.world import World
from stack.model.objects import FOLDER, SYMLINK
from stack.model.pile.words import labels, suggestion
from stack.repo.client import Git
from stack.repo.history import History, State
from stack.repo.replay import show

_NOWHERE = "0" * 40


def told(
    done: Replayed, made: Mapping[str, Sequence[Made]], worlds: Mapping[str, World],
    lacking: Mapping[str, Mapping[str, Sequence[Need]]], gits: Mapping[str, tuple[Git, str]],
) -> list[Row]:
    """The rows in the pile's order with all that was found out about them."""
    extra: dict[tuple[str, str], list[str]] = {}
    patches: dict[tuple[str, str], str] = {}
    suggested: dict[tuple[str, str], str] = {}
    for name, some in made.items():
        undone = _undoes_upstream(worlds[name], done.steps[name], *gits[name])
        for one in some:
            key = (one.step.one.file, name)
            patches[key] = one.member.name
            texts = list(undone.get(one.step.one.file, ()))
            if found := lacking.get(name, {}).get(one.step.one.file):
                texts.append(text_of(found))
            extra[key] = texts
            suggested[key] = _suggested(worlds[name], one.step)
    rows = []
    for _, row in sorted(done.rows.items(), key=lambda pair: (pair[0][0], pair[0][1] or "")):
        key = (row.file, row.upstream or "")
        if key in patches and not row.known and not row.aside:
            reason = "; ".join([text for text in (row.reason, *extra[key]) if text])
            row = msgspec.structs.replace(
                row, patches=(patches[key],), reason=reason, suggestion=suggested[key]
            )
        rows.append(row)
    return rows


def _suggested(world: World, step: Step) -> str:
    """What the labels of an input suggest, with how much of it is alive at the end."""
    found = labels(stem_of(step), step.one.words[:400])
    if not found:
        return ""
    alive = of = 0
    for path, (before, after) in world.odb.changed(step.before, step.after).items():
        if after is None or after.mode in (FOLDER, SYMLINK):
            continue
        old = set(world.odb.blob(before.oid).split(b"\n")) if before else set()
        added = {line for line in world.odb.blob(after.oid).split(b"\n")
                 if line.strip() and line not in old}
        last = world.now(path).entry
        lines = set(world.odb.blob(last.oid).split(b"\n")) if last else set()
        of += len(added)
        alive += len(added & lines)
    return "; ".join(suggestion(label, kind, reason, alive, of) for label, kind, reason in found)


def _undoes_upstream(
    world: World, steps: Sequence[Step], git: Git, base: str
) -> dict[str, list[str]]:
    """The files that an input turns back to what upstream had before one of its commits."""
    results: dict[bytes, list[tuple[str, str]]] = {}
    for step in steps:
        for path, (before, after) in world.odb.changed(step.before, step.after).items():
            if before is None or after is None or FOLDER in (before.mode, after.mode):
                continue
            upstream = world.upstream(path)
            if upstream is not None and after.oid != upstream.oid:
                results.setdefault(path, []).append((after.oid, step.one.file))
    history = History(git, _NOWHERE, base, sorted(results)) if results else None
    found: dict[str, list[str]] = {}
    if history is None or not history.known:
        return found
    for path, some in results.items():
        rows = history.states.get(path, [])
        for oid, file in some:
            at = max((n for n, state in enumerate(rows) if _is(state, oid)), default=None)
            if at is not None and at + 1 < len(rows):
                landed = history.landed(rows[at + 1].commit)
                found.setdefault(file, []).append(
                    f"undoes upstream: {show(path)} is what it was before {landed.commit[:12]} "
                    f"({landed.subject})"
                )
    return found


def _is(state: State, oid: str) -> bool:
    return state.entry is not None and state.entry.oid == oid
