"""Every test runs sealed: its own home, no user's git configuration, fixed dates and zone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.support import cli, processes
from tests.support.cli import Stack
from tests.support.faults import Server
from tests.support.repo import RepoBuilder

settings.register_profile(
    "sealed", deadline=None, derandomize=True, database=None, max_examples=100,
    suppress_health_check=list(HealthCheck), phases=(Phase.explicit, Phase.generate),
)
settings.load_profile("sealed")
FIXED = "2026-01-02T03:04:05+00:00"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One warm process of the program for all tests of a file."""
    made = Server()
    yield made
    made.close()


@pytest.fixture(autouse=True, scope="session")
def warm() -> Iterator[None]:
    """The warm process of this session ends with it."""
    yield
    cli.close()


@pytest.fixture(autouse=True)
def seal(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Point everything that programs look up in a home at an empty folder of this test."""
    home = tmp_path_factory.mktemp("home")
    for name in [name for name in os.environ if name.startswith(("GIT_", "XDG_", "VLLM_"))]:
        monkeypatch.delenv(name)
    settings = {
        "HOME": str(home), "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_CACHE_HOME": str(home / "cache"), "STACK_CACHE_DIR": str(home / "cache" / "stack"),
        "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_EDITOR": "false",
        "GIT_AUTHOR_NAME": "Ann Author", "GIT_AUTHOR_EMAIL": "ann@example.com",
        "GIT_COMMITTER_NAME": "Carl Committer", "GIT_COMMITTER_EMAIL": "carl@example.com",
        "GIT_AUTHOR_DATE": FIXED, "GIT_COMMITTER_DATE": FIXED, "GIT_ALLOW_PROTOCOL": "file",
        "STACK_TRUST": "1", "XDG_STATE_HOME": str(home / "state"),
        "TZ": "UTC", "LC_ALL": "C.UTF-8", "NO_COLOR": "1", "COLUMNS": "100",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    for name in ("STACK_VLLM_GIT", "STACK_LLM_SCALER_GIT"):
        monkeypatch.delenv(name, raising=False)
    yield
    processes.end_all()


@pytest.fixture
def upstream(tmp_path: Path) -> RepoBuilder:
    """An upstream repository with three commits and a tag `v1.0` on the last."""
    repo = RepoBuilder(tmp_path / "upstream")
    files = {"README": b"demo\n", "src/app.py": numbered(40), "src/deep/x.txt": b"x\n"}
    repo.commit("begin", files)
    repo.commit("more", {"src/lib.py": numbered(30), "tool.sh": b"#!/bin/sh\necho hi\n"})
    repo.git("update-index", "--chmod=+x", "tool.sh")
    repo.commit("executable", {})
    repo.git("tag", "v1.0")
    return repo


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    """The program, run in an empty project folder."""
    folder = tmp_path / "project"
    folder.mkdir()
    return Stack(folder)


def numbered(count: int) -> bytes:
    """`line 1` to `line COUNT`, one a line."""
    return b"".join(b"line %d\n" % number for number in range(1, count + 1))
