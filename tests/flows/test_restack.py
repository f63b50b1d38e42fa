"""Fold, drop, move, rename, new and refresh: files and workspace change together, and come back."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.conftest import numbered
from tests.support.cli import Stack
from tests.support.project import Demo
from tests.support.stacks import same_as_git_am, state_of


@pytest.fixture
def demo(stack: Stack, tmp_path: Path) -> Demo:
    """A project whose line demo/1.0 has four patches, applied."""
    made = Demo(stack, tmp_path)
    made.patches(4)
    made.apply()
    return made


def changed(number: int, text: bytes) -> bytes:
    return numbered(20).replace(b"line %d\n" % number, text)


def test_drop_move_fold_and_rename_are_undone_and_done_again(demo: Demo) -> None:
    states = [state_of(demo)]
    steps: list[tuple[str, ...]] = [
        ("move", "edit-3", "--before", "edit-0"), ("drop", "edit-1"),
        ("fold", "edit-0", "edit-2"), ("rename", "edit-2", "both"),
    ]
    for step in steps:
        demo.stack.ok(*step)
        states.append(state_of(demo))
        same_as_git_am(demo)
        assert demo.stack("export", "--check").code == 0
    assert demo.names() == ["edit-3", "both"]
    assert demo.git("show", "--name-only", "--format=", "HEAD").split() == [
        "src/f0.py",
        "src/f2.py",
    ]
    assert demo.git("log", "-1", "--format=%s") == "[Core] Edit 2"
    for state in reversed(states[:-1]):
        demo.stack.ok("undo")
        assert state_of(demo) == state
    for state in states[1:]:
        demo.stack.ok("undo", "--redo")
        assert state_of(demo) == state


def test_files_of_patches_that_nothing_touched_keep_every_byte(demo: Demo) -> None:
    before = demo.files()
    demo.stack.ok("move", "edit-0", "--after", "edit-3")
    after = demo.files()
    assert {name: data for name, data in after.items() if name != "series.toml"} == {
        name: data for name, data in before.items() if name != "series.toml"
    }


def test_new_takes_changes_and_new_files_and_undo_gives_them_back(demo: Demo) -> None:
    demo.write({"src/f9.py": changed(3, b"three\n"), "src/extra/new.py": b"x = 1\n"})
    before, text = state_of(demo), demo.git("diff")
    done = demo.stack.ok(
        "new", "third", "-m", "[Core] Spell three", "-m", "Words.", "--why", "reads better",
        "--kind", "fix", "--json",
    ).json["data"]
    assert done["added"] == ["third"]
    mail = (demo.line / "third.patch").read_text()
    assert (
        "Subject: [Core] Spell three\n\nWords.\n\nWhy: reads better\nUpstream-Status: Pending\n"
        in mail
    )
    assert len(demo.id_of("third")) == 16
    assert (
        'state = "active"\nkind = "fix"\nname = "third"' in (demo.line / "series.toml").read_text()
    )
    assert demo.git("status", "--porcelain") == ""
    assert "From: Ann Author <ann@example.com>" in mail
    same_as_git_am(demo)
    after = state_of(demo)
    demo.stack.ok("undo")
    assert (state_of(demo), demo.git("diff")) == (before, text)
    assert (demo.tree / "src/extra/new.py").read_bytes() == b"x = 1\n"
    demo.stack.ok("undo", "--redo")
    assert state_of(demo) == after


def test_new_and_refresh_without_changes_are_refused_with_a_hint(demo: Demo) -> None:
    before = state_of(demo)
    for words in (("new", "empty"), ("refresh",), ("refresh", "--absorb")):
        output = demo.stack(*words)
        assert output.code == 2
        assert "no changes to" in output.err
        assert "hint: edit files there first" in output.err
    assert demo.stack("new", "edit-1").code == 2
    assert demo.stack("new", "Not A Name").code == 2
    assert state_of(demo) == before


def test_refresh_puts_changes_into_a_patch_in_the_middle(demo: Demo) -> None:
    demo.write({"src/f1.py": changed(7, b"again\n"), "src/n.py": b"1\n"})
    wanted = demo.stack.folder / "wanted"
    subprocess.run(["cp", "-a", demo.tree / "src", wanted], check=True)
    before = demo.files()
    demo.stack.ok("refresh", "edit-1")
    after = demo.files()
    assert {name for name in after if after[name] != before[name]} == {"edit-1.patch"}
    assert demo.git("status", "--porcelain") == ""
    subprocess.run(["diff", "-r", demo.tree / "src", wanted], check=True)
    same_as_git_am(demo)
    demo.stack.ok("undo")
    assert demo.files() == before
    subprocess.run(["diff", "-r", demo.tree / "src", wanted], check=True)


def test_a_conflict_waits_and_goes_on_in_a_new_process(demo: Demo) -> None:
    data = demo.tree / "src/f1.py"
    demo.write({"src/f1.py": data.read_bytes().replace(b"changed 1\n", b"changed twice\n")})
    demo.stack.ok("new", "twice")
    before = state_of(demo)
    output = demo.stack("drop", "edit-1", "--json")
    assert output.code == 3
    document = output.json
    assert document["data"]["conflicts"][0]["path"] == "src/f1.py"
    assert document["errors"][0]["hint"].startswith(
        "edit the files there, then stack drop --continue"
    )
    assert state_of(demo) == before
    assert demo.stack("drop", "edit-0").code == 2
    waiting = demo.stack.folder / ".stack/restack/tree/src/f1.py"
    assert b"<<<<<<<" in waiting.read_bytes()
    assert "stopped at patch `twice`" in demo.stack.ok("status").out
    assert "markers remain" in demo.stack("drop", "--continue").err
    demo.stack.ok("drop", "--abort")
    assert state_of(demo) == before
    assert not (demo.stack.folder / ".stack/restack").exists()
    assert demo.stack("drop", "edit-1").code == 3
    waiting.write_bytes(changed(7, b"changed twice\n"))
    demo.stack.ok("drop", "--continue")
    assert demo.names() == ["edit-0", "edit-2", "edit-3", "twice"]
    assert (demo.tree / "src/f1.py").read_bytes() == changed(7, b"changed twice\n")
    same_as_git_am(demo)
    demo.stack.ok("undo")
    assert state_of(demo) == before


def test_work_that_is_not_exported_stops_what_would_lose_it(demo: Demo) -> None:
    demo.write({"src/f5.py": b"mine\n"})
    for words in (("drop", "edit-1"), ("fold", "edit-1", "edit-2"), ("edit", "edit-1"),
                  ("move", "edit-1", "--after", "edit-2")):
        assert "uncommitted work" in demo.stack(*words).err
    demo.stack.ok("rename", "edit-1", "one")
    demo.stack.ok("undo")
    demo.git("commit", "--quiet", "--all", "-m", "mine")
    assert "not in the patch files" in demo.stack("new", "mine").err
    assert (demo.tree / "src/f5.py").read_bytes() == b"mine\n"


def test_without_a_workspace_only_files_change(demo: Demo) -> None:
    subprocess.run(["rm", "-rf", demo.stack.folder / ".stack/workspaces"], check=True)
    demo.stack.ok("fold", "edit-0", "--into", "edit-3")
    assert demo.names() == ["edit-1", "edit-2", "edit-3"]
    demo.stack.ok("apply")
    same_as_git_am(demo)


def test_a_workspace_at_a_prefix_stays_at_it(demo: Demo) -> None:
    demo.stack.ok("apply", "--to", "edit-1")
    demo.write({"src/f8.py": changed(2, b"two\n")})
    demo.stack.ok("new", "between")
    assert demo.names() == ["edit-0", "edit-1", "between", "edit-2", "edit-3"]
    assert demo.git("log", "--format=%s", "-2").split("\n") == ["Between", "[Core] Edit 1"]
    demo.stack.ok("apply")
    same_as_git_am(demo)


def test_a_dry_run_says_what_would_be_and_writes_nothing(demo: Demo) -> None:
    before = state_of(demo)
    done = demo.stack.ok("fold", "edit-0", "edit-2", "--dry-run", "--json").json["data"]
    assert (done["removed"], done["changed"], done["dry_run"]) == (["edit-0"], ["edit-2"], True)
    assert demo.stack("drop", "edit-0", "--dry-run").code == 0
    demo.stack.ok("rename", "edit-0", "zero", "--dry-run")
    assert state_of(demo) == before


def test_nothing_may_be_left_of_a_patch_that_takes_work(demo: Demo) -> None:
    demo.write({"src/f3.py": numbered(20)})
    output = demo.stack("refresh")
    assert "nothing would be left of patch `edit-3`" in output.err
    assert "hint: stack drop edit-3" in output.err
    assert (demo.tree / "src/f3.py").read_bytes() == numbered(20)
