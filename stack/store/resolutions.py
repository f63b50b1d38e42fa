"""The memory of conflicts: a region answered once answers every other that asks the same.

One file an answer, in `patches/<upstream>/resolutions/`, so that git carries it to colleagues and
two people who answer different questions never touch the same file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from stack.errors import ConfigError, SchemaTooNew
from stack.model.diff.merge3 import Region
from stack.store import atomic

SCHEMA = 1


class Resolution(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An answer and its question; each side is a list of lines, in `encoding`.

    `patch` and `path` say where it was asked first; they are for people and answer nothing.
    """

    schema: int = SCHEMA
    path: str
    patch: str
    encoding: Literal["utf-8", "latin-1"] = "utf-8"
    base: tuple[str, ...]
    target: tuple[str, ...]
    ours: tuple[str, ...]
    answer: tuple[str, ...]

    def side(self, name: str) -> bytes:
        return "".join(getattr(self, name)).encode(self.encoding)

    @property
    def region(self) -> Region:
        return Region(base=self.side("base"), target=self.side("target"), patch=self.side("ours"))


class Memory:
    """The answers of one upstream."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[str, Resolution] | None = None

    @property
    def known(self) -> dict[str, Resolution]:
        """Every answer by the key of its region; `ConfigError` names a damaged file."""
        if self._known is None:
            self._known = {}
            for path in sorted(self.folder.glob("*.json")):
                try:
                    found = msgspec.json.decode(path.read_bytes(), type=Resolution)
                    key, _ = found.region.key, found.side("answer")
                except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError) as wrong:
                    raise ConfigError(
                        f"{path}:1: damaged resolution: {wrong}",
                        hint="restore it from git, or stack resolve --forget " + path.stem,
                    ) from None
                if found.schema > SCHEMA:
                    raise SchemaTooNew(
                        f"{path}: schema {found.schema} is newer than {SCHEMA}, the newest that "
                        "this release reads", hint="upgrade stack",
                    )
                self._known[key] = found
        return self._known

    def answer(self, region: Region) -> bytes | None:
        """What was answered to that region, wherever it stood."""
        found = self.known.get(region.key)
        return found.side("answer") if found else None

    def keep(self, region: Region, reply: bytes, *, path: str, patch: str) -> str:
        """Remember an answer; its key."""
        sides = (region.base, region.target, region.patch, reply)
        text = all(_is_text(side) for side in sides)
        encoding: Literal["utf-8", "latin-1"] = "utf-8" if text else "latin-1"
        lines = [tuple(side.decode(encoding).splitlines(keepends=True)) for side in sides]
        made = Resolution(
            path=path, patch=patch, encoding=encoding, base=lines[0], target=lines[1],
            ours=lines[2], answer=lines[3],
        )
        data = msgspec.json.format(msgspec.json.encode(made), indent=1) + b"\n"
        atomic.write(self.folder / f"{region.key}.json", data)
        self.known[region.key] = made
        return region.key

    def find(self, prefix: str) -> list[str]:
        """The keys that begin with `prefix`."""
        return sorted(key for key in self.known if key.startswith(prefix))

    def forget(self, key: str) -> None:
        self.known.pop(key, None)
        (self.folder / f"{key}.json").unlink(missing_ok=True)


def _is_text(side: bytes) -> bool:
    try:
        side.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
