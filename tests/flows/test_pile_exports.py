"""Our own line, exported in every form that others read, comes back as the same line."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.cli import Stack
from tests.support.engine import REAL_ENVIRONMENT, ROOT, alone

pytestmark = [pytest.mark.upstream, pytest.mark.xdist_group("sources")]
LINE = ROOT / "patches/vllm/0.20.1"


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Stack:
    """A project with our line, and an empty one `again` at the same pin."""
    for name in ("HOME", "XDG_CACHE_HOME", "STACK_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
        if name in REAL_ENVIRONMENT:
            monkeypatch.setenv(name, REAL_ENVIRONMENT[name])
    folder = tmp_path / "project"
    folder.mkdir()
    shutil.copy(ROOT / "stack.toml", folder)
    shutil.copytree(LINE, folder / "patches/vllm/0.20.1")
    made = Stack(folder)
    with alone("sources"):
        made.ok("line", "add", "vllm@0.20.1", "--label", "again")
    return made


def test_quilt_mbox_and_branch_give_the_same_line(stack: Stack, tmp_path: Path) -> None:
    whole = stack.ok("apply", "--line", "vllm/0.20.1", "--json").json["data"]
    names = [row["name"] for row in whole["patches"]]
    ours = {f"{name}.patch": (LINE / f"{name}.patch").read_bytes() for name in names}
    again = stack.folder / "patches/vllm/again"

    def took(*arguments: str | Path) -> None:
        """Import into `again`, compare with ours, and take it back."""
        stack.ok("import", "--line", "vllm/again", *arguments)
        files = [path.read_bytes() for path in again.glob("*.patch")]
        assert sorted(files) == sorted(ours.values())
        applied = stack.ok("apply", "--line", "vllm/again", "--json").json["data"]
        assert applied["tree"] == whole["tree"]
        assert [row["commit"] for row in applied["patches"]] == [
            row["commit"] for row in whole["patches"]
        ]
        stack.ok("undo", "--upstream", "vllm")
        stack.ok("undo", "--upstream", "vllm")
        assert not list(again.glob("*.patch"))

    line = ("export", "--line", "vllm/0.20.1")
    stack.ok(*line, "--format", "quilt", "-o", tmp_path / "quilt")
    took(tmp_path / "quilt")
    stack.ok(*line, "--format", "mbox", "-o", tmp_path / "all.mbox")
    took(tmp_path / "all.mbox")
    repository = stack.folder / ".stack/repos/vllm.git"
    took("--git", repository, f"{whole['base']}..{whole['patches'][-1]['commit']}")

    # without what makes it mail, it is a pile: the same trees, patch by patch
    pile = tmp_path / "plain"
    pile.mkdir()
    for number, data in enumerate(ours[f"{name}.patch"] for name in names):
        (pile / f"{number:02}.diff").write_bytes(data[data.index(b"diff --git ") :])
    data = stack.ok("import", "--line", "vllm/again", pile, "--json").json["data"]
    assert {row["result"] for row in data["inputs"]} == {"placed"}
    applied = stack.ok("apply", "--line", "vllm/again", "--json").json["data"]
    assert [row["tree"] for row in applied["patches"]] == [
        row["tree"] for row in whole["patches"]
    ]

    # and all in one
    stack.ok("undo", "--upstream", "vllm")
    stack.ok("undo", "--upstream", "vllm")
    shutil.rmtree(pile)
    stack.ok(*line, "--format", "squashed", "-o", tmp_path / "squashed.diff")
    stack.ok("import", "--line", "vllm/again", tmp_path / "squashed.diff")
    applied = stack.ok("apply", "--line", "vllm/again", "--json").json["data"]
    assert [row["tree"] for row in applied["patches"]] == [whole["tree"]]
