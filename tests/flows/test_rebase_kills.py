"""A rebase that is killed at any point loses nothing, and the next run ends it."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.conftest import numbered
from tests.support.carrying import Moving
from tests.support.cli import Stack, cold

ROUNDS = int(os.environ.get("STACK_TEST_KILLS", "6"))
BASE = numbered(40)
ONE = BASE.replace(b"line 5\n", b"mine\n")
TWO = ONE.replace(b"line 20\n", b"twenty\n")
THREE = TWO.replace(b"line 35\n", b"also mine\n")
THEIRS = BASE.replace(b"line 5\n", b"theirs\n").replace(b"line 35\n", b"also theirs\n")


def patches(stack: Stack) -> dict[str, bytes]:
    root = stack.folder / "patches"
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and not path.name.endswith(".tmp")
    }


def kill(stack: Stack, seconds: float, *arguments: str, group: bool) -> None:
    """Start a command and kill it after some time, with or without the git that it runs."""
    child = stack.start(*arguments)
    deadline = time.monotonic() + seconds
    while child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL) if group else child.kill()
    child.wait()
    if not group:
        time.sleep(0.3)  # the orphaned git ends by itself


def ended(stack: Stack) -> None:
    """Go on from wherever it stands until the new line is there, as a person would."""
    for _ in range(8):
        if (stack.folder / "patches/demo/2/series.toml").exists():
            stack.ok("status")  # completes what was cut off behind the new line, if anything was
            return
        output = stack("rebase", "--continue")
        if output.code == 2 and "no rebase is under way" in output.err:
            output = stack("rebase", "--onto", "demo@v2")
        if output.code == 2 and "markers remain" in output.err:
            stack.ok("resolve", "--take", "patch")
            continue
        assert output.code in (0, 3), output
        if output.code == 3:
            stack.ok("resolve", "--take", "patch")
    raise AssertionError("it never ended")


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_killed_at_any_point_nothing_is_lost_and_the_next_run_ends_it(
    tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    case = Moving(
        tmp_path / "m",
        {"f": BASE},
        [("one", {"f": ONE}), ("two", {"f": TWO}), ("three", {"f": THREE})],
        [("theirs", {"f": THEIRS})],
    )
    stack = case.project()
    before = patches(stack)
    saved = tmp_path / "saved"
    shutil.copytree(stack.folder, saved, symlinks=True)
    begun = time.monotonic()
    with cold():
        ended(stack)
    seconds = (time.monotonic() - begun) / 5
    wanted = {name: data for name, data in patches(stack).items() if "resolutions" not in name}
    shutil.rmtree(stack.folder)
    shutil.copytree(saved, stack.folder, symlinks=True)
    for _ in range(3):
        step = rng.choice([("--onto", "demo@v2"), ("--continue",), ("--abort",)])
        kill(stack, rng.uniform(0, seconds * 1.5), "rebase", *step, group=rng.random() < 0.7)
        now = patches(stack)
        for name, data in before.items():
            assert now[name] == data, f"{name} is lost or torn after a killed {step}"
        if rng.random() < 0.4 and (stack.folder / ".stack/rebase/state.json").exists():
            stack("resolve", "--take", "patch")
    ended(stack)
    found = {name: data for name, data in patches(stack).items() if "resolutions" not in name}
    assert found == wanted
    state = stack.folder / ".stack"
    assert not (state / "rebase/state.json").exists()
    assert not (state / "journal.json").exists()
    assert not [path for path in (state / "repos").rglob("*.lock") if path.is_file()]
    done = subprocess.run(
        ["git", "fsck", "--strict", "--no-dangling"],
        cwd=state / "repos/demo.git",
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
