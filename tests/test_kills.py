"""Killed at any point, a command loses nothing, and the next run ends what it began."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import numbered
from tests.support.cli import Stack, cold
from tests.support.project import Demo

Files = dict[str, bytes]


class Killing:
    """One command that is killed again and again, each time from the same beginning."""

    def __init__(self, demo: Demo, saved: Path, command: tuple[str, ...]) -> None:
        self.demo, self.saved, self.command = demo, saved, command
        self.root = demo.stack.folder
        shutil.rmtree(saved, ignore_errors=True)
        subprocess.run(["cp", "-a", self.root, saved], check=True)
        self.old = demo.files()
        started = time.monotonic()
        with cold():
            demo.stack.ok(*command)
        self.seconds = time.monotonic() - started
        self.new, self.head = demo.files(), self.workspace_head()

    def restore(self) -> None:
        shutil.rmtree(self.root)
        subprocess.run(["cp", "-a", self.saved, self.root], check=True)

    def workspace_head(self) -> str | None:
        return self.demo.head() if (self.demo.tree / ".git").exists() else None

    def kill(self, rng: random.Random, *, in_change: bool, group: bool) -> None:
        """Start, and send KILL after a random time, or shortly after the change has begun."""
        child = self.demo.stack.start(*self.command)
        started = time.monotonic()
        delay = rng.uniform(0, self.seconds)
        if in_change:
            journal = self.root / ".stack/journal.json"
            while child.poll() is None and not journal.exists():
                time.sleep(0.001)
            time.sleep(rng.uniform(0, 0.12))
        else:
            while child.poll() is None and time.monotonic() - started < delay:
                time.sleep(0.001)
        with contextlib.suppress(ProcessLookupError):
            if group:
                os.killpg(child.pid, signal.SIGKILL)
            else:
                child.kill()
        child.wait()

    def check_files(self) -> None:
        """Every patch file is the old one or the new one; none is lost, torn or doubled."""
        now = {k: v for k, v in self.demo.files().items() if not k.endswith(".tmp")}
        for name in self.old.keys() | self.new.keys() | now.keys():
            allowed = (self.old.get(name), self.new.get(name))
            assert now.get(name) in allowed, f"{name} is neither the old nor the new one"

    def check_clean(self) -> None:
        """Nothing is left over, and git finds no fault."""
        state = self.root / ".stack"
        assert not (state / "journal.json").exists()
        assert not [path for path in (state / "repos").rglob("*.lock") if path.is_file()]
        left = [
            *state.glob(".*.tmp"),
            *self.demo.line.glob(".*.tmp"),
            *self.demo.tree.parent.glob(".*"),
        ]
        assert not left
        if (state / "repos/demo.git").exists():
            done = subprocess.run(
                ["git", "fsck", "--strict", "--no-dangling"],
                cwd=state / "repos/demo.git",
                capture_output=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr + done.stdout

    def run(self, count: int, seed: int, after: Callable[[], None]) -> None:
        rng = random.Random(seed)
        for number in range(count):
            self.restore()
            self.kill(rng, in_change=number % 2 == 1, group=number % 4 < 2)
            self.check_files()
            after()
            self.check_clean()


@pytest.fixture
def demo(stack: Stack, tmp_path: Path) -> Demo:
    made = Demo(stack, tmp_path)
    made.patches(6)
    return made


def same_command(killing: Killing) -> Callable[[], None]:
    """The same command again succeeds and gives what it would have given undisturbed."""

    def after() -> None:
        killing.demo.stack.ok(*killing.command)
        assert killing.demo.files() == killing.new
        assert killing.workspace_head() == killing.head
        assert killing.demo.git("status", "--porcelain") == ""

    return after


def test_first_apply(demo: Demo, tmp_path: Path) -> None:
    killing = Killing(demo, tmp_path / "saved", ("apply",))
    assert killing.head
    killing.run(22, 1, same_command(killing))


def test_apply_over_an_older_one(demo: Demo, tmp_path: Path) -> None:
    demo.stack.ok("apply", "--to", "edit-1")
    killing = Killing(demo, tmp_path / "saved", ("apply", "--without", "edit-0"))
    killing.run(20, 2, same_command(killing))


def test_export(demo: Demo, tmp_path: Path) -> None:
    demo.apply()
    shas = demo.git("rev-list", "--reverse", f"{demo.base}..HEAD").split()
    demo.git("reset", "--quiet", "--hard", demo.base)
    demo.git("cherry-pick", shas[3], shas[1], shas[0])
    demo.commit("New one", {"src/new.py": b"1\n"})
    demo.edit_commit(1, "src/f1.py", numbered(20).replace(b"line 4\n", b"amended\n"))
    killing = Killing(demo, tmp_path / "saved", ("export",))
    assert set(killing.old) != set(killing.new)
    killing.run(28, 3, same_command(killing))


def test_import(demo: Demo, tmp_path: Path) -> None:
    mails = []
    for number in range(3):
        demo.upstream.commit(f"Late {number}", {f"src/late{number}": b"1\n"})
    mails = demo.upstream.patches("v1.0", tmp_path / "late")
    killing = Killing(demo, tmp_path / "saved", ("import", *map(str, mails)))

    def after() -> None:
        demo.stack.ok(*killing.command)
        assert demo.files() == killing.new

    killing.run(14, 4, after)


def test_undo(demo: Demo, tmp_path: Path) -> None:
    demo.apply()
    demo.commit("New one", {"src/new.py": b"1\n"})
    demo.stack.ok("export")
    killing = Killing(demo, tmp_path / "saved", ("undo",))

    def after() -> None:
        """A second undo takes this change back, or, where the first was through, the one before."""
        demo.stack.ok("undo")
        if demo.files() != killing.new or killing.workspace_head() != killing.head:
            demo.stack.ok("undo", "--redo")
        assert demo.files() == killing.new
        assert killing.workspace_head() == killing.head

    killing.run(16, 5, after)


@pytest.mark.parametrize("verb", ["worktree add", "read-tree"])
def test_a_git_that_outlives_its_stack_is_waited_for(
    demo: Demo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    real = shutil.which("git")
    slow, began = tmp_path / "bin/git", tmp_path / "began"
    slow.parent.mkdir()
    slow.write_text(
        "#!/bin/sh\n"
        f'case " $* " in *" {verb} "*)\n'
        f'  if mkdir {began} 2>/dev/null; then sleep 1; "{real}" "$@"; exit; fi;;\n'
        f'esac\nexec "{real}" "$@"\n'
    )
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    child = demo.stack.start("apply")
    while child.poll() is None and not began.exists():
        time.sleep(0.01)
    child.kill()  # and not what it started
    child.wait()
    again = demo.stack.ok("apply")
    assert "waiting: process" in again.err
    assert demo.git("status", "--porcelain") == ""
    assert demo.names()[-1] in demo.git("log", "-1", "--format=%B").lower().replace(" ", "-")
    assert not list((demo.stack.folder / ".stack/repos").rglob("*.lock"))
