"""The projects of a tiny package and of a toy engine, for tests that need a built environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flows.test_build import Tiny
from tests.support.cli import Stack
from tests.support.repo import RepoBuilder
from tests.support.toy_engine import Toy


@pytest.fixture
def own_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that pip takes everything from."""
    links = tmp_path / "links"
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    monkeypatch.setenv("STACK_INSTALLER", "pip")
    return links


@pytest.fixture
def tiny(stack: Stack, upstream: RepoBuilder, tmp_path: Path, own_wheels: Path) -> Tiny:
    return Tiny(stack, upstream, tmp_path)


@pytest.fixture
def toy(stack: Stack, upstream: RepoBuilder, own_wheels: Path) -> Toy:
    return Toy(stack, upstream, own_wheels)
