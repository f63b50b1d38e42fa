"""Compiled parts: a layer per prefix, made by a recipe out of the paths that the recipe reads."""

from __future__ import annotations

import hashlib
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from stack.bench.render import render_all
from stack.errors import BuildFailed
from stack.flows.builds import environment
from stack.flows.builds.environment import Base
from stack.flows.builds.jobs import LAST_LINES, Job, Tools, tools_of
from stack.flows.builds.layers import Layer
from stack.flows.builds.sources import Source, of_folder, of_tree
from stack.flows.events import Emit, Progress, Said
from stack.flows.prefixes import Prefix, Replayed
from stack.host import process
from stack.model.project.recipe import RECIPE_SCHEMA, RecipeRecord, recipe_key
from stack.store import atomic
from stack.store.project import Project

EMPTY = "0" * 40  # the layer of a prefix that does not build


def layers_of(
    project: Project, base: Base, job: Job, line: Replayed, emit: Emit
) -> Iterator[tuple[Prefix, Layer, bool]]:
    """The layer of each prefix, and whether it was made now.

    Where an earlier prefix does not build (a patch after it may be what makes it build) its layer
    is empty, and said so; where the last one does not, `BuildFailed`.
    """
    tools = tools_of(project, base, job)
    for prefix in line.prefixes:
        source = of_tree(line.odb, prefix.tree, job.recipe.reads, job.where)
        try:
            layer, made = ensure(project, base, job, tools, source, emit)
        except BuildFailed as wrong:
            if prefix is line.prefixes[-1]:
                raise
            emit(Said(f"{job.line} up to {prefix.name or 'its base'}: {wrong.message}", True))
            yield prefix, _empty(project, base), False
        else:
            yield prefix, layer, made


def there(project: Project, base: Base | None, job: Job, line: Replayed) -> list[bool]:
    """For each prefix, whether its layer is there; with no base none is."""
    if base is None:
        return [False] * len(line.prefixes)
    tools = tools_of(project, base, job)
    sources = (
        of_tree(line.odb, prefix.tree, job.recipe.reads, job.where) for prefix in line.prefixes
    )
    keys = (key_of(job, base, tools, source) for source in sources)
    return [find(project, base, key) is not None for key in keys]


def own_layer(project: Project, base: Base, job: Job, emit: Emit) -> tuple[Prefix, Layer, bool]:
    """The layer of a recipe that reads the project's own folder."""
    tools = tools_of(project, base, job)
    source = of_folder(project.paths.root, job.recipe.reads, job.where)
    layer, made = ensure(project, base, job, tools, source, emit)
    return Prefix(name=None, commit=layer.tree, tree=layer.tree), layer, made


def place(project: Project, base: Base, key: str) -> Path:
    """Where the layer of a key stands; its record is the file beside it."""
    return project.paths.layers / base.key / key


def find(project: Project, base: Base, key: str) -> Layer | None:
    """The finished layer of a key, if it is there and nobody edited it."""
    path = place(project, base, key)
    try:
        record = msgspec.json.decode(_record(path).read_bytes(), type=RecipeRecord)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    if record.schema != RECIPE_SCHEMA or _digests(path) != dict(record.files):
        return None
    return Layer(tree=key, path=path, files=record.files)


def key_of(job: Job, base: Base, tools: Tools, source: Source) -> str:
    return recipe_key(job.recipe, source.ids, tools.said, base.key)


def ensure(
    project: Project, base: Base, job: Job, tools: Tools, source: Source, emit: Emit
) -> tuple[Layer, bool]:
    """The layer of a source, made if need be; true when it was made. Raises `BuildFailed`."""
    key = key_of(job, base, tools, source)
    layer = find(project, base, key)
    if layer is not None:
        return layer, False
    with environment.building(project, job.profile):
        layer = find(project, base, key)
        if layer is not None:
            return layer, False
        return _make(project, base, job, tools, source, key, emit), True


def _make(
    project: Project, base: Base, job: Job, tools: Tools, source: Source, key: str, emit: Emit
) -> Layer:
    """Run the recipe in a fresh folder, keep its outputs in one rename, the record last."""
    recipe, path = job.recipe, place(project, base, key)
    _record(path).unlink(missing_ok=True)
    atomic.sweep(path.parent)
    work = project.paths.state / "recipes" / job.name / secrets.token_hex(4)
    if work.parent.is_dir():
        for left in work.parent.iterdir():  # by a killed run, whose compiler may still be writing
            atomic.discard(left)
    log = project.paths.logs / f"recipe-{job.name}-{key[:12]}.log"
    log.unlink(missing_ok=True)
    try:
        source.write(work)
        folder = work / recipe.folder
        if not folder.is_dir():
            raise BuildFailed(f"{job.where}.folder: what it reads has no folder {recipe.folder}")
        for pattern in recipe.clean:
            for old in folder.glob(pattern):
                atomic.discard(old)
        seconds = 0.0
        if recipe.command:
            argv = render_all(recipe.command, tools.values, f"{job.where}.command")
            program = shutil.which(argv[0], path=tools.env["PATH"]) or argv[0]
            done = process.run(
                [program, *argv[1:]], log=log, cwd=folder, env=tools.env, limit=recipe.limit,
                on_tick=lambda past, _: emit(Progress(job.name, detail=f"{past:.0f} s")),
            )
            seconds = done.seconds
            if not done.ok:
                raise _failed(project, job, log, f"ended with {done.exit_code}", done)
        absent = [name for name in recipe.outputs if not (folder / name).exists()]
        if absent:
            raise _failed(project, job, log, f"made no {', '.join(absent)}")
        with atomic.new_folder(path) as staging:
            for name in recipe.outputs:
                _copy(folder / name, staging / Path(name).name)
    finally:
        atomic.discard(work)
    record = RecipeRecord(
        key=key, recipe=job.name, reads=source.ids, toolchain=tools.said, files=_digests(path),
        seconds=round(seconds, 1),
    )
    atomic.write(_record(path), msgspec.json.encode(record))
    emit(Said(f"recipe {job.name}: layer {key[:12]} made in {seconds:.0f} s"))
    return Layer(tree=key, path=path, files=record.files)


Read = tuple[str, frozenset[tuple[str, str]]]  # a recipe, and the ids of what it read


def reads_of(job: Job, line: Replayed | None, root: Path) -> set[Read]:
    """What the layers of a job that are still of use have read."""
    where, reads = job.where, job.recipe.reads
    sources = (
        [of_tree(line.odb, prefix.tree, reads, where) for prefix in line.prefixes]
        if line is not None
        else [of_folder(root, reads, where)]
    )
    return {(job.name, frozenset(source.ids.items())) for source in sources}


def read_by(path: Path) -> Read | None:
    """What the layer at a path has read; None for a layer that no recipe made."""
    try:
        record = msgspec.json.decode(_record(path).read_bytes(), type=RecipeRecord)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    return record.recipe, frozenset(record.reads.items())


def _copy(found: Path, to: Path) -> None:
    if found.is_dir():
        shutil.copytree(found, to, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy2(found, to)


def _failed(
    project: Project, job: Job, log: Path, what: str, done: process.Finished | None = None
) -> BuildFailed:
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    last = [line[:200] for line in text.splitlines() if line.strip()][-LAST_LINES:]
    if done is not None and done.timed_out:
        what = f"did not end within {job.recipe.limit:.0f} s"
    return BuildFailed(
        f"recipe `{job.name}`: the command {what}",
        context=[f"log: {project.shown(log)}", *(f"| {line}" for line in last)],
        hint=f"stack build --profile {job.profile} --print shows every step to try by hand",
    )


def _empty(project: Project, base: Base) -> Layer:
    """A layer that holds nothing: the part is not there."""
    path = place(project, base, EMPTY)
    path.mkdir(parents=True, exist_ok=True)
    return Layer(tree=path.name, path=path, files={})


def _digests(path: Path) -> dict[str, str]:
    """The sha256 of every file below a folder but bytecode."""
    return {
        file.relative_to(path).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(path.rglob("*"))
        if file.is_file() and "__pycache__" not in file.parts
    }


def _record(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")
