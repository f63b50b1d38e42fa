"""What `doctor` says of a checkpoint: whether the benches of a profile could load it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from stack.errors import StackError
from stack.flows.doctor import devices as on_machine
from stack.flows.doctor import preflight
from stack.flows.doctor.checks import Check
from stack.model.preflight.case import Point
from stack.store.project import Project


def examine_model(
    project: Project, name: str, folder: Path | None, benches: Sequence[str] = ()
) -> Iterator[Check]:
    """The points of each bench (those of the profile where none is named), equal ones once."""
    profile = project.settings.profile[name]
    if folder is not None and not (folder / "config.json").is_file():
        return  # said already, by the check of its memory
    chosen = tuple(benches) or profile.benches
    devices = on_machine.look(profile.hardware)
    memory = next((one.memory for one in devices if one.memory), None)
    if profile.hardware.device == "cpu":
        memory = None  # the machine's own is shared with everything else
    by_point: dict[Point, list[str]] = {}
    for bench in chosen:
        try:
            found = preflight.look(project, name, bench, folder=folder, memory=memory)
        except StackError as wrong:
            yield Check(what=bench, result="missing", text=wrong.message, hint=wrong.hint)
            continue
        for point in found:
            by_point.setdefault(point, []).append(bench)
    for point, where in by_point.items():
        text = point.text if len(where) == len(chosen) else f"{', '.join(where)}: {point.text}"
        if point.source and point.result != "ok":
            text += f" (vLLM: {point.source})"
        hint = None if point.result == "ok" else point.hint
        yield Check(what=point.what, result=point.result, text=text, hint=hint)
