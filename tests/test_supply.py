"""What is released is what stands in the repository: two builds are the same bytes."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.engine import REAL_ENVIRONMENT

ROOT = Path(__file__).parents[1]
COPIED = ("pyproject.toml", "README.md", "LICENSE", "stack")


def wheel(folder: Path) -> Path:
    """A wheel built from a copy of the sources in `folder`."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", "out", "."]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, check=False, env=REAL_ENVIRONMENT
    )
    if done.returncode and b"hatchling" in done.stderr:
        pytest.skip("the build backend cannot be fetched")
    assert done.returncode == 0, done.stderr
    (made,) = (folder / "out").glob("*.whl")
    return made


@pytest.mark.upstream
def test_two_builds_of_the_wheel_are_identical(tmp_path: Path) -> None:
    made = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        made.append(wheel(tmp_path / name))
    assert len({hashlib.sha256(path.read_bytes()).hexdigest() for path in made}) == 1
    with zipfile.ZipFile(made[0]) as archive:
        names = archive.namelist()
    assert "stack/verbs.py" in names
    assert "stack/bench/signatures.toml" in names
    assert not [name for name in names if name.startswith(("tests", "patches", "kernels"))]
