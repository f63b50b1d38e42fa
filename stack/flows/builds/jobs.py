"""The recipes of a profile as jobs: which line each reads, its tools, its environment."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence

import msgspec

from stack.bench.render import render_all, render_env
from stack.errors import BuildFailed, ConfigError
from stack.flows.builds import environment
from stack.flows.builds.environment import Base
from stack.host import process
from stack.model.line.line import near
from stack.model.project.recipe import Recipe
from stack.model.project.settings import Profile
from stack.store.paths import CONFIG
from stack.store.project import Line, Project

LAST_LINES = 6


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A recipe of a profile: what it is called there, and the line that it reads (None: none)."""

    name: str
    recipe: Recipe
    profile: str
    line: str | None

    @property
    def where(self) -> str:
        return f"stack.toml: recipe.{self.name}"


class Tools(msgspec.Struct, frozen=True, kw_only=True):
    """A job on one base: the names its templates may use, its environment, what its tools say."""

    values: Mapping[str, object]
    env: Mapping[str, str]
    said: tuple[str, ...]


def jobs(project: Project, name: str, profile: Profile) -> list[Job]:
    """The recipes of a profile; `ConfigError` for one that is unknown or reads no line of it."""
    known = project.settings.recipe
    lines = {line.series.upstream: line.id for line in map(project.find, profile.lines)}
    found: list[Job] = []
    for text in profile.recipes:
        where = f"stack.toml: profile.{name}.recipes"
        if text not in known:
            hint = near(text, list(known), CONFIG)
            raise ConfigError(f"{where}: no recipe `{text}`", hint=hint)
        recipe = known[text]
        if recipe.upstream is not None and recipe.upstream not in lines:
            raise ConfigError(
                f"{where}: `{text}` reads {recipe.upstream}, of which the profile has no line",
                hint="add one to its `lines`",
            )
        line = lines[recipe.upstream] if recipe.upstream is not None else None
        if line is not None and any(job.line == line for job in found):
            raise ConfigError(f"{where}: two recipes read {recipe.upstream}", hint="name one")
        found.append(Job(name=text, recipe=recipe, profile=name, line=line))
    return found


def check_tools(project: Project, listed: Sequence[Job]) -> None:
    """Raise `BuildFailed`, before anything is fetched, naming a program that is not there."""
    values = {"root": str(project.paths.root)}
    for job in listed:
        folders = [text for text in job.recipe.path if "{{" not in text.replace("{{ root }}", "")]
        searched = render_all(folders, values, f"{job.where}.path")
        path = os.pathsep.join([*searched, os.environ.get("PATH", os.defpath)])
        for argv in (*job.recipe.toolchain, job.recipe.command):
            if not argv or "{{" in argv[0] or shutil.which(argv[0], path=path):
                continue
            where = f" in {', '.join(searched)} or" if searched else ""
            raise BuildFailed(
                f"profile {job.profile}: recipe `{job.name}` needs `{argv[0]}`, which is not"
                f"{where} on PATH",
                hint=f"stack doctor --profile {job.profile} says what is missing, and what to do",
            )


def tools_of(project: Project, base: Base, job: Job) -> Tools:
    """The environment of a job on a base, and what its toolchain says of itself."""
    values = {
        **environment.values(project, base, job.profile), "venv": str(base.venv),
        "site_packages": str(base.site_packages),
    }
    env = environment_of(job, values, os.environ)
    said = []
    for at, texts in enumerate(job.recipe.toolchain):
        argv = render_all(texts, values, f"{job.where}.toolchain[{at}]")
        program = shutil.which(argv[0], path=env["PATH"]) or argv[0]
        code, out, err = process.capture([program, *argv[1:]], env=env, timeout=120)
        text = (out + err).decode("utf-8", "replace").strip()
        if code != 0:
            raise BuildFailed(
                f"profile {job.profile}: recipe `{job.name}`: `{' '.join(argv)}` ended with {code}",
                context=[f"| {line}" for line in text.splitlines()[-LAST_LINES:]],
                hint=f"stack doctor --profile {job.profile} says what is missing",
            )
        said.append(text)
    return Tools(values=values, env=env, said=tuple(said))


def environment_of(
    job: Job, values: Mapping[str, object], outer: Mapping[str, str]
) -> dict[str, str]:
    """The variables of the recipe's command: the caller's without `unset`, then the recipe's."""
    recipe = job.recipe
    env = {
        name: text for name, text in outer.items()
        if name not in recipe.unset and not name.startswith("PYTHON")
    }
    folders = render_all(recipe.path, values, f"{job.where}.path")
    env["PATH"] = os.pathsep.join([*folders, f"{values['venv']}/bin", env.get("PATH", os.defpath)])
    return env | render_env(recipe.env, values, f"{job.where}.env")


def job_of(listed: Sequence[Job], line: Line) -> Job | None:
    """The job that makes the layers of a line, if a recipe does."""
    return next((job for job in listed if job.line == line.id), None)
