"""The layer of any choice of a line's patches: the whole line without one, or with a parked one."""

from __future__ import annotations

from collections.abc import Sequence

from stack.errors import BuildFailed
from stack.flows.builds import environment, layers, recipes
from stack.flows.builds import jobs as jobs_of
from stack.flows.builds.build import Built, BuiltPrefix
from stack.flows.events import Emit, Progress
from stack.flows.prefixes import Prefix, Replayed, replayed
from stack.model.line.line import Member
from stack.model.line.outcome import Outcome
from stack.store.project import Line, Project


def selected(
    project: Project, built: Built, line: Line, members: Sequence[Member], emit: Emit
) -> BuiltPrefix | None:
    """Make the layer of these patches; None where one of them does not apply."""
    with replayed(project, line, members, emit, strict=False) as replay:
        if any(step.outcome is Outcome.CONFLICT for step in replay.steps):
            return None
        return layer_of(project, built, line, replay, replay.prefixes[-1], emit)


def layer_of(
    project: Project, built: Built, line: Line, replay: Replayed, prefix: Prefix, emit: Emit
) -> BuiltPrefix:
    """The layer of a tree that stands beside the line's own prefixes, made where it is not there.

    Raises `BuildFailed` where it cannot be made, or the line is read by a recipe and the tree is
    not the last of the replay.
    """
    _, profile = project.profile(built.profile)
    job = jobs_of.job_of(jobs_of.jobs(project, built.profile, profile), line)
    if job is not None:
        if prefix is not replay.prefixes[-1]:
            raise BuildFailed(f"{line.id} is read by a recipe, which builds prefixes only")
        *_, last = recipes.layers_of(project, built.base, job, replay, emit)
        return BuiltPrefix(prefix=last[0], layer=last[1], made=last[2])
    packages = project.settings.upstream[line.series.upstream].packages
    layer = layers.find(project, built.base, prefix.tree, packages)
    made = layer is None
    if layer is None:
        emit(Progress("layers", detail=f"{line.id} at {prefix.name or 'its base'}"))
        with environment.building(project, built.profile):
            layer = layers.make(project, built.base, replay, prefix, packages)
    return BuiltPrefix(prefix=prefix, layer=layer, made=made)
