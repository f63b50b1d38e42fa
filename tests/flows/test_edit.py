"""`stack edit`: stand at a patch, do anything there, and replay the rest; or give it up."""

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


def test_uncommitted_changes_go_into_the_patch(demo: Demo) -> None:
    before, mails = state_of(demo), demo.files()
    demo.stack.ok("edit", "edit-1")
    assert demo.git("log", "-1", "--format=%s") == "[Core] Edit 1"
    assert not (demo.tree / "src/f2.py").read_bytes().count(b"changed")
    rows = demo.stack.ok("status", "--json").json["data"]["lines"]
    assert rows[0]["state"] == "editing"
    demo.write({"src/f1.py": numbered(20).replace(b"line 7\n", b"edited\n"), "src/n.py": b"1\n"})
    demo.stack.ok("refresh")
    after = demo.files()
    assert {name for name in after if after[name] != mails[name]} == {"edit-1.patch"}
    assert b"+edited\n" in after["edit-1.patch"]
    assert demo.git("status", "--porcelain") == ""
    assert demo.stack("export", "--check").code == 0
    same_as_git_am(demo)
    done = state_of(demo)
    demo.stack.ok("undo")
    assert state_of(demo) == before
    demo.stack.ok("undo", "--redo")
    assert state_of(demo) == done


def test_commits_may_be_amended_new_dropped_and_reordered(demo: Demo) -> None:
    demo.stack.ok("edit", "edit-2")
    shas = demo.git("rev-list", "--reverse", f"{demo.base}..HEAD").split()
    demo.git("reset", "--quiet", "--hard", demo.base)
    demo.git("cherry-pick", shas[2])
    demo.commit("Between", {"src/between.py": b"1\n"})
    demo.git("cherry-pick", shas[0])
    demo.stack.ok("edit", "--continue")
    assert demo.names() == ["edit-2", "between", "edit-0", "edit-3"]
    same_as_git_am(demo)
    assert demo.stack("export", "--check").code == 0


def test_a_patch_that_was_taken_back_is_made_again_from_the_changes(demo: Demo) -> None:
    patch_id = demo.id_of("edit-1")
    demo.stack.ok("edit", "edit-1")
    demo.git("reset", "--quiet", "HEAD^")
    demo.write({"src/f1.py": numbered(20).replace(b"line 7\n", b"other\n")})
    demo.stack.ok("edit", "--continue")
    assert demo.names() == ["edit-0", "edit-1", "edit-2", "edit-3"]
    assert demo.id_of("edit-1") == patch_id
    assert b"+other\n" in demo.files()["edit-1.patch"]
    same_as_git_am(demo)


def test_abort_gives_back_what_was_and_keeps_what_was_made(demo: Demo) -> None:
    before = state_of(demo)
    demo.stack.ok("edit", "edit-0")
    demo.commit("Mine", {"src/mine.py": b"1\n"})
    demo.write({"src/f0.py": b"more\n", "src/untracked.py": b"2\n"})
    kept = demo.stack.ok("edit", "--abort", "--json").json["data"]["kept"]
    assert state_of(demo) == before
    assert demo.git("show", f"{kept}:src/untracked.py") == "2"
    assert demo.git("show", f"{kept}^:src/mine.py") == "1"
    assert demo.git("rev-parse", "refs/stack/aborted/1.0") == kept
    assert demo.stack("edit", "--abort").code == 2


def test_an_edit_under_way_stops_every_other_change(demo: Demo) -> None:
    demo.stack.ok("edit", "edit-1")
    for words in (("apply",), ("export",), ("undo",), ("drop", "edit-0"), ("edit", "edit-2"),
                  ("new", "x"), ("rename", "edit-0", "zero")):
        output = demo.stack(*words)
        assert output.code == 2
        assert "is being edited" in output.err, words
    demo.stack.ok("edit", "--abort")
    demo.stack.ok("undo")


def test_a_conflict_above_waits_and_goes_on(demo: Demo) -> None:
    data = (demo.tree / "src/f1.py").read_bytes()
    demo.write({"src/f1.py": data.replace(b"changed 1\n", b"changed twice\n")})
    demo.stack.ok("new", "twice")
    before = state_of(demo)
    demo.stack.ok("edit", "edit-1")
    demo.write({"src/f1.py": data.replace(b"changed 1\n", b"changed once\n")})
    assert demo.stack("edit", "--continue").code == 3
    waiting = demo.stack.folder / ".stack/restack/tree/src/f1.py"
    waiting.write_bytes(data.replace(b"changed 1\n", b"changed twice\n"))
    demo.stack.ok("edit", "--continue")
    assert (demo.tree / "src/f1.py").read_bytes() == data.replace(
        b"changed 1\n", b"changed twice\n"
    )
    same_as_git_am(demo)
    demo.stack.ok("undo")
    assert state_of(demo) == before
    demo.stack.ok("edit", "edit-1")
    demo.write({"src/f1.py": data.replace(b"changed 1\n", b"other\n")})
    assert demo.stack("edit", "--continue").code == 3
    demo.stack.ok("edit", "--abort")
    assert state_of(demo) == before


def test_the_message_alone(demo: Demo, tmp_path: Path) -> None:
    before = state_of(demo)
    demo.stack.ok("edit", "edit-1", "--message", "-m", "[Core] Said better", "-m", "More text.")
    mail = (demo.line / "edit-1.patch").read_text()
    assert "Subject: [Core] Said better\n\nMore text.\n\nWhy: reason 1\n goes on\n" in mail
    same_as_git_am(demo)
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/Said better/Said best/' \"$1\"\n")
    editor.chmod(0o755)
    demo.stack.ok("edit", "edit-1", "--message", env={"EDITOR": str(editor), "VISUAL": ""})
    assert "Subject: [Core] Said best\n" in (demo.line / "edit-1.patch").read_text()
    demo.stack.ok("undo")
    demo.stack.ok("undo")
    assert state_of(demo) == before


def test_a_first_edit_makes_the_workspace(demo: Demo) -> None:
    subprocess.run(["rm", "-rf", demo.stack.folder / ".stack"], check=True)
    demo.stack.ok("edit", "edit-1")
    demo.write({"src/f9.py": b"1\n"})
    demo.stack.ok("edit", "--continue")
    same_as_git_am(demo)
    assert demo.git("rev-list", "--count", f"{demo.base}..HEAD") == "4"
