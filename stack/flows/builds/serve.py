"""Which prefix a profile's environment runs: choose it, and go back."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec

from stack.errors import StateError, UsageError
from stack.flows.builds import environment, jobs, layers, recipes
from stack.flows.builds.environment import Base
from stack.flows.builds.shadow import import_name
from stack.flows.builds.sources import of_tree
from stack.flows.events import Emit
from stack.flows.prefixes import Prefix, Replayed, replayed
from stack.model.line.line import Member
from stack.model.project.build import LayerRecord
from stack.model.project.serving import SERVING_SCHEMA, ServedLayer, Serving
from stack.model.project.settings import Profile
from stack.store import atomic, documents, lock
from stack.store.project import Line, Project

CURRENT = "current"


def parse(text: str) -> tuple[str, str | None]:
    """`LINE[:PATCH]`: the line, and None for all of it; "" behind the colon is its base."""
    line, colon, patch = text.partition(":")
    return line, patch if colon else None


def members_of(line: Line, patch: str | None) -> Sequence[Member]:
    """The patches of a prefix; `UsageError` for a patch that the line does not have."""
    if patch == "":
        return ()
    return line.series.select(to=patch)


def use(
    project: Project, text: str, emit: Emit, *, profile: str | None = None, dry_run: bool = False
) -> tuple[Serving, bool]:
    """Make a profile run a prefix from now on; what it runs, and whether that is new.

    Everything is made first; the switch is one link, renamed. Processes that run keep what they
    were started with. Raises `Conflict`, `BuildFailed`, and `StateError` without a built base.
    """
    name, _ = project.profile(profile)
    made = choose(project, name, text, emit, dry_run=dry_run)
    if dry_run:
        now = current(project, name)
        return made, now is None or not _same(now, made)
    with _switching(project, name):
        now = current(project, name)
        if now is not None and _same(now, made):
            return now, False
        folder = _folder(project, name)
        number = 1 + max((int(path.stem) for path in folder.glob("[0-9]*.json")), default=0)
        made = msgspec.structs.replace(
            made, number=number, previous=now.number if now else None
        )
        atomic.write(folder / f"{number}.json", msgspec.json.encode(made))
        atomic.replace_link(folder / CURRENT, f"{number}.json")
    return made, True


def rollback(
    project: Project, profile: str | None = None, *, dry_run: bool = False
) -> tuple[Serving, Serving]:
    """Make a profile run again what it ran before; what it left, and what it runs now."""
    name, _ = project.profile(profile)
    with _switching(project, name):
        now = current(project, name)
        if now is None or now.previous is None:
            raise StateError(
                f"profile {name}: nothing was in use before"
                + (f" {now.chosen()}" if now else ""),
                hint="stack use LINE[:PATCH]",
            )
        before = read(project, name, f"{now.previous}.json")
        if before is None:
            raise StateError(f"profile {name}: the record of number {now.previous} is gone",
                             hint="stack use LINE[:PATCH]")
        refuse_gone(project, before)
        if not dry_run:
            atomic.replace_link(_folder(project, name) / CURRENT, f"{before.number}.json")
    return now, before


def choose(
    project: Project, name: str, text: str | None, emit: Emit, *, dry_run: bool = False
) -> Serving:
    """The layers of a profile with one of its lines at a prefix, made if need be.

    Without `text` every line is whole. A line of the profile's upstreams may be named that is not
    one of its own.
    """
    profile = project.settings.profile[name]
    lines = [project.find(one) for one in profile.lines]
    line, patch = parse(text) if text else (None, None)
    chosen = project.find(line) if line else lines[0] if lines else None
    if chosen is None:
        raise UsageError(f"profile {name} has no lines", hint=f"lines = [...] in [profile.{name}]")
    if chosen.series.upstream not in [one.series.upstream for one in lines]:
        raise UsageError(
            f"profile {name} has no line of {chosen.series.upstream}",
            hint=f"its lines: {', '.join(one.id for one in lines) or 'none'}; --profile NAME",
        )
    base = base_of(project, name, profile)
    packages = {
        import_name(path)
        for one in lines
        for path in project.settings.upstream[one.series.upstream].packages
    }
    environment.refuse_edited(base, sorted(packages), name, quick=True)
    listed = jobs.jobs(project, name, profile)
    found: list[ServedLayer] = []
    env: dict[str, str] = {}
    for one in lines:
        mine = chosen if one.series.upstream == chosen.series.upstream else one
        members = members_of(mine, patch if mine is chosen else None)
        with replayed(project, mine, members, emit) as replay:
            job = jobs.job_of(listed, one)
            found.append(_layer(project, base, mine, replay, job, emit, name, dry_run=dry_run))
        for member in members:
            env |= {} if member.kind == "diagnostic" else dict(member.env)
    for job in listed:
        if job.line is None and not dry_run:
            _, layer, _ = recipes.own_layer(project, base, job, emit)
            found.append(_served(project, f"recipe/{job.name}", None, layer))
    return Serving(
        schema=SERVING_SCHEMA, number=0, previous=None, profile=name, base=base.key,
        time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), line=chosen.id,
        patch=next(one.patch for one in found if one.line == chosen.id), layers=tuple(found),
        env=env,
    )


def _layer(
    project: Project, base: Base, line: Line, replay: Replayed, job: jobs.Job | None, emit: Emit,
    profile: str, *, dry_run: bool,
) -> ServedLayer:
    prefix: Prefix = replay.prefixes[-1]
    if dry_run:
        place = layers.place(project, base, prefix.tree)
        planned = layers.Layer(tree=prefix.tree, path=place, files={})
        return _served(project, line.id, prefix.name, planned)
    if job is not None:
        tools = jobs.tools_of(project, base, job)
        source = of_tree(replay.odb, prefix.tree, job.recipe.reads, job.where)
        layer, _ = recipes.ensure(project, base, job, tools, source, emit)
        return _served(project, line.id, prefix.name, layer)
    packages = project.settings.upstream[line.series.upstream].packages
    layers.check_packages(base, packages, line.series.upstream)
    found = layers.find(project, base, prefix.tree, packages)
    if found is None:
        _refuse_edits(project, layers.place(project, base, prefix.tree), line)
        with environment.building(project, profile):
            found = layers.find(project, base, prefix.tree, packages) or layers.make(
                project, base, replay, prefix, packages
            )
    return _served(project, line.id, prefix.name, found)


def _refuse_edits(project: Project, path: Path, line: Line) -> None:
    """Raise `StateError` where making a layer again would lose edits that somebody made in it."""
    try:
        record = msgspec.json.decode(
            path.with_name(f"{path.name}.json").read_bytes(), type=LayerRecord
        )
    except (FileNotFoundError, msgspec.MsgspecError):
        return
    wrong = layers.edited(path, record.files, record.links) if path.is_dir() else []
    if wrong:
        raise StateError(
            f"{project.shown(path)}: edited since it was made", context=wrong[:20],
            hint=f"stack capture --line {line.id} NAME makes a patch of it; stack build makes the "
            "layer again without the edits",
        )


def _served(project: Project, line: str, patch: str | None, layer: layers.Layer) -> ServedLayer:
    place = layer.path.relative_to(project.paths.layers).as_posix()
    return ServedLayer(line=line, patch=patch, tree=layer.tree, place=place)


def base_of(project: Project, name: str, profile: Profile) -> Base:
    """The profile's base environment; `StateError` where it is not built."""
    base = environment.find(project, environment.wanted(project, name, profile))
    if base is None:
        raise StateError(
            f"profile {name} has no environment yet", hint=f"stack build --profile {name}"
        )
    return base


def current(project: Project, profile: str) -> Serving | None:
    """What a profile runs; None where nothing was chosen."""
    return read(project, profile, CURRENT)


def read(project: Project, profile: str, name: str) -> Serving | None:
    """A record of what a profile ran, by number or as the current one."""
    path = _folder(project, profile) / name
    return documents.read(project, path, Serving, hint="stack use LINE[:PATCH] writes another")


def refuse_gone(project: Project, serving: Serving) -> None:
    """Raise `StateError` where a layer of what was chosen stands no more, or its base does not."""
    again = f"stack use {serving.chosen()} --profile {serving.profile}"
    profile = project.settings.profile.get(serving.profile)
    if profile is None or base_of(project, serving.profile, profile).key != serving.base:
        raise StateError(
            f"profile {serving.profile}: its environment was made again since {serving.chosen()} "
            "was chosen", hint=again,
        )
    for one in serving.layers:
        path = project.paths.layers / one.place
        if not path.is_dir() or not path.with_name(f"{path.name}.json").exists():
            raise StateError(
                f"profile {serving.profile}: the layer of {one.line} is gone",
                context=[project.shown(path)], hint=again,
            )


def profiles(project: Project) -> list[str]:
    """The profiles for which something was chosen."""
    return sorted(path.parent.name for path in _active(project).glob(f"*/{CURRENT}"))


def trees(project: Project) -> set[str]:
    """The layers, by the name of their folder, that some choice of a profile still names."""
    found: set[str] = set()
    for path in _active(project).glob("*/[0-9]*.json"):
        serving = read(project, path.parent.name, path.name)
        found |= {Path(one.place).name for one in serving.layers} if serving else set()
    return found


def _active(project: Project) -> Path:
    return project.paths.state / "active"


def _folder(project: Project, profile: str) -> Path:
    return _active(project) / profile


def _switching(project: Project, profile: str) -> AbstractContextManager[None]:
    project.paths.ensure_state()
    folder = _folder(project, profile)
    folder.mkdir(parents=True, exist_ok=True)
    return lock.hold(folder / "lock", f"stack use --profile {profile}", wait=10)


def _same(one: Serving, other: Serving) -> bool:
    said = ("base", "line", "patch", "layers", "env")
    return all(getattr(one, name) == getattr(other, name) for name in said)
