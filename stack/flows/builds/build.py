"""`build`: the base of a profile, a layer per prefix of its lines, and what `prepare` makes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import msgspec

from stack.flows import needs, trust
from stack.flows.builds import environment, install, layers, prepare, recipes
from stack.flows.builds import jobs as jobs_of
from stack.flows.builds.environment import Base, Wanted
from stack.flows.builds.layers import Layer
from stack.flows.builds.shadow import import_name
from stack.flows.events import Emit, Progress, Said
from stack.flows.prefixes import Prefix, Replayed, replayed
from stack.model.project.settings import Profile
from stack.store import atomic
from stack.store.project import Line, Project


class BuiltPrefix(msgspec.Struct, frozen=True, kw_only=True):
    """A prefix of a line with its layer; `made` when this run made it."""

    prefix: Prefix
    layer: Layer
    made: bool


class Built(msgspec.Struct, frozen=True, kw_only=True):
    """What a profile's benches run on; `layers` by the id of the line, the base's prefix first."""

    profile: str
    base: Base
    base_made: bool
    layers: Mapping[str, tuple[BuiltPrefix, ...]]
    prepared: tuple[str, ...]


class PlannedPrefix(msgspec.Struct, frozen=True, kw_only=True):
    """A prefix, and whether its layer is there."""

    prefix: Prefix
    there: bool


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a build would do."""

    profile: str
    want: Wanted
    base: Base | None
    layers: Mapping[str, tuple[PlannedPrefix, ...]]
    prepare: int


def build(project: Project, profile_name: str | None, emit: Emit, *, fresh: bool = False) -> Built:
    """Make what is missing of a profile, and only that; `fresh` makes the base again.

    Raises `Untrusted` where the project's commands were not allowed, `Conflict` before anything is
    installed when a patch does not apply, `BuildFailed` when the base or a layer cannot be made or
    the base was edited, `Locked` while another build runs.
    """
    name, profile = project.profile(profile_name)
    jobs = jobs_of.jobs(project, name, profile)
    _check(project, name, profile, jobs)
    trust.require(project)
    with _replayed(project, profile, emit) as lines:
        want = environment.wanted(project, name, profile)
        base, made = install.ensure(project, want, emit, fresh=fresh)
        packages = _packages(project, lines, jobs)
        for line, _ in lines:
            if line.id in packages:
                layers.check_packages(base, packages[line.id], line.series.upstream)
        if not made:
            emit(Progress("checking the base"))
            environment.refuse_edited(base, _shadowed(packages), name)
        built = {
            line.id: tuple(
                _compiled(project, base, replay, emit, job)
                if (job := jobs_of.job_of(jobs, line))
                else _layers(project, base, replay, emit, profile=name, packages=packages[line.id])
            )
            for line, replay in lines
        }
        for job in jobs:
            if job.line is None:
                prefix, layer, new = recipes.own_layer(project, base, job, emit)
                one = BuiltPrefix(prefix=prefix, layer=layer, made=new)
                built[f"recipe/{job.name}"] = (one,)
        if made:
            _drop_stale_layers(project, name, base)
    prepared: list[str] = []
    if todo := prepare.pending(project, prepare.tasks(project, base, name, profile)):
        with environment.building(project, name):
            for task in todo:
                prepared += prepare.run(
                    project, base, task, emit, name=name, profile=profile
                )
    return Built(
        profile=name, base=base, base_made=made, layers=built, prepared=tuple(prepared)
    )


def plan(project: Project, profile_name: str | None, emit: Emit, *, fresh: bool = False) -> Plan:
    """What `build` would do; nothing is written but fetched sources."""
    name, profile = project.profile(profile_name)
    jobs = jobs_of.jobs(project, name, profile)
    _check(project, name, profile, jobs)
    want = environment.wanted(project, name, profile)
    base = None if fresh else environment.find(project, want)
    rows: dict[str, tuple[PlannedPrefix, ...]] = {}
    with _replayed(project, profile, emit) as lines:
        packages = _packages(project, lines, jobs)
        for line, replay in lines:
            if job := jobs_of.job_of(jobs, line):
                there = recipes.there(project, base, job, replay)
                rows[line.id] = tuple(
                    PlannedPrefix(prefix=prefix, there=here)
                    for prefix, here in zip(replay.prefixes, there, strict=True)
                )
                continue
            rows[line.id] = tuple(
                PlannedPrefix(
                    prefix=prefix,
                    there=base is not None
                    and layers.find(project, base, prefix.tree, packages[line.id]) is not None,
                )
                for prefix in replay.prefixes
            )
    todo = len(profile.prepare)
    if base is not None:
        environment.refuse_edited(base, _shadowed(packages), name)
        todo = len(prepare.pending(project, prepare.tasks(project, base, name, profile)))
    return Plan(profile=name, want=want, base=base, layers=rows, prepare=todo)


def _check(
    project: Project, name: str, profile: Profile, jobs: Sequence[jobs_of.Job]
) -> None:
    """What can be refused before anything is fetched: unmet needs, absent compilers."""
    chosen = [(line, line.series.select()) for line in map(project.find, profile.lines)]
    needs.check(project, name, chosen)
    jobs_of.check_tools(project, jobs)


@contextmanager
def _replayed(
    project: Project, profile: Profile, emit: Emit
) -> Iterator[list[tuple[Line, Replayed]]]:
    """The profile's lines, each replayed on its pin; before anything costly, since it may fail."""
    with ExitStack() as stack:
        found = []
        for text in profile.lines:
            line = project.find(text)
            members = line.series.select()
            found.append((line, stack.enter_context(replayed(project, line, members, emit))))
        yield found


def _layers(
    project: Project, base: Base, line: Replayed, emit: Emit, *, profile: str,
    packages: tuple[str, ...],
) -> Iterator[BuiltPrefix]:
    for at, prefix in enumerate(line.prefixes):
        layer = layers.find(project, base, prefix.tree, packages)
        made = layer is None
        if layer is None:
            if wrong := layers.edits(project, base, prefix.tree):
                whose, names = prefix.name or "the base", ", ".join(wrong[:5])
                text = f"the layer of {whose} was edited by hand and is made again: {names}"
                emit(Said(text, warning=True))
            emit(Progress("layers", at + 1, len(line.prefixes), prefix.name or "base"))
            with environment.building(project, profile):
                layer = layers.find(project, base, prefix.tree, packages) or layers.make(
                    project, base, line, prefix, packages
                )
        yield BuiltPrefix(prefix=prefix, layer=layer, made=made)


def _compiled(
    project: Project, base: Base, line: Replayed, emit: Emit, job: jobs_of.Job
) -> Iterator[BuiltPrefix]:
    for prefix, layer, made in recipes.layers_of(project, base, job, line, emit):
        yield BuiltPrefix(prefix=prefix, layer=layer, made=made)


def _packages(
    project: Project, lines: Sequence[tuple[Line, Replayed]], jobs: Sequence[jobs_of.Job]
) -> dict[str, tuple[str, ...]]:
    """The import packages that each line shadows; a line that a recipe reads shadows none."""
    return {
        line.id: project.settings.upstream[line.series.upstream].packages
        for line, _ in lines
        if jobs_of.job_of(jobs, line) is None
    }


def _shadowed(packages: Mapping[str, tuple[str, ...]]) -> list[str]:
    """The import packages that some line shadows."""
    return sorted({import_name(path) for paths in packages.values() for path in paths})


def _drop_stale_layers(project: Project, profile: str, base: Base) -> None:
    """Remove the layers on an older base of the same key; their links lead nowhere now."""
    with environment.building(project, profile):
        for folder in project.paths.layers.glob(f"{base.record.key}-*"):
            if folder.name != base.key:
                atomic.discard(folder)
