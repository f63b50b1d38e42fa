"""What a restack has to say: rows and words for people, the document for programs."""

from __future__ import annotations

from stack.errors import Conflict
from stack.flows.line.restack import Restacked
from stack.flows.line.restack_state import worktree
from stack.store.project import Project


def rows(done: Restacked) -> list[tuple[str, str]]:
    """What becomes of which patch file."""
    if (end := done.finished) is None:
        name = done.state.current
        return [("conflict", f"{name}: {at.path}: {at.why}") for at in done.state.stopped]
    found = [*(("changed", name) for name in end.written), *(("new", name) for name in end.added)]
    found += [("removed", name) for name in end.removed]
    return found + ([("reorder", "series.toml")] if end.reordered else [])


def summary(done: Restacked) -> str:
    """One line that says what was done."""
    state, end = done.state, done.finished
    moved = len({made.name for made in state.made if made.moved and not made.empty})
    if end is None:
        return f"{state.line}: {state.what} would stop at patch `{state.current}`; nothing written"
    if done.dry_run:
        return f"{state.line}: {state.what} would replay {moved} patches; nothing written"
    if not end.differs:
        return f"{state.line}: {state.what}: nothing differs"
    where = f", workspace at {end.head[:12]}" if end.head else ""
    kept = f", {done.remembered} answers kept for next time" if done.remembered else ""
    return f"{state.line}: {state.what}: {moved} patches replayed{where}{kept}"


def data(done: Restacked) -> dict[str, object]:
    """The document of `--json`."""
    state, end = done.state, done.finished
    patches: list[dict[str, object]] = []
    for made in {made.name: made for made in state.made}.values():
        outcome = "upstreamed" if made.empty else "modified" if made.moved else "clean"
        commit = None if made.empty else made.commit
        patches.append({"name": made.name, "outcome": outcome, "commit": commit})
    if state.current is not None:
        patches.append({"name": state.current, "outcome": "conflict", "commit": None})
    found: dict[str, object] = {
        "line": state.line, "what": state.what, "finished": end is not None, "patches": patches,
        "dry_run": done.dry_run,
        "conflicts": [
            {"path": at.path, "why": at.why, "lines": [region.line for region in at.regions]}
            for at in state.stopped
        ],
    }
    if end is not None:
        found |= {
            "changed": list(end.written), "added": list(end.added), "removed": list(end.removed),
            "emptied": list(end.emptied), "reordered": end.reordered, "head": end.head,
            "tree": end.tree, "differs": end.differs,
        }
    return found


class Stopped(Conflict):
    """A change of a line that waits for an answer; `data` is for `--json`."""

    def __init__(self, error: Conflict, document: dict[str, object]) -> None:
        super().__init__(error.message, context=error.context, hint=error.hint)
        self.data = document


def stopped(project: Project, done: Restacked) -> Stopped:
    """The error of a restack that has stopped: which files wait where, and the next command."""
    state = done.state
    tree = project.shown(worktree(project, project.find(state.line)).tree)
    context = []
    for place in state.stopped:
        lines = ", ".join(str(region.line) for region in place.regions[:6])
        context.append(f"{tree}/{place.path}" + (f":{lines}" if lines else "") + f": {place.why}")
    verb = state.what.split()[0]
    error = Conflict(
        f"{state.what}: patch `{state.current}` conflicts ({state.at + 1} of {len(state.picks)})",
        context=context,
        hint=f"edit the files there, then stack {verb} --continue; --abort gives it up",
    )
    return Stopped(error, data(done))
