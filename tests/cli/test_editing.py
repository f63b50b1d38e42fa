"""The verbs that edit a stack as a person meets them: words, documents, exit codes, and kills."""

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
from tests.support.stacks import same_as_git_am, state_of

ROUNDS = int(os.environ.get("STACK_TEST_KILLS", "0"))  # kills of each command; 0: a few
VERBS = ("new", "edit", "refresh", "fold", "drop", "move", "rename")


@pytest.fixture
def demo(stack: Stack, tmp_path: Path) -> Demo:
    """A project whose line demo/1.0 has four patches, applied; two of them change one line."""
    made = Demo(stack, tmp_path)
    made.patches(3)
    made.apply()
    made.write({"src/f1.py": numbered(20).replace(b"line 7\n", b"changed twice\n")})
    stack.ok("new", "twice", "-m", "Again")
    return made


def test_every_verb_is_in_help_and_explains_itself(stack: Stack) -> None:
    text = stack.ok("--help").out
    for verb in VERBS:
        assert f"  {verb} " in text
        own = stack.ok(verb, "--help").out
        assert "--line" in own
        assert "--dry-run" in own


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("fold", "edit-0"), "stack fold PATCH --into PATCH"),
        (("fold", "edit-0", "edit-0"), ""),
        (("fold", "edit-0", "edit9"), "did you mean"),
        (("move", "edit-0"), "--before OTHER"),
        (("move", "edit-0", "--before", "edit-0"), ""),
        (("drop",), "stack drop PATCH..."),
        (("drop", "edti-0"), "did you mean `edit-0`"),
        (("new",), "stack new NAME"),
        (("edit",), "stack edit PATCH"),
        (("edit", "--continue"), "stack edit PATCH"),
        (("drop", "--continue"), "stack status"),
        (("rename", "edit-0", "edit-1"), "stack list"),
        (("refresh", "edit-0", "--absorb"), "stack refresh --absorb"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_next_command(
    demo: Demo, words: tuple[str, ...], hint: str
) -> None:
    before = state_of(demo)
    output = demo.stack(*words, "--json")
    assert (output.code, output.json["exit_code"], output.json["status"]) == (2, 2, "error")
    assert hint in (output.json["errors"][0]["hint"] or "")
    assert state_of(demo) == before


def test_the_documents_say_what_became_of_each_patch(demo: Demo) -> None:
    done = demo.stack.ok("move", "twice", "--after", "edit-1", "--json").json["data"]
    assert (done["reordered"], done["finished"], done["differs"]) == (True, True, True)
    assert [row["name"] for row in done["patches"]] == ["edit-0", "edit-1", "twice", "edit-2"]
    assert done["head"] == demo.head()
    output = demo.stack("move", "twice", "--before", "edit-1", "--json")
    assert (output.code, output.json["errors"][0]["code"]) == (3, "conflict")
    assert output.json["data"]["patches"][-1] == {
        "name": "twice", "outcome": "conflict", "commit": None
    }
    aborted = demo.stack.ok("move", "--abort", "--json").json["data"]["aborted"]
    assert aborted == "move twice before edit-1"
    began = demo.stack.ok("edit", "edit-2", "--json").json["data"]
    assert (began["patch"], began["above"], began["head"]) == ("edit-2", [], demo.head())
    demo.stack.ok("edit", "--abort")


class Kills:
    """One command, killed again and again from the same beginning."""

    def __init__(self, demo: Demo, saved: Path, *command: str) -> None:
        self.demo, self.saved, self.command = demo, saved, command
        subprocess.run(["cp", "-a", demo.stack.folder, saved], check=True)
        started = time.monotonic()
        with cold():
            demo.stack(*command)
        self.seconds = time.monotonic() - started
        self.end = state_of(demo)

    def run(self, count: int, seed: int, after: Callable[[], None]) -> None:
        rng = random.Random(seed)
        journal = self.demo.stack.folder / ".stack/journal.json"
        for number in range(count):
            shutil.rmtree(self.demo.stack.folder)
            subprocess.run(["cp", "-a", self.saved, self.demo.stack.folder], check=True)
            child = self.demo.stack.start(*self.command)
            started, delay = time.monotonic(), rng.uniform(0.2, 1) * self.seconds
            while child.poll() is None:
                if journal.exists() if number % 2 else time.monotonic() - started > delay:
                    time.sleep(rng.uniform(0, 0.05))
                    break
                time.sleep(0.001)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            after()
            assert not journal.exists()


def test_a_killed_new_has_the_work_in_the_patch_or_in_the_workspace(
    demo: Demo, tmp_path: Path
) -> None:
    demo.write({"src/f2.py": b"mine\n", "src/extra.py": b"1\n"})
    kills = Kills(demo, tmp_path / "saved", "new", "mine")

    def after() -> None:
        done = demo.stack("new", "mine")
        assert done.code == 0 or "has a patch `mine` already" in done.err
        assert demo.git("status", "--porcelain") == ""
        assert (demo.tree / "src/extra.py").read_bytes() == b"1\n"
        same_as_git_am(demo)

    kills.run(ROUNDS or 8, 1, after)


def test_a_killed_edit_stands_at_the_patch_or_not_and_goes_on(demo: Demo, tmp_path: Path) -> None:
    before = state_of(demo)
    kills = Kills(demo, tmp_path / "saved", "edit", "edit-1")

    def after() -> None:
        done = demo.stack("edit", "edit-1")
        assert done.code == 0 or "is being edited" in done.err
        assert demo.head() == kills.end[1]
        demo.stack.ok("edit", "--abort")
        assert state_of(demo) == before

    kills.run(ROUNDS or 6, 2, after)


def test_a_killed_continue_ends_when_it_is_run_again(demo: Demo, tmp_path: Path) -> None:
    before = state_of(demo)
    assert demo.stack("drop", "edit-1").code == 3
    waiting = demo.stack.folder / ".stack/restack/tree/src/f1.py"
    waiting.write_bytes(numbered(20).replace(b"line 7\n", b"changed twice\n"))
    kills = Kills(demo, tmp_path / "saved", "drop", "--continue")

    def after() -> None:
        done = demo.stack("drop", "--continue")
        assert done.code == 0 or "nothing has stopped" in done.err
        assert state_of(demo) == kills.end
        demo.stack.ok("undo")
        assert state_of(demo) == before

    kills.run(ROUNDS or 8, 3, after)
