"""The project of a tiny package, for every test that needs a built environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flows.test_build import Tiny
from tests.support.cli import Stack
from tests.support.repo import RepoBuilder


@pytest.fixture
def tiny(
    stack: Stack, upstream: RepoBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Tiny:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "links"))
    monkeypatch.setenv("STACK_INSTALLER", "pip")
    return Tiny(stack, upstream, tmp_path)
