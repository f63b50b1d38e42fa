"""How a compiled part is made: from which paths, in which environment, by which command."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated

import msgspec

from stack.model.line.line import Name

RECIPE_SCHEMA = 1
Variable = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z_][A-Za-z0-9_]*\Z")]
Inside = Annotated[str, msgspec.Meta(pattern=r"\A(?!/)(?!(?:.*/)?\.\.(?:/|\Z)).+\Z")]


class Recipe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """What makes a layer out of source: a command in a folder that holds `reads` and nothing else.

    `upstream` names the line whose tree is read; without it the project's own folder is. `folder`
    is where the command runs, below it stand `clean` (shell patterns, removed before) and
    `outputs`, each of which goes into the layer under its last name. `path` comes before PATH,
    `env` is set and `unset` removed. `toolchain` are commands whose output is part of the key, so
    another compiler makes another layer. With no `command` the outputs are what was read.
    `provides` are the `needs` that the result meets.
    Strings of `path`, `env` and `command` are jinja2 templates. `limit` is in seconds.
    """

    upstream: Name | None = None
    reads: Annotated[tuple[Inside, ...], msgspec.Meta(min_length=1)]
    folder: Inside = "."
    path: tuple[str, ...] = ()
    env: Mapping[Variable, str] = {}
    unset: tuple[Variable, ...] = ()
    clean: tuple[Inside, ...] = ()
    command: tuple[str, ...] = ()
    outputs: Annotated[tuple[Inside, ...], msgspec.Meta(min_length=1)]
    toolchain: tuple[tuple[str, ...], ...] = ()
    provides: tuple[str, ...] = ()
    limit: float = 7200.0


class RecipeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A finished layer of a recipe; `files` maps a path below the layer to its sha256.

    `reads` maps each path that was read to the id of what stood there.
    """

    schema: int = RECIPE_SCHEMA
    key: str
    recipe: str
    reads: Mapping[str, str]
    toolchain: tuple[str, ...]
    files: Mapping[str, str]
    seconds: float


def recipe_key(
    recipe: Recipe, reads: Mapping[str, str], toolchain: tuple[str, ...], base: str
) -> str:
    """Forty hex digits that name a layer: equal for equal sources, recipe, tools and base.

    The recipe's own text is used, not what it renders to, so a moved project keeps its layers.
    """
    said = [RECIPE_SCHEMA, msgspec.to_builtins(recipe), sorted(reads.items()), toolchain, base]
    return hashlib.sha256(msgspec.json.encode(said)).hexdigest()[:40]
