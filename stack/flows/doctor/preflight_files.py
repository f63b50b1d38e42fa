"""The files of a checkpoint: sizes, names of tensors, weights; nothing big is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from stack.errors import ConfigError, UsageError
from stack.model.preflight.shape import Shape, Tensors, shape, tensors

INDEX = "model.safetensors.index.json"
# What the safetensors library itself takes for a header, in bytes.
_LONGEST_HEADER = 100_000_000


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint's folder; `weights` in bytes, None where there is no shard."""

    folder: Path
    shape: Shape
    tensors: Tensors | None
    weights: float | None


def read(folder: Path) -> Model:
    """Raises `UsageError` without a `config.json`, `ConfigError` for files that are damaged."""
    config = folder / "config.json"
    if not config.is_file():
        raise UsageError(
            f"{folder}: no config.json", hint="--model DIR: the folder with the checkpoint"
        )
    index = folder / INDEX
    shards = sorted(folder.glob("*.safetensors"))
    names: list[str] | None = None
    total: float | None = None
    if index.is_file():
        said = _object(index)
        names = list(_mapping(said, "weight_map"))
        total = _mapping(said, "metadata").get("total_size")
    elif shards:
        names = [name for shard in shards for name in _header(shard)]
    held = float(sum(path.stat().st_size for path in shards))
    return Model(
        folder=folder, shape=shape(_object(config)),
        tensors=None if names is None else tensors(names),
        weights=max(held, float(total or 0)) or None,
    )


def _object(path: Path) -> Mapping[str, Any]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except msgspec.MsgspecError as wrong:
        raise ConfigError(f"{path}: {wrong}", hint="download the file again") from None


def _mapping(said: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = said.get(key)
    return found if isinstance(found, dict) else {}


def _header(path: Path) -> Iterator[str]:
    """The names of a shard's tensors: 8 bytes of length, little endian, then one JSON object."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        data = file.read(size) if size <= _LONGEST_HEADER else b""
    try:
        names = msgspec.json.decode(data, type=dict[str, Any])
    except msgspec.MsgspecError:
        raise ConfigError(
            f"{path}: no safetensors header of {size} bytes", hint="download the file again"
        ) from None
    return (name for name in names if name != "__metadata__")
