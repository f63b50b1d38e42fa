"""A line of the real vLLM in the hands of others: a mailbox, quilt's files, a branch."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.cli import Output, Stack
from tests.support.engine import ROOT, git_history

pytestmark = pytest.mark.upstream


def git(folder: Path, *arguments: str | Path) -> str:
    done = subprocess.run(
        ["git", *map(str, arguments)], cwd=folder, capture_output=True, check=False, env=os.environ
    )
    assert done.returncode == 0, done.stderr.decode("utf-8", "replace")
    return done.stdout.decode("utf-8", "replace").strip()


@pytest.fixture
def vllm(tmp_path: Path) -> tuple[Stack, str]:
    """The checkout's patches and settings in a project of their own, and upstream's repository."""
    history = git_history("STACK_VLLM_GIT")
    folder = tmp_path / "project"
    folder.mkdir()
    subprocess.run(["cp", "-r", ROOT / "patches", ROOT / "stack.toml", folder], check=True)
    return Stack(folder), history


def run(stack: Stack, history: str, *arguments: str | Path) -> Output:
    return stack.ok(*arguments, env={"STACK_VLLM_GIT": history})


def applied(there: Path, base: str, patches: list[Path]) -> str:
    """The tree that git makes of patches on a commit, in the index only: blobs may be away."""
    git(there, "read-tree", base)
    for patch in patches:
        git(there, "apply", "--cached", patch)
    return git(there, "write-tree", "--missing-ok")


def test_a_mailbox_quilt_and_a_branch_give_the_tree_of_apply(
    vllm: tuple[Stack, str], tmp_path: Path
) -> None:
    stack, history = vllm
    line = ("--line", "vllm/0.20.1")
    want = run(stack, history, "apply", *line, "--json").json["data"]
    there = tmp_path / "there"
    git(tmp_path, "clone", "--quiet", "--shared", "--no-checkout", history, there)
    run(stack, history, "export", *line, "--format", "mbox", "-o", tmp_path / "all.mbox")
    (tmp_path / "mails").mkdir()
    git(there, "mailsplit", f"-o{tmp_path / 'mails'}", tmp_path / "all.mbox")
    assert applied(there, want["base"], sorted((tmp_path / "mails").iterdir())) == want["tree"]
    run(stack, history, "export", *line, "--format", "quilt", "-o", tmp_path / "quilt")
    names = (tmp_path / "quilt/series").read_text().split()
    assert applied(there, want["base"], [tmp_path / "quilt" / n for n in names]) == want["tree"]
    diff = tmp_path / "all.diff"
    run(stack, history, "export", *line, "--format", "squashed", "-o", diff)
    assert applied(there, want["base"], [diff]) == want["tree"]
    pushed = run(stack, history, "export", *line, "--branch", "ours", "--push", there, "--json")
    assert pushed.json["data"]["base"] == want["base"]
    assert git(there, "rev-parse", "ours") == want["head"]
    assert git(there, "merge-base", "ours", want["base"]) == want["base"]


def test_the_line_of_the_release_archive_is_refused_with_the_reason(
    vllm: tuple[Stack, str], tmp_path: Path
) -> None:
    stack, _ = vllm
    refused = stack("export", "--line", "vllm/0.29.0", "--branch", "ours", "--push", tmp_path)
    assert refused.code == 2
    assert "pinned at a release archive, which names g98dff2a81 in part" in refused.err


def test_a_shipped_patch_goes_home_as_a_mail_that_git_applies(
    vllm: tuple[Stack, str], tmp_path: Path
) -> None:
    stack, history = vllm
    there = tmp_path / "there"
    git(tmp_path, "clone", "--quiet", "--shared", "--no-checkout", history, there)
    name = "inc-xpu-moe"
    found = run(
        stack, history, "show", f"vllm/0.20.1:{name}", "--for-upstream", "--json"
    ).json["data"]
    assert found["needs"] == []
    mail = tmp_path / "home.mail"
    mail.write_text(found["mail"])
    tree = applied(there, found["pin"]["commit"], [mail])
    assert tree != git(there, "rev-parse", f"{found['pin']['commit']}^{{tree}}")
    head = found["mail"].partition("\ndiff --git")[0].rstrip()
    assert head.endswith("Signed-off-by: Ann Author <ann@example.com>")
    assert "Patch-Id" not in head
