"""A week of two people on one line: random edits, pulls and kills, judged by plain git."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.conftest import numbered
from tests.support.cli import Stack
from tests.support.engine import REAL_ENVIRONMENT, ROOT, alone
from tests.support.repo import RepoBuilder
from tests.support.week import Clone, Week, git


def two_clones(
    first: Stack, tmp_path: Path, line: str, base: str, files: list[str]
) -> tuple[list[Clone], Path]:
    """The project in a hub, and two clones of it, each with its own files to edit."""
    hub = tmp_path / "hub.git"
    git(tmp_path, "init", "--quiet", "--bare", "--initial-branch=main", hub)
    git(first.folder, "init", "--quiet", "--initial-branch=main")
    git(first.folder, "add", "--all")
    git(first.folder, "commit", "--quiet", "-m", "begin")
    git(first.folder, "remote", "add", "origin", hub)
    git(first.folder, "push", "--quiet", "origin", "main")
    second = tmp_path / "second"
    git(tmp_path, "clone", "--quiet", hub, second)
    half = len(files) // 2
    people = [
        Clone(first, "ann", line, files[:half], base),
        Clone(Stack(second), "bob", line, files[half:], base),
    ]
    for clone in people:
        # where both changed the order, a person merges it (`united`): a union would only be right
        # for entries that are new
        (clone.stack.folder / ".git/info/attributes").write_text("series.toml -merge\n")
        clone.stack.ok("apply")
    return people, hub


@pytest.mark.parametrize("seed", [1])
def test_a_week_on_a_small_repository(stack: Stack, tmp_path: Path, seed: int) -> None:
    upstream = RepoBuilder(tmp_path / "upstream")
    files = [f"src/f{number}.py" for number in range(8)]
    base = upstream.commit("begin", dict.fromkeys(files, numbered(20)))
    upstream.git("tag", "v1.0")
    stack.ok("init")
    stack.ok("upstream", "add", "demo", str(upstream.folder))
    stack.ok("line", "add", "demo@v1.0")
    people, hub = two_clones(stack, tmp_path, "demo/1.0", base, files)
    scratch = tmp_path / "model"
    subprocess.run(["git", "clone", "--quiet", upstream.folder, scratch], check=True)
    week = Week(people, hub, scratch, seed)
    week.play(30)
    assert week.killed


@pytest.mark.upstream
@pytest.mark.xdist_group("sources")
def test_a_week_on_vllm(stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same on a release of vLLM and the patches that this project keeps on it."""
    if "HOME" in REAL_ENVIRONMENT:  # where its archive is kept between runs
        monkeypatch.setenv("STACK_CACHE_DIR", str(cache_of(REAL_ENVIRONMENT)))
    settings = (ROOT / "stack.toml").read_text()
    (stack.folder / "stack.toml").write_text(settings.replace('default = "0.20.1"', ""))
    shutil.copytree(ROOT / "patches/vllm/0.29.0", stack.folder / "patches/vllm/0.29.0")
    files = [
        f"vllm/{name}.py"
        for name in (
            "connections", "sequence", "tasks", "logprobs", "scalar_type", "pooling_params",
            "exceptions", "logits_process",
        )
    ]
    with alone("sources"):
        base = stack.ok("apply", "--json").json["data"]["base"]
    # plain git, which judges, knows no parked patches
    stack.ok("drop", "--line", "vllm/0.29.0", "fp16-router", "qk-contig")
    people, hub = two_clones(stack, tmp_path, "vllm/0.29.0", base, files)
    scratch = tmp_path / "model"
    repository = stack.folder / ".stack/repos/vllm.git"
    git(tmp_path, "clone", "--quiet", "--shared", "--no-checkout", repository, scratch)
    week = Week(people, hub, scratch, seed=7)
    week.play(30)
    assert week.killed


def cache_of(environment: Mapping[str, str]) -> Path:
    """The cache that a run outside of the tests has."""
    if own := environment.get("STACK_CACHE_DIR"):
        return Path(own)
    return Path(environment.get("XDG_CACHE_HOME") or f"{environment['HOME']}/.cache") / "stack"
