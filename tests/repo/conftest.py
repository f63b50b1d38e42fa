"""A repository with one file of every kind, and its objects."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stack.repo.client import Git
from stack.repo.odb import ObjectStore
from tests.conftest import numbered
from tests.support.repo import RepoBuilder


@pytest.fixture
def repo(tmp_path: Path) -> RepoBuilder:
    made = RepoBuilder(tmp_path / "repo")
    made.commit(
        "base",
        {
            "a.txt": numbered(30),
            "b.txt": b"b\n",
            "dir/c.txt": numbered(12),
            "dir/d/e": b"e\n",
            "empty": b"",
            "bin": bytes(range(256)),
            "no-eol": b"x\ny",
            "crlf": b"1\r\n2\r\n3\r\n",
            "run.sh": b"#!/bin/sh\n",
            "gr\u00fcn \t\u00e4": b"1\n",
            "blocks": b"a\nb\nc\nend\n" * 6,
        },
    )
    made.git("tag", "base")
    return made


@pytest.fixture
def odb(repo: RepoBuilder) -> Iterator[ObjectStore]:
    with ObjectStore(Git(repo.folder / ".git")) as store:
        yield store
