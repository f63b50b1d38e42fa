"""Wheels of a few bytes, made on the spot, so that real installers have something to install."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path


def files_of(
    name: str, version: str, files: Mapping[str, bytes], requires: Sequence[str] = ()
) -> dict[str, bytes]:
    """Everything that a wheel of a pure Python distribution holds, its RECORD last."""
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    metadata += [f"Requires-Dist: {other}" for other in requires]
    held = {
        **files,
        f"{info}/METADATA": ("\n".join(metadata) + "\n").encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = []
    for path, data in held.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        rows.append(f"{path},sha256={digest},{len(data)}")
    rows.append(f"{info}/RECORD,,")
    return {**held, f"{info}/RECORD": ("\n".join(rows) + "\n").encode()}


def make_wheel(
    folder: Path, name: str, version: str, files: Mapping[str, bytes], requires: Sequence[str] = ()
) -> Path:
    """A wheel file in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for entry, data in files_of(name, version, files, requires).items():
            wheel.writestr(entry, data)
    return path


def unpack(
    site_packages: Path, name: str, version: str, files: Mapping[str, bytes]
) -> None:
    """What an installer leaves of such a wheel."""
    for entry, data in files_of(name, version, files).items():
        path = site_packages / entry
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
