"""What `stack.toml` says: upstreams, profiles, recipes, benches, screens and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from stack.model.hardware import Checkpoint, Hardware
from stack.model.line.line import Name
from stack.model.log.signatures import Signature
from stack.model.measure.screen import Screen
from stack.model.project.recipe import Recipe, Variable

SCHEMA = 1
SourceKind = Literal["path", "git", "sdist"]


class Upstream(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"
):
    """Where a source repository is to be had, and which of its folders are import packages.

    `path` may begin with `$NAME`, an environment variable; unset means not configured.
    `env-registry` is the file in which upstream registers the environment names that begin with
    `env-prefix`.
    """

    git: str | None = None
    path: str | None = None
    sdist: str | None = None
    default: Name | None = None
    packages: tuple[str, ...] = ()
    env_registry: str | None = None
    env_prefix: str | None = None


class Profile(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"
):
    """What `build` and `verify` mean on one kind of machine.

    `packages` are requirements for the base environment, `indexes` further package indexes,
    `leave-out` distributions that they ask for and that must not be there (a build of another
    device that breaks what imports it), `install-env` is set while they are fetched and built,
    `lines` the lines whose prefixes become layers, by one of `recipes` where a recipe reads that
    line's upstream, `prepare` commands that make inputs once, `env` is set for every process of
    the profile, `dry-run` prints the engine's command line that a bench comes to, where the bench's
    own is a wrapper; `resources` is what a trial holds of a cluster's host, by Ray's names (all
    processors, so that nothing else runs there, unless `CPU` says how many); `hardware` and
    `checkpoint` are what `stack doctor --profile` looks for. Strings are jinja2 templates.
    """

    python: str = ">=3.11"
    packages: tuple[str, ...] = ()
    leave_out: tuple[str, ...] = ()
    indexes: tuple[str, ...] = ()
    install_env: Mapping[Variable, str] = {}
    lines: tuple[str, ...] = ()
    recipes: tuple[Name, ...] = ()
    prepare: tuple[tuple[str, ...], ...] = ()
    env: Mapping[str, str] = {}
    benches: tuple[Name, ...] = ()
    dry_run: tuple[str, ...] = ()
    resources: Mapping[str, Annotated[float, msgspec.Meta(gt=0)]] = {}
    hardware: Hardware = Hardware()
    checkpoint: Checkpoint | None = None


class Gate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """A command that prints one JSON object; the value at `field` must be equal in both arms.

    With `result` the object stands in that file instead. Numbers, also lists of them, may differ by
    `tolerance`, a fraction of the larger one; `at-most` bounds a number on each side (an error
    against a reference).
    """

    command: tuple[str, ...]
    field: str
    result: str | None = None
    tolerance: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.0
    at_most: float | None = None
    limit: float = 300.0
    stall: float = 120.0


class Bench(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """How to measure one number: command, where the number stands, and what it means.

    `limit` and `stall` are seconds; `minimum-effect` is a fraction (0.01 is one per cent).
    `draws` is of how many builds of each side the pairs are taken in turn, each with compile caches
    of its own, so that a lucky build is not taken for an effect.
    `result` is the JSON file that the command writes, `metric` the key in it, `log-pattern` a
    regular expression with one group that must find the engine's own figure in the log. Where
    `profiles` are named, other profiles leave the bench out, though a patch asks for it.
    """

    command: tuple[str, ...]
    metric: str
    unit: str
    better: Literal["higher", "lower"] = "higher"
    minimum_effect: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.01
    pairs: Annotated[int, msgspec.Meta(ge=1, le=8)] = 3
    draws: Annotated[int, msgspec.Meta(ge=1, le=8)] = 1
    result: str = "{{ out }}/result.json"
    log_pattern: str | None = None
    limit: float = 600.0
    stall: float = 180.0
    env: Mapping[str, str] = {}
    gate: Gate | None = None
    profiles: tuple[Name, ...] = ()


class Defaults(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"
):
    """What a bare verb means."""

    upstream: Name | None = None
    profile: Name | None = None


class Settings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"
):
    """The whole of `stack.toml`."""

    schema: int
    defaults: Defaults = Defaults()
    upstream: Mapping[Name, Upstream] = {}
    profile: Mapping[Name, Profile] = {}
    recipe: Mapping[Name, Recipe] = {}
    bench: Mapping[Name, Bench] = {}
    screen: Mapping[Name, Screen] = {}
    signature: tuple[Signature, ...] = ()
