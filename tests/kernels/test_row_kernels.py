"""The products of every instruction set, without torch: right, and within what they are given."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SOURCES = HERE.parents[1] / "kernels" / "csrc"


@pytest.mark.skipif(platform.system() != "Linux", reason="maps memory as Linux does")
def test_random_problems(tmp_path: Path, compiler: str) -> None:
    program = tmp_path / "row_kernels"
    files = [HERE / "row_kernels.cpp", *sorted(SOURCES.glob("rows_*.cpp"))]
    flags = ["-O1", "-std=c++20", f"-I{SOURCES}"]
    subprocess.run([compiler, *flags, *map(str, files), "-o", str(program)], check=True)
    done = subprocess.run([str(program), "500"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "ok\n")
