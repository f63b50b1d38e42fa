"""Many at once in one project: nothing is lost or torn, nobody waits for ever.

`make test` lets them loose for a few seconds, `make soak` (STACK_TEST_SECONDS) for minutes.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from stack.store.ledger import Ledger
from tests.support.cli import Stack
from tests.support.faults import Ran, Server
from tests.support.project import Demo

ROOT = Path(__file__).parents[1]
SECONDS = float(os.environ.get("STACK_TEST_SECONDS", "6"))
CROWD = 8
Verb = tuple[str, ...]
Runs = list[tuple[Verb, Ran]]
VERBS: list[Verb] = [
    ("apply",), ("apply", "--without", "edit-1"), ("export",),
    ("move", "edit-2", "--before", "edit-0"), ("move", "edit-2", "--after", "edit-3"),
    ("status",), ("list",), ("log",), ("report",), ("lint",), ("gc",),
    ("forecast", "--onto", "demo@v1.0"),
]  # fmt: skip


def one(
    folder: Path, number: int, together: threading.Barrier, seconds: float, verbs: list[Verb],
    ran: Runs,
) -> None:
    """Run verbs of a project, one after another, from when all are ready until the time is over."""
    rng = random.Random(number)
    server = Server()
    try:
        server.run(folder, "--version")
        together.wait(120)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            verb = rng.choice(verbs)
            ran.append((verb, server.run(folder, *verb)))
    finally:
        server.close()


def let_loose(folder: Path, verbs: list[Verb], seconds: float = SECONDS) -> Runs:
    """What many at once do in a project; each ends, and says why when it could not go on."""
    together = threading.Barrier(CROWD + 1)
    ran: Runs = []
    crowd = [
        threading.Thread(target=one, args=(folder, number, together, seconds, verbs, ran))
        for number in range(CROWD)
    ]
    for member in crowd:
        member.start()
    together.wait(120)
    for member in crowd:
        member.join(timeout=seconds + 120)
        assert not member.is_alive(), "somebody waits for ever"
    assert len(ran) > CROWD
    for verb, done in ran:
        # 2 is "nothing to undo" or "another one is at it", and each says so in one line
        assert done.code in (0, 1, 2), (verb, done)
        assert "Traceback" not in done.err, (verb, done)
        if done.code == 2 and "--json" in verb:
            assert json.loads(done.out)["errors"], (verb, done)
        elif done.code == 2:
            assert done.err.startswith(("error: ", "waiting")), (verb, done)
    print(f"{len(ran)} runs by {CROWD} at once in {seconds:.0f} s")
    return ran


def test_a_crowd_in_one_project(stack: Stack, tmp_path: Path) -> None:
    demo = Demo(stack, tmp_path)
    demo.patches(4)
    demo.apply()
    before = demo.files()
    let_loose(stack.folder, VERBS)
    # nobody lost a patch, and the project works as before
    assert {name: data for name, data in demo.files().items() if name.endswith(".patch")} == {
        name: data for name, data in before.items() if name.endswith(".patch")
    }
    stack.ok("apply")
    assert demo.git("status", "--porcelain") == ""
    assert not list((stack.folder / ".stack").glob("*.json"))
    fsck = ["git", "fsck", "--strict", "--no-dangling"]
    done = subprocess.run(
        fsck, cwd=stack.folder / ".stack/repos/demo.git", capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_no_line_of_the_ledger_is_lost_or_torn(tmp_path: Path) -> None:
    """Processes that append at once; every record of each is there, whole."""
    code = (
        "import sys; from pathlib import Path\n"
        "from stack.model.measure.trial import Machine\n"
        "from stack.store.ledger import Ledger\n"
        "book = Ledger(Path(sys.argv[1]))\n"
        "for number in range(60):\n"
        "    name = f'{sys.argv[2]}-{number}'\n"
        "    book.append(Machine(id=name, time='now', facts={'text': 'x' * 5000}))\n"
    )
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "ledger"), str(number)], cwd=ROOT
        )
        for number in range(CROWD)
    ]
    assert [child.wait(120) for child in running] == [0] * CROWD
    found = Ledger(tmp_path / "ledger").machines(pytest.fail)
    assert {one.id for one in found} == {f"{n}-{m}" for n in range(CROWD) for m in range(60)}


def test_the_lock_of_a_dead_process_is_taken_over(stack: Stack, tmp_path: Path) -> None:
    demo = Demo(stack, tmp_path)
    demo.patches(1)
    lock = stack.folder / ".stack/lock"
    code = (
        "import sys, time; from pathlib import Path; from stack.store import lock\n"
        "with lock.hold(Path(sys.argv[1]), 'a test that will die'):\n"
        "    print('held', flush=True); time.sleep(600)\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(lock)], stdout=subprocess.PIPE, cwd=ROOT
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    waiting = subprocess.Popen(
        Stack.argv("apply"), cwd=stack.folder, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    assert waiting.stderr is not None
    assert b"a test that will die" in waiting.stderr.readline()
    holder.kill()
    holder.wait()
    holder.stdout.close()
    assert waiting.wait(60) == 0
    waiting.stderr.close()
