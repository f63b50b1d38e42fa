"""A checked-out project runs nothing of its own until its user has allowed that."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.cli import Stack
from tests.support.repo import RepoBuilder
from tests.support.toy_engine import Toy

NOBODY = {"STACK_TRUST": "0"}


def on_a_terminal(stack: Stack, answer: bytes, *arguments: str) -> tuple[int, str]:
    """Run with a terminal on stdin and stderr, and answer what it asks."""
    mine, theirs = pty.openpty()
    child = subprocess.Popen(
        Stack.argv(*arguments), cwd=stack.folder, stdin=theirs, stdout=subprocess.DEVNULL,
        stderr=theirs, env={**os.environ, **NOBODY},
    )
    os.close(theirs)
    os.write(mine, answer)
    said = b""
    while True:
        try:
            part = os.read(mine, 4096)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        said += part
    os.close(mine)
    return child.wait(), said.decode("utf-8", "replace")


@pytest.mark.parametrize("verb", [["build"], ["verify"]])
def test_what_was_never_allowed_does_not_run(toy: Toy, verb: list[str]) -> None:
    refused = toy.stack(*verb, env=NOBODY)
    assert refused.code == 2
    assert "this project's commands were never allowed on this machine" in refused.err
    assert "  bench." in refused.err
    assert "hint: read them, then run the same with --trust" in refused.err
    assert not (toy.state / "venvs").exists()
    document = toy.stack(*verb, "--json", env=NOBODY).json
    assert document["errors"][0]["code"] == "untrusted"


def test_allowed_once_it_runs_until_the_commands_change(toy: Toy) -> None:
    toy.stack.ok("build", "--trust", env=NOBODY)
    toy.stack.ok("build", env=NOBODY)
    settings = toy.stack.folder / "stack.toml"
    text = settings.read_text()
    settings.write_text(re.sub(r"(?m)^unit = .*$", 'unit = "other"', text, count=1))
    assert toy.stack("build", env=NOBODY).code == 2
    more = '[screen.s]\nbench = "softmax"\nknob = { TOY_BATCH = ["8"] }\n'
    settings.write_text(text + more)
    assert "screen.s: bench.softmax with TOY_BATCH" in toy.stack("build", env=NOBODY).err
    settings.write_text(text)
    toy.stack.ok("build", env=NOBODY)
    # The same text in another place is another project's.
    elsewhere = Stack(toy.stack.folder.with_name("elsewhere"))
    toy.stack.folder.rename(elsewhere.folder)
    assert elsewhere("build", env=NOBODY).code == 2


def test_the_permission_stands_outside_of_the_project(toy: Toy) -> None:
    before = {path for path in toy.stack.folder.rglob("*") if ".stack" not in path.parts}
    toy.stack.ok("build", "--trust", env=NOBODY)
    after = {path for path in toy.stack.folder.rglob("*") if ".stack" not in path.parts}
    assert before == after
    (note,) = (Path(os.environ["XDG_STATE_HOME"]) / "stack/trusted").iterdir()
    assert note.stat().st_mode & 0o777 == 0o600
    assert str(toy.stack.folder.resolve()) in note.read_text()


@pytest.mark.parametrize(("answer", "code"), [(b"n\n", 2), (b"\n", 2), (b"y\n", 0)])
def test_on_a_terminal_it_asks_once(toy: Toy, answer: bytes, code: int) -> None:
    got, said = on_a_terminal(toy.stack, answer, "build")
    assert got == code
    assert "allow them from now on? [y/N]" in said
    assert toy.stack("build", env=NOBODY).code == code


def test_looking_and_planning_need_no_permission(toy: Toy) -> None:
    for arguments in (
        ["status"], ["list"], ["lint"], ["report"], ["build", "--dry-run"], ["build", "--print"],
        ["apply"],
    ):  # fmt: skip
        done = toy.stack(*arguments, env=NOBODY)
        assert "never allowed" not in done.err, done
