"""The main job on vLLM's real source, as a release archive and as git history."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.cli import Stack
from tests.support.engine import REAL_ENVIRONMENT, ROOT, alone, git_history

pytestmark = [pytest.mark.upstream, pytest.mark.xdist_group("sources")]
TREE = "22575317a8fd395910679d7988b16acfedbddf76"


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache that survives between runs, and the network."""
    for name in ("HOME", "XDG_CACHE_HOME", "STACK_CACHE_DIR"):
        if name in REAL_ENVIRONMENT:
            monkeypatch.setenv(name, REAL_ENVIRONMENT[name])
        else:
            monkeypatch.delenv(name, raising=False)


def copy_project(folder: Path) -> Stack:
    folder.mkdir()
    shutil.copy(ROOT / "stack.toml", folder)
    shutil.copytree(ROOT / "patches", folder / "patches")
    return Stack(folder)


def test_the_line_applies_with_the_same_ids_in_two_folders_and_as_git_am_does(
    real: None, tmp_path: Path
) -> None:
    with alone("sources"):
        first = copy_project(tmp_path / "one").ok("apply", "--upstream", "vllm@f98b2747f", "--json")
    second = copy_project(tmp_path / "two").ok("apply", "--upstream", "vllm@0.20.1", "--json")
    data = first.json["data"]
    assert {row["outcome"] for row in data["patches"]} == {"clean"}
    assert data["base_tree"] == TREE
    assert second.json["data"]["patches"] == data["patches"]

    repo = tmp_path / "one/.stack/repos/vllm.git"
    am = tmp_path / "am"
    run("git", f"--git-dir={repo}", "worktree", "add", "-q", "--detach", str(am), data["base"])
    files = [ROOT / "patches/vllm/0.20.1" / f"{row['name']}.patch" for row in data["patches"]]
    run("git", "am", "-q", "--keep-non-patch", *map(str, files), cwd=am)
    assert run("git", "rev-parse", "HEAD^{tree}", cwd=am) == data["tree"]


def test_export_check_is_quiet_after_apply_and_names_the_one_patch_that_was_amended(
    real: None, tmp_path: Path
) -> None:
    stack = copy_project(tmp_path / "one")
    with alone("sources"):
        data = stack.ok("apply", "--upstream", "vllm@0.20.1", "--json").json["data"]
    assert stack("export", "--check").code == 0
    tree = Path(data["workspace"])
    with (tree / "vllm/envs.py").open("a") as file:
        file.write("# amended\n")
    run("git", "commit", "-q", "--amend", "--no-edit", "-a", cwd=tree)
    output = stack("export", "--check", "--json")
    assert output.code == 1
    last = data["patches"][-1]["name"]
    assert output.json["data"]["patches"] == [{"name": last, "change": "changed"}]
    stack.ok("export")
    assert stack("export", "--check").code == 0
    changed = [
        path.name
        for path in (tmp_path / "one/patches/vllm/0.20.1").iterdir()
        if path.is_file()
        if path.read_bytes() != (ROOT / "patches/vllm/0.20.1" / path.name).read_bytes()
    ]
    assert changed == [f"{last}.patch"]


def test_archive_and_history_have_the_same_tree_and_give_the_same_trees(
    real: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STACK_VLLM_GIT", git_history("STACK_VLLM_GIT"))
    stack = copy_project(tmp_path / "one")
    history = stack("apply", "--upstream", "vllm@0.20.1", "--from", "path", "--json")
    if "has no commit" in history.out:
        pytest.skip("the history in STACK_VLLM_GIT does not have our pin")
    assert history.code == 0, history
    other = copy_project(tmp_path / "two")
    with alone("sources"):
        archive = other.ok("apply", "--upstream", "vllm@0.20.1", "--from", "sdist", "--json")
    ours, theirs = history.json["data"], archive.json["data"]
    assert ours["base"] == "f98b2747fd11bd1e4934a9766196e7a1e8c4aafd"
    assert (ours["base_tree"], theirs["base_tree"]) == (TREE, TREE)
    assert [row["tree"] for row in ours["patches"]] == [row["tree"] for row in theirs["patches"]]


def test_every_parked_patch_applies_on_the_active_ones_alone_and_all_together(
    real: None, tmp_path: Path
) -> None:
    stack = copy_project(tmp_path / "one")
    lines = stack.ok("list", "vllm/0.20.1", "--json").json["data"]["lines"]
    parked = [row["name"] for row in lines[0]["patches"] if row["state"] == "parked"]
    assert len(parked) == 5
    for chosen in [[name] for name in parked] + [parked]:
        flags = [part for name in chosen for part in ("--with", name)]
        with alone("sources"):
            output = stack.ok("apply", "--upstream", "vllm@0.20.1", *flags, "--dry-run", "--json")
        rows = output.json["data"]["patches"]
        assert {row["outcome"] for row in rows} == {"clean"}
        assert [row["name"] for row in rows][-len(chosen) :] == chosen


def test_the_llm_scaler_line_applies(
    real: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STACK_LLM_SCALER_GIT", git_history("STACK_LLM_SCALER_GIT"))
    stack = copy_project(tmp_path / "one")
    output = stack.ok("apply", "--upstream", "llm-scaler@e0b0703", "--dry-run", "--json")
    rows = output.json["data"]["patches"]
    assert [row["outcome"] for row in rows] == ["clean"] * 5


def run(*argv: str, cwd: Path | None = None) -> str:
    done = subprocess.run(argv, cwd=cwd, capture_output=True, check=False, env=os.environ)
    assert done.returncode == 0, done.stderr.decode("utf-8", "replace")
    return done.stdout.decode().strip()
