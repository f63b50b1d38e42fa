"""Where torch or a compiler is missing, the package builds without its extension and says why."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

KERNELS = Path(__file__).resolve().parents[2] / "kernels"
HAS_TORCH = importlib.util.find_spec("torch") is not None


@pytest.mark.skipif(importlib.util.find_spec("setuptools") is None, reason="no setuptools")
def test_goes_without_what_is_missing(tmp_path: Path) -> None:
    shutil.copytree(KERNELS, tmp_path / "kernels", ignore=shutil.ignore_patterns("*.so", "build"))
    done = subprocess.run(
        [sys.executable, "setup.py", "build_ext", "--inplace"],
        cwd=tmp_path / "kernels",
        env=os.environ | {"CXX": "a-compiler-that-is-not-there --flag"},
        capture_output=True,
        text=True,
        check=True,
    )
    what = "the C++ compiler a-compiler-that-is-not-there is not on PATH"
    assert (what if HAS_TORCH else "torch is not installed here") in done.stdout
    assert "plain torch stands in for it" in done.stdout
    assert list((tmp_path / "kernels").rglob("*.so")) == []
