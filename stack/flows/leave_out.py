"""The layer of a whole line without one of its patches, for measuring what that patch is worth."""

from __future__ import annotations

from stack.flows import environment, layers, recipes
from stack.flows import jobs as jobs_of
from stack.flows.build import Built, BuiltPrefix
from stack.flows.events import Emit, Progress
from stack.flows.prefixes import replayed
from stack.model.outcome import Outcome
from stack.store.project import Line, Project


def left_out(
    project: Project, built: Built, line: Line, name: str, emit: Emit
) -> BuiltPrefix | None:
    """Make it; None where the patches above do not apply without `name`."""
    members = line.series.select(without=(name,))
    with replayed(project, line, members, emit, strict=False) as replay:
        if any(step.outcome is Outcome.CONFLICT for step in replay.steps):
            return None
        prefix = replay.prefixes[-1]
        _, profile = project.profile(built.profile)
        job = jobs_of.job_of(jobs_of.jobs(project, built.profile, profile), line)
        if job is not None:
            *_, last = recipes.layers_of(project, built.base, job, replay, emit)
            return BuiltPrefix(prefix=last[0], layer=last[1], made=last[2])
        packages = project.settings.upstream[line.series.upstream].packages
        layer = layers.find(project, built.base, prefix.tree, packages)
        made = layer is None
        if layer is None:
            emit(Progress("layers", detail=f"{line.id} without {name}"))
            with environment.building(project, built.profile):
                layer = layers.make(project, built.base, replay, prefix, packages)
        return BuiltPrefix(prefix=prefix, layer=layer, made=made)
