"""Finding the Python that a profile asks for."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import sysconfig
from collections.abc import Iterator

import msgspec
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from stack.errors import BuildFailed, ConfigError
from stack.host import process
from stack.model.project.build import Interpreter

_ASK = (
    "import json,platform,sys,sysconfig;print(json.dumps({'path':sys.executable,"
    "'version':platform.python_version(),'platform':sysconfig.get_platform()}))"
)


def find(wanted: str, where: str) -> Interpreter:
    """The first Python that satisfies `wanted` (`>=3.11,<3.14`).

    Asked in order: the Python that runs us, `python3` and `python3.N` on PATH, newest first, then
    what uv has installed. `where` names the key in an error. Raises `BuildFailed` when there is
    none, with the versions that were seen.
    """
    try:
        specifiers = SpecifierSet(wanted)
    except InvalidSpecifier:
        raise ConfigError(f"{where}: {wanted!r} is not a version range like >=3.11,<3.14") from None
    seen: list[str] = []
    for found in _candidates(wanted):
        if specifiers.contains(found.version, prereleases=True):
            return found
        seen.append(found.version)
    names = ", ".join(dict.fromkeys(seen))
    raise BuildFailed(
        f"{where}: no Python {wanted} on this machine (there is {names})",
        hint="install one (apt install, pyenv install, uv python install) and put it on PATH",
    )


def _candidates(wanted: str) -> Iterator[Interpreter]:
    yield Interpreter(
        path=sys.executable, version=platform.python_version(), platform=sysconfig.get_platform()
    )
    for name in ("python3", *(f"python3.{minor}" for minor in range(20, 8, -1))):
        path = shutil.which(name)
        if path is not None and (found := ask(path)) is not None:
            yield found
    uv = shutil.which("uv")
    if uv is not None:
        code, out, _ = process.capture([uv, "python", "find", "--offline", wanted])
        if code == 0 and (found := ask(os.fsdecode(out).strip())) is not None:
            yield found


def ask(path: str) -> Interpreter | None:
    """What a Python says of itself; None when it does not run (a pyenv shim of nothing)."""
    code, out, _ = process.capture([path, "-I", "-c", _ASK], timeout=20)
    if code != 0:
        return None
    try:
        return msgspec.json.decode(out, type=Interpreter)
    except msgspec.DecodeError:
        return None
