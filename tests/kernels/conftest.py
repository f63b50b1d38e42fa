"""Makes ``kernels/`` importable unless an installed ``u4moe`` is; all of it needs torch."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path

import pytest

# Before anything imports Triton: without a GPU its kernels run in its interpreter.
HAS_TORCH = importlib.util.find_spec("torch") is not None
if HAS_TORCH:
    import torch

    if not torch.cuda.is_available():
        os.environ.setdefault("TRITON_INTERPRET", "1")
WITHOUT = ("test_core_header.py", "test_row_kernels.py", "test_build.py")
KERNELS = Path(__file__).resolve().parents[2] / "kernels"
sys.path.append(str(KERNELS))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without torch the tests here that need it are skipped, and say why."""
    if HAS_TORCH:
        return
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and item.path.name not in WITHOUT:
            item.add_marker(pytest.mark.skip(reason="torch is not installed"))


@pytest.fixture
def compiler() -> str:
    """A C++ compiler; without one the test is skipped."""
    found = shutil.which("g++") or shutil.which("clang++")
    if found is None:
        pytest.skip("no C++ compiler")
    return found
