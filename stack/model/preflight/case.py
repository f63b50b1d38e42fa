"""One attempt to load a model, and what is said about it before."""

from __future__ import annotations

from typing import Literal

import msgspec

from stack.model.hardware import Hardware
from stack.model.preflight.arguments import Arguments
from stack.model.preflight.shape import Shape, Tensors

Release = tuple[int, ...]


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One thing looked at: `ok`, `note` (runs, but know it) or `refused`; `source` has the rule."""

    what: str
    result: Literal["ok", "note", "refused"]
    text: str
    hint: str | None = None
    source: str | None = None


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A model, what is asked of the engine, and where; `weights` in bytes, `memory` in GiB each.

    `release` is the engine's, () for an unknown one.
    """

    shape: Shape
    tensors: Tensors | None
    asked: Arguments
    hardware: Hardware
    weights: float | None = None
    memory: float | None = None
    release: Release = ()
