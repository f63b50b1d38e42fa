"""What killed or careless programs leave behind, and that no work of anybody's is lost over it."""

from __future__ import annotations

import os
import random
import subprocess
import threading
import time
from pathlib import Path

import pytest

from stack.errors import Locked
from stack.repo import locks
from stack.repo.client import Git
from stack.repo.workspace import Workspace
from stack.store import atomic, lock
from tests.conftest import numbered
from tests.support.cli import Stack
from tests.support.project import Demo


@pytest.fixture
def demo(stack: Stack, tmp_path: Path) -> Demo:
    made = Demo(stack, tmp_path)
    made.patches(3)
    return made


def test_locks_that_a_killed_git_left_in_the_repository(demo: Demo) -> None:
    demo.apply()
    repository = demo.stack.folder / ".stack/repos/demo.git"
    (demo.stack.folder / ".stack" / locks.MARK).touch()
    for name in (
        "refs/heads/1.0.lock",
        "refs/stack/operations.lock",
        "refs/stack/base/1.0/path.lock",
        "packed-refs.lock",
        "HEAD.lock",
        "config.lock",
    ):
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_bytes(b"")
    demo.stack.ok("apply", "--to", "edit-0")
    assert not list(repository.rglob("*.lock"))


def test_a_base_ref_lock_that_a_killed_first_apply_left(demo: Demo) -> None:
    held = demo.stack.folder / ".stack/repos/demo.git/refs/stack/base/1.0/path.lock"
    held.with_suffix("").unlink()
    held.write_bytes(b"")
    demo.stack.ok("apply")


def test_a_worktree_that_a_killed_git_left_locked(demo: Demo) -> None:
    """`git worktree add` marks its entry as locked while it works."""
    demo.apply()
    entry = next((demo.stack.folder / ".stack/repos/demo.git/worktrees").iterdir())
    (entry / "locked").write_bytes(b"initializing\n")
    subprocess.run(["rm", "-rf", demo.tree.parent], check=True)
    demo.stack.ok("apply")
    assert demo.git("status", "--porcelain") == ""


def test_a_worktree_that_a_killed_git_had_only_begun_is_made_again(demo: Demo) -> None:
    """`git worktree add` writes a HEAD of zeros first."""
    demo.apply()
    head = demo.head()
    repository = demo.stack.folder / ".stack/repos/demo.git"
    workspace = Workspace(Git(repository), demo.tree.parent, "1.0")
    (repository / "worktrees/tree/HEAD").write_bytes(b"0" * 40 + b"\n")
    assert workspace.head() is None
    assert workspace.edited() == []
    workspace.create(head)
    assert workspace.head() == head


def test_a_workspace_that_was_removed_is_made_again(demo: Demo) -> None:
    demo.apply()
    head = demo.head()
    for gone in (demo.tree, demo.tree.parent, demo.stack.folder / ".stack"):
        subprocess.run(["rm", "-rf", gone], check=True)
        assert demo.stack.ok("status", "--json").json["data"]["lines"][0]["state"] == "absent"
        demo.stack.ok("apply")
        assert demo.head() == head


def stop_in_the_middle(demo: Demo, *command: str) -> bool:
    """Kill a command while its journal stands; whether that could be done."""
    child = demo.stack.start(*command)
    journal = demo.stack.folder / ".stack/journal.json"
    while child.poll() is None and not journal.exists():
        time.sleep(0.0005)
    child.kill()
    child.wait()
    return journal.exists()


def cut_off(demo: Demo, *command: str) -> None:
    for _ in range(30):
        if stop_in_the_middle(demo, *command):
            return
        demo.stack.ok("undo")
    pytest.fail("never caught in the middle")


def test_status_and_doctor_name_a_change_that_was_cut_off(demo: Demo) -> None:
    cut_off(demo, "apply")
    shown = demo.stack("status", "--check", "--json")
    assert (shown.code, shown.json["data"]["cut_off"]) == (1, True)
    assert "killed" in demo.stack("doctor").out
    said = demo.stack.ok("apply").err
    assert "completed a change of demo/1.0" in said
    assert demo.stack.ok("status", "--check", "--json").json["data"]["cut_off"] is False


def test_a_patch_file_edited_after_a_kill_stops_everything_until_it_is_moved(demo: Demo) -> None:
    demo.apply()
    demo.edit_commit(1, "src/f1.py", numbered(20).replace(b"line 4\n", b"amended\n"))
    before = demo.files()
    cut_off(demo, "export")
    patch = demo.line / "edit-1.patch"
    patch.write_bytes(b"mine, edited meanwhile\n")
    output = demo.stack("export")
    assert output.code == 2
    assert "edit-1.patch: edited while a command was at work on it" in output.err
    assert patch.read_bytes() == b"mine, edited meanwhile\n"
    patch.rename(demo.scratch / "aside")
    assert "stack undo" in output.err
    demo.stack.ok("undo")
    assert demo.files() == before


def test_a_workspace_file_edited_after_a_kill_is_never_overwritten(demo: Demo) -> None:
    demo.stack.ok("apply", "--to", "edit-0")
    cut_off(demo, "apply")
    (demo.tree / "src/f2.py").write_bytes(b"my work\n")
    output = demo.stack("apply")
    assert output.code == 2
    assert "src/f2.py" in output.err
    assert (demo.tree / "src/f2.py").read_bytes() == b"my work\n"


@pytest.mark.parametrize("kind", ["modified", "staged", "untracked", "committed", "rebase"])
def test_work_in_the_workspace_is_never_overwritten(demo: Demo, kind: str) -> None:
    demo.stack.ok("apply", "--to", "edit-0")
    mine = demo.tree / ("src/late.py" if kind == "untracked" else "src/f2.py")
    if kind == "untracked":
        demo.more("late", {"src/late.py": b"theirs\n"})
    mine.write_bytes(b"my work\n")
    if kind in ("staged", "committed"):
        demo.git("add", "--all")
    if kind == "committed":
        demo.git("commit", "--quiet", "-m", "mine")
    if kind == "rebase":
        demo.git("checkout", "--quiet", "src/f2.py")
        gitdir = Path((demo.tree / ".git").read_text().removeprefix("gitdir:").strip())
        (gitdir / "rebase-merge").mkdir()
    head = demo.head()
    output = demo.stack("apply")
    assert output.code == 2, output
    assert demo.head() == head
    assert kind == "rebase" or mine.read_bytes() == b"my work\n"
    expected = {"committed": "stack export", "untracked": "src/late.py", "rebase": "in progress"}
    assert expected.get(kind, "src/f2.py") in output.err
    assert "hint:" in output.err


def test_an_untracked_file_elsewhere_is_no_obstacle(demo: Demo) -> None:
    demo.stack.ok("apply", "--to", "edit-0")
    (demo.tree / "notes").write_bytes(b"mine\n")
    demo.stack.ok("apply")
    assert (demo.tree / "notes").read_bytes() == b"mine\n"


def test_a_damaged_receipt_is_named(demo: Demo) -> None:
    demo.apply()
    (demo.tree.parent / "receipt.json").write_bytes(b"{")
    for verb in ("status", "apply", "export"):
        output = demo.stack(verb)
        assert output.code == 2
        assert "receipt.json: damaged" in output.err


def test_undo_and_redo_are_exact_over_a_random_history(demo: Demo) -> None:
    """Files, series and commits after any walk through the history are those seen there before."""
    rng = random.Random(11)
    states: list[tuple[dict[str, bytes], str | None]] = []

    def state() -> tuple[dict[str, bytes], str | None]:
        return demo.files(), demo.head() if (demo.tree / ".git").exists() else None

    states.append(state())
    actions = ["apply", "export", "to", "import", "export", "without", "apply", "import"]
    for number, action in enumerate(actions):
        if action == "apply":
            demo.stack.ok("apply")
        elif action in ("to", "without"):
            demo.stack.ok("apply", f"--{action}", rng.choice(demo.names()[:3]))
        elif action == "import":
            demo.more(f"Late {number}", {f"src/late{number}": b"%d\n" % number})
        else:
            demo.stack.ok("apply")
            if state() != states[-1]:
                states.append(state())
            demo.edit_commit(
                rng.randrange(2), f"src/f{rng.randrange(5, 9)}.py", b"%d\n" % rng.randrange(99)
            )
            demo.stack.ok("export")
            demo.stack.ok("undo")
            demo.git("reset", "--quiet", "--hard", states[-1][1] or "")
            continue
        if state() != states[-1]:
            states.append(state())
    here = len(states) - 1
    for _ in range(14):
        down = here > 0 and (here == len(states) - 1 or rng.random() < 0.6)
        demo.stack.ok("undo", *([] if down else ["--redo"]))
        here += -1 if down else 1
        assert state() == states[here]
    while here > 0:
        demo.stack.ok("undo")
        here -= 1
        assert state() == states[here]


def test_a_lock_says_who_holds_it_and_dies_with_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with lock.hold(path, "apply demo/1.0"), pytest.raises(Locked) as wrong, lock.hold(path, "x"):
        pass
    assert wrong.value.message == f"{path}: held by process {os.getpid()}: apply demo/1.0"
    with lock.hold(path, "again"):
        pass


def test_a_locked_project_waits_and_says_for_whom(demo: Demo) -> None:
    path = demo.stack.folder / ".stack/lock"
    free = threading.Event()

    def holder() -> None:
        with lock.hold(path, "a long build"):
            free.wait(30)

    thread = threading.Thread(target=holder)
    thread.start()
    timer = threading.Timer(2, free.set)
    timer.start()
    started = time.monotonic()
    output = demo.stack("apply")
    thread.join()
    assert output.code == 0
    assert time.monotonic() - started > 1
    assert "a long build" in output.err
    with lock.hold(path, "a long build"):
        assert demo.stack.ok("status")  # readers take no lock
        assert demo.stack.ok("list")
        assert demo.stack.ok("apply", "--dry-run")


class TestAtomic:
    """Whole or not at all."""

    def test_write_replaces_and_leaves_nothing_behind(self, tmp_path: Path) -> None:
        path = tmp_path / "deep/f"
        atomic.write(path, b"1")
        assert atomic.write_if_changed(path, b"1") is False
        before = path.stat().st_ino
        assert atomic.write_if_changed(path, b"2") is True
        assert path.read_bytes() == b"2"
        assert path.stat().st_ino != before
        assert [entry.name for entry in path.parent.iterdir()] == ["f"]

    def test_a_failed_write_leaves_the_old_one(self, tmp_path: Path) -> None:
        path = tmp_path / "f"
        atomic.write(path, b"old")
        with pytest.raises(TypeError):
            atomic.write(path, "text")  # type: ignore[arg-type]
        assert path.read_bytes() == b"old"
        assert [entry.name for entry in tmp_path.iterdir()] == ["f"]

    def test_a_folder_appears_whole_or_not(self, tmp_path: Path) -> None:
        path = tmp_path / "folder"

        def fill(fail: bool) -> None:
            with atomic.new_folder(path) as fresh:
                (fresh / "x").write_bytes(b"1")
                if fail:
                    raise RuntimeError

        with pytest.raises(RuntimeError):
            fill(fail=True)
        assert list(tmp_path.iterdir()) == []
        fill(fail=False)
        (path / "old").write_bytes(b"")
        fill(fail=False)
        assert [entry.name for entry in path.iterdir()] == ["x"]

    def test_sweep_takes_leavings_only(self, tmp_path: Path) -> None:
        for name in (".f.0a1b2c3d.tmp", "kept.tmp", ".kept"):
            (tmp_path / name).write_bytes(b"")
        (tmp_path / ".d.0a1b2c3d.tmp").mkdir()
        assert atomic.sweep(tmp_path) == 2
        assert sorted(path.name for path in tmp_path.iterdir()) == [".kept", "kept.tmp"]
