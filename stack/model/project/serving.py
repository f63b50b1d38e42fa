"""What `stack use` and `stack install` record: which prefix an environment runs."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

SERVING_SCHEMA = 1
INSTALL_SCHEMA = 1


class ServedLayer(msgspec.Struct, frozen=True, kw_only=True):
    """One layer on the import path: the line and patch that it ends with, and its place.

    `place` is below the folder of all layers; `patch` is None for the line's base.
    """

    line: str
    patch: str | None
    tree: str
    place: str


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """One choice of prefixes for a profile; `previous` is the number of the one before it.

    `layers` are in import order; `env` is what turns their patches on.
    """

    schema: int = SERVING_SCHEMA
    number: int
    previous: int | None
    time: str
    profile: str
    base: str
    line: str
    patch: str | None
    layers: tuple[ServedLayer, ...]
    env: Mapping[str, str] = {}

    def chosen(self) -> str:
        """`LINE:PATCH`, as it was asked for; nothing behind the colon is the line's base."""
        return f"{self.line}:{self.patch or ''}"


class InstallRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A layer in somebody's own environment, kept beside it.

    `distribution` is the `.dist-info` folder of the package that it was made for; `files` maps
    patched paths to their sha256 ("" for a removed one); `links` is how many links stand there;
    `edited` are the files of the package that were not as installed even then.
    """

    schema: int = INSTALL_SCHEMA
    line: str
    patch: str | None
    tree: str
    time: str
    distribution: str
    packages: tuple[str, ...]
    files: Mapping[str, str]
    links: int
    edited: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
