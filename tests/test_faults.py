"""A fault at every point where a verb changes something: nothing is lost, and the next run works.

`make test` tries a sample of the points, `make soak` (STACK_TEST_FAULTS=all) each of them.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import numbered
from tests.support.cli import Stack
from tests.support.faults import KINDS, Server
from tests.support.project import Demo

EVERY = os.environ.get("STACK_TEST_FAULTS") == "all"
SAMPLE = 4
_VARYING = re.compile(rb"(?m)^(Patch-Id|Date): .*$")
Begin = Callable[[Demo], tuple[str, ...]]


@pytest.fixture
def demo(stack: Stack, tmp_path: Path) -> Demo:
    made = Demo(stack, tmp_path)
    made.patches(3)
    return made


def _edit(demo: Demo, number: int, text: bytes) -> None:
    data = numbered(20).replace(b"line 7\n", b"changed %d\n" % number)
    demo.write({f"src/f{number}.py": data.replace(b"line 15\n", text)})


def apply_first(demo: Demo) -> tuple[str, ...]:
    return ("apply",)


def apply_fewer(demo: Demo) -> tuple[str, ...]:
    demo.apply()
    return ("apply", "--without", "edit-1")


def export(demo: Demo) -> tuple[str, ...]:
    demo.apply()
    demo.commit("New one\n\nWhy: it is new\n", {"src/new.py": b"1\n"})
    return ("export",)


def import_more(demo: Demo) -> tuple[str, ...]:
    demo.upstream.commit("Late\n\nWhy: late\n", {"src/late": b"1\n"})
    (mail,) = demo.upstream.patches("v1.0", demo.scratch / "late")
    return ("import", str(mail))


def new(demo: Demo) -> tuple[str, ...]:
    demo.apply()
    demo.write({"src/new.py": b"1\n"})
    return ("new", "fresh", "-m", "Fresh", "--why", "it is new")


def refresh(demo: Demo) -> tuple[str, ...]:
    demo.apply()
    _edit(demo, 2, b"more\n")
    return ("refresh", "edit-2")


def fold(demo: Demo) -> tuple[str, ...]:
    demo.apply()
    return ("fold", "edit-1", "--into", "edit-0")


def drop(demo: Demo) -> tuple[str, ...]:
    demo.apply()
    return ("drop", "edit-1")


def move(demo: Demo) -> tuple[str, ...]:
    demo.apply()
    return ("move", "edit-2", "--before", "edit-0")


def rename(demo: Demo) -> tuple[str, ...]:
    demo.apply()
    return ("rename", "edit-1", "renamed")


def undo(demo: Demo) -> tuple[str, ...]:
    demo.apply()
    demo.stack.ok("drop", "edit-1")
    return ("undo",)


def rebase(demo: Demo) -> tuple[str, ...]:
    demo.upstream.commit("Go on", {"README": b"on\n"})
    demo.upstream.git("tag", "v1.1")
    return ("rebase", "--onto", "demo@v1.1")


def line_add(demo: Demo) -> tuple[str, ...]:
    demo.upstream.commit("Go on", {"README": b"on\n"})
    demo.upstream.git("tag", "v1.1")
    return ("line", "add", "demo@v1.1")


def drop_continue(demo: Demo) -> tuple[str, ...]:
    demo.apply()
    demo.write({"src/f1.py": numbered(20).replace(b"line 7\n", b"changed twice\n")})
    demo.stack.ok("new", "twice", "-m", "Twice", "--why", "it is more")
    demo.write({"src/last.py": b"1\n"})
    demo.stack.ok("new", "last", "-m", "Last", "--why", "it stands above")
    assert demo.stack("drop", "edit-1").code == 3
    _answer(demo, "restack")
    return ("drop", "--continue")


def rebase_continue(demo: Demo) -> tuple[str, ...]:
    theirs = numbered(20).replace(b"line 7\n", b"theirs\n")
    demo.upstream.commit("Theirs", {"src/f1.py": theirs})
    demo.upstream.git("tag", "v1.1")
    assert demo.stack("rebase", "--onto", "demo@v1.1").code == 3
    _answer(demo, "rebase")
    return ("rebase", "--continue")


def rebase_skip(demo: Demo) -> tuple[str, ...]:
    rebase_continue(demo)
    return ("rebase", "--skip")


def _answer(demo: Demo, where: str) -> None:
    shown = demo.stack.folder / f".stack/{where}/tree/src/f1.py"
    shown.write_bytes(numbered(20).replace(b"line 7\n", b"answered\n"))


BEGINNINGS: list[Begin] = [
    apply_first, apply_fewer, export, import_more, new, refresh, fold, drop, move, rename, undo,
    rebase, line_add, drop_continue, rebase_continue, rebase_skip,
]  # fmt: skip


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

    def files(self) -> dict[str, bytes]:
        """Every file of every line, without what a new patch has from the clock and the dice."""
        root = self.root / "patches"
        return {
            str(path.relative_to(root)): _VARYING.sub(rb"\1", path.read_bytes())
            for path in sorted(root.rglob("*"))
            if path.is_file() and not path.name.endswith(".tmp")
        }

    def workspace(self) -> str | None:
        return self.demo.tree_id() if (self.demo.tree / ".git").exists() else None

    def strike(self, kind: str, point: int) -> None:
        shutil.rmtree(self.root)
        subprocess.run(["cp", "-a", self.saved, self.root], check=True)
        struck = self.server.run(self.root, *self.command, kind=kind, point=point)
        told = f"{' '.join(self.command)}: {kind} at {point} of {self.points}: {struck}"
        if kind == "kill":
            assert struck.code in (-9, 0), told
        else:
            assert struck.code != 70, told
            assert struck.code == 0 or "error: " in struck.err, told
        now = self.files()
        for name in {*self.old, *self.new, *now}:
            assert now.get(name) in (self.old.get(name), self.new.get(name)), f"{name}: {told}"
        self.go_on(told)
        self.check_clean(told)

    def go_on(self, told: str) -> None:
        """The next run completes what was begun, or does it again; the end is the same."""
        seen = self.server.run(self.root, "status")
        assert seen.code in (0, 1), f"{seen}: {told}"
        if (self.root / ".stack/journal.json").exists():  # whoever writes next completes it
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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("begin", BEGINNINGS, ids=lambda one: one.__name__)
def test_a_fault_at_any_point_loses_nothing(
    begin: Begin, kind: str, demo: Demo, server: Server
) -> None:
    trial = Trial(demo, server, begin(demo))
    assert trial.points > 3
    points = range(1, trial.points + 1)
    if not EVERY:
        rng = random.Random(f"{begin.__name__} {kind}")
        points = sorted(rng.sample(points, min(SAMPLE, len(points))))
    for point in points:
        trial.strike(kind, point)
    print(f"{begin.__name__} {kind}: {len(points)} of {trial.points} points")
