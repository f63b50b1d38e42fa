"""What `stack build` records: the base environment, a layer, and what was prepared."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import msgspec

BUILD_SCHEMA = 1
LAYER_SCHEMA = 1
PREPARED_SCHEMA = 1


class Interpreter(msgspec.Struct, frozen=True, kw_only=True):
    """A Python to build with: its full version, and the platform that its wheels are for."""

    path: str
    version: str
    platform: str


class Fetched(msgspec.Struct, frozen=True, kw_only=True):
    """What an installer downloaded: distributions, and their size in bytes.

    uv tells no sizes below 1 MiB, so with it the size is a little less than the truth.
    """

    count: int = 0
    size: int = 0


class BuildRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A finished base environment; the existence of its file is what "built" means.

    `venv` is the folder beside the record, `records` maps a `.dist-info` folder to the sha256 of
    its RECORD, `size` is in bytes on disk.
    """

    schema: int = BUILD_SCHEMA
    key: str
    venv: str
    interpreter: Interpreter
    requested: tuple[str, ...]
    indexes: tuple[str, ...]
    skipped: tuple[str, ...]
    installer: str
    installed: tuple[str, ...]
    records: Mapping[str, str]
    fetched: Fetched
    torch: str | None
    size: int
    files: int
    seconds: float


class LayerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A finished layer: the patched files it holds, and the probe that saw them loaded.

    `files` maps a path below the layer to the sha256 of its content, "" for a file that a patch
    removes. `outside` are changed paths of the upstream that no package holds.
    """

    schema: int = LAYER_SCHEMA
    tree: str
    base: str
    packages: tuple[str, ...]
    files: Mapping[str, str]
    outside: tuple[str, ...]
    links: int
    probed: bool


class PreparedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A finished `prepare` command and the entries it left among the models."""

    schema: int = PREPARED_SCHEMA
    key: str
    command: tuple[str, ...]
    made: tuple[str, ...]
    seconds: float


def base_key(
    interpreter: Interpreter, packages: Sequence[str], indexes: Sequence[str],
    leave_out: Sequence[str] = (), env: Mapping[str, str] | None = None,
) -> str:
    """Sixteen hex digits that name a base: equal requests give equal keys.

    The installer is left out on purpose: uv or pip give the same environment, and uv appearing
    on PATH must not cost a new base.
    """
    said = [
        BUILD_SCHEMA, interpreter.version, interpreter.platform, list(packages), list(indexes),
        sorted(leave_out), *([sorted(env.items())] if env else []),
    ]
    return hashlib.sha256(msgspec.json.encode(said)).hexdigest()[:16]
