"""Which settings a screen tries, and which of them cannot work and are never started."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from stack.errors import ConfigError, StackError, Untrusted, UsageError
from stack.flows.doctor import preflight
from stack.flows.events import Emit, Said
from stack.model import toml
from stack.model.line.line import near
from stack.model.measure.screen import SCREEN_SCHEMA, Screen, Screens, candidates, problems
from stack.model.measure.screen_setting import Setting, arguments, environment, label
from stack.model.preflight.case import Point
from stack.model.project.settings import Bench, Profile
from stack.store.paths import CONFIG
from stack.store.project import Project


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that differs from the control; `refusal` is why no engine would load with it."""

    label: str
    setting: Setting
    refusal: Point | None = None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A screen with everything that it names."""

    name: str
    screen: Screen
    profile_name: str
    profile: Profile
    bench: Bench
    pairs: int
    control: Setting
    candidates: tuple[Candidate, ...]

    @property
    def each(self) -> int:
        """Trials of a candidate that runs and is not given up."""
        return 2 * (bool(self.bench.gate) + 1 + self.pairs)


def find(project: Project, wanted: str, folder: Path) -> tuple[str, Screen]:
    """A screen by its name in `stack.toml`, by its file, or by `FILE:NAME` where a file has more.

    Raises `UsageError` for one that nobody described, `ConfigError` for one that is wrong.
    """
    path, _, inner = wanted.partition(":")
    if path.endswith(".toml"):
        at = folder / path
        if not at.is_file():
            raise UsageError(f"{at}: no such file", hint="stack screen NAME or FILE.toml")
        held = toml.load(at.read_bytes(), Screens, path, schema=SCREEN_SCHEMA).screen
        where, name = path, inner or (next(iter(held)) if len(held) == 1 else "")
        if name not in held:
            what = f"no screen `{name}`" if name else "several screens"
            raise UsageError(f"{path}: {what}", hint=f"one of {', '.join(sorted(held))}")
    else:
        held, where, name = dict(project.settings.screen), CONFIG, wanted
        if name not in held:
            raise UsageError(
                f"no screen `{name}` in {CONFIG}",
                hint=near(name, list(held), CONFIG),
            )
    wrong = next(problems(held[name]), None)
    if wrong is not None:
        raise ConfigError(f"{where}: screen.{name}.{wrong}")
    return name, held[name]


def plan(
    project: Project, name: str, screen: Screen, emit: Emit, *, profile: str | None = None,
    pairs: int | None = None,
) -> Plan:
    """The settings of a screen, each looked at by a preflight where the checkpoint is there."""
    profile_name, chosen = project.profile(profile or screen.profile)
    bench = project.settings.bench.get(screen.bench)
    if bench is None:
        hint = near(screen.bench, list(project.settings.bench), CONFIG)
        raise ConfigError(f"screen.{name}.bench: no bench `{screen.bench}`", hint=hint)
    found: list[Candidate] = []
    for setting in candidates(screen):
        whole = {**screen.control, **setting}
        refusal = _refusal(project, profile_name, screen.bench, whole, emit)
        found.append(Candidate(label=label(setting), setting=setting, refusal=refusal))
    if not found:
        raise ConfigError(
            f"screen.{name}: no setting is left to try", hint="other values, or fewer excludes"
        )
    return Plan(
        name=name, screen=screen, profile_name=profile_name, profile=chosen, bench=bench,
        pairs=pairs or screen.pairs or bench.pairs, control=screen.control,
        candidates=tuple(found),
    )


def _refusal(
    project: Project, profile: str, bench: str, setting: Setting, emit: Emit
) -> Point | None:
    try:
        found: Sequence[Point] = preflight.look(
            project, profile, bench, env=environment(setting), arguments=arguments(setting)
        )
    except Untrusted:
        raise
    except StackError as wrong:
        emit(Said(f"{label(setting)}: no preflight: {wrong.message}", warning=True))
        return None
    return preflight.refused(found)
