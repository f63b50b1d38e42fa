"""A fault at every point where a verb changes something: nothing is lost, and the next run works.

`make test` tries a sample of the points, `make soak` (STACK_TEST_FAULTS=all) each of them.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.beginnings import BEGINNINGS, Begin
from tests.support.cli import Stack
from tests.support.faults import KINDS, OF_GIT, Server
from tests.support.project import Demo

EVERY = os.environ.get("STACK_TEST_FAULTS") == "all"
SAMPLE = 2
_VARYING = re.compile(rb'(?m)^(Patch-Id|Date): .*$|"time": ".*"')


@pytest.fixture
def demo(stack: Stack, tmp_path: Path) -> Demo:
    made = Demo(stack, tmp_path)
    made.patches(3)
    return made


class Trial:
    """One command from one beginning, to be struck again and again."""

    def __init__(self, demo: Demo, server: Server, command: tuple[str, ...]) -> None:
        self.demo, self.server, self.command = demo, server, command
        self.root, self.saved = demo.stack.folder, demo.scratch / "saved"
        subprocess.run(["cp", "-a", self.root, self.saved], check=True)
        self.old = self.files()
        done = server.run(self.root, *command)
        assert done.code == 0, done
        self.points, self.new, self.tree = done.points, self.files(), self.workspace()
        self.gits = done.gits

    def files(self) -> dict[str, bytes]:
        """Every file of every line, without what a new patch has from the clock and the dice."""
        root = self.root / "patches"
        return {
            str(path.relative_to(root)): _VARYING.sub(b"", path.read_bytes())
            for path in sorted(root.rglob("*"))
            if path.is_file() and not path.name.endswith(".tmp")
        }

    def workspace(self) -> str | None:
        return self.demo.tree_id() if (self.demo.tree / ".git").exists() else None

    def count(self, kind: str) -> int:
        return self.gits if kind in OF_GIT else self.points

    def strike(self, kind: str, point: int) -> None:
        shutil.rmtree(self.root)
        subprocess.run(["cp", "-a", self.saved, self.root], check=True)
        struck = self.server.run(self.root, *self.command, kind=kind, point=point)
        told = f"{' '.join(self.command)}: {kind} at {point} of {self.count(kind)}: {struck}"
        if kind in ("kill", "cut"):
            assert struck.code in (-9, 0), told
        else:
            assert struck.code != 70, told
            assert struck.code == 0 or "error: " in struck.err, told
        now = self.files()
        for name in {*self.old, *self.new, *now}:
            assert now.get(name) in (self.old.get(name), self.new.get(name)), f"{name}: {told}"
        self.go_on(told, locked=kind in OF_GIT)
        self.check_clean(told)

    def go_on(self, told: str, *, locked: bool) -> None:
        """The next run completes what was begun, or does it again; the end is the same."""
        seen = self.server.run(self.root, "status")
        begun = (self.root / "stack.toml").exists()
        assert seen.code in (0, 1) if begun else "hint: stack init" in seen.err, f"{seen}: {told}"
        # Whoever writes next completes what was begun, and removes the locks of a dead git.
        if begun and (locked or (self.root / ".stack/journal.json").exists()):
            done = self.server.run(self.root, "gc")
            assert done.code == 0, f"{done}: {told}"
        if self.files() != self.new or self.workspace() != self.tree:
            done = self.server.run(self.root, *self.command)
            if done.code == 2:  # it is done already, but for the last step
                done = self.server.run(self.root, "apply")
            assert done.code == 0, f"{done}: {told}"
        assert self.files() == self.new, told
        assert self.workspace() in (self.tree, None), told
        if self.command[1:] in (("--continue",), ("--skip",)):  # and nothing waits any more
            done = self.server.run(self.root, *self.command)
            assert done.code == 2, f"{done}: {told}"

    def check_clean(self, told: str) -> None:
        """Nothing is left over, and git finds no fault."""
        state = self.root / ".stack"
        assert not (state / "journal.json").exists(), told
        assert not [one for one in (state / "repos").rglob("*.lock") if one.is_file()], told
        repository = state / "repos/demo.git"
        if repository.exists():
            git = ["git", "fsck", "--strict", "--no-dangling"]
            done = subprocess.run(git, cwd=repository, capture_output=True, check=False)
            assert done.returncode == 0, (done.stderr, told)


@pytest.mark.parametrize("begin", BEGINNINGS, ids=lambda one: one.__name__)
def test_a_fault_at_any_point_loses_nothing(begin: Begin, demo: Demo, server: Server) -> None:
    trial = Trial(demo, server, begin(demo))
    assert trial.points > 3
    struck = 0
    for kind in KINDS:
        every = range(1, trial.count(kind) + 1)
        rng = random.Random(f"{begin.__name__} {kind}")
        points = every if EVERY else sorted(rng.sample(every, min(SAMPLE, len(every))))
        for point in points:
            trial.strike(kind, point)
        struck += len(points)
    print(f"{begin.__name__}: {trial.points} points, {struck} faults")
