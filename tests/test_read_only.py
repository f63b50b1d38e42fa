"""A project that may only be read: what looks works as ever, what writes says why in one line."""

from __future__ import annotations

import os
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli import Output, Stack
from tests.support.project import Demo
from tests.test_hostile_git import LOOKING

# The administrator may write everywhere; these are the rights that say so.
AS_ANYBODY = (
    "setpriv", "--bounding-set=-dac_override,-dac_read_search",
    "--inh-caps=-dac_override,-dac_read_search",
)
WRITING = [
    ("apply",), ("apply", "--without", "edit-1"), ("export",), ("new", "more"),
    ("import", "MAIL"), ("move", "edit-2", "--before", "edit-0"), ("rename", "edit-1", "other"),
    ("drop", "edit-0"), ("fold", "edit-1", "--into", "edit-0"), ("undo",),
    ("edit", "edit-1"), ("refresh",), ("rebase", "--onto", "demo@v1.1"), ("gc",),
    ("upstream", "add", "more", "UPSTREAM"), ("line", "add", "demo@v1.1"),
    ("split", "edit-1", "--by", "file"),
]  # fmt: skip


@pytest.fixture
def demo(stack: Stack, tmp_path: Path) -> Iterator[Demo]:
    made = Demo(stack, tmp_path)
    made.patches(3)
    made.upstream.commit("Go on", {"README": b"on\n"})
    made.upstream.git("tag", "v1.1")
    made.apply()
    stack.ok("forecast", "--onto", "demo@v1.1")  # v1.1 is known from now on
    yield made
    allow(stack.folder, write=True)


def allow(folder: Path, *, write: bool) -> None:
    """Give or take the right to write everything below a folder."""
    for here, folders, files in os.walk(folder):
        for path in (Path(here), *(Path(here, name) for name in (*folders, *files))):
            if not path.is_symlink():
                mode = stat.S_IMODE(path.stat().st_mode)
                path.chmod(mode | 0o200 if write else mode & ~0o222)


def everything(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()
    }


def run(demo: Demo, *arguments: str) -> Output:
    said = {"MAIL": str(next((demo.scratch / "mails").glob("*"))), "UPSTREAM": demo.upstream.url}
    argv = Stack.argv(*(said.get(one, one) for one in arguments))
    done = subprocess.run(
        [*(AS_ANYBODY if os.geteuid() == 0 else ()), *argv], cwd=demo.stack.folder,
        capture_output=True, check=False, timeout=120,
    )
    return Output(done.returncode, done.stdout.decode(), done.stderr.decode())


def test_what_looks_works_as_ever(demo: Demo) -> None:
    looking = [verb for verb in LOOKING if verb[0] not in ("import", "doctor")]
    before = {verb: run(demo, *verb) for verb in looking}
    allow(demo.stack.folder, write=False)
    was = everything(demo.stack.folder)
    for verb, wanted in before.items():
        found = run(demo, *verb)
        assert (verb, found.code, found.out) == (verb, wanted.code, wanted.out), found
        assert found.err == wanted.err, verb
    assert everything(demo.stack.folder) == was
    assert not list(Path(tempfile.gettempdir()).glob("stack-objects-*"))
    doctor = run(demo, "doctor")
    assert (doctor.code, "cannot be written" in doctor.out) == (1, True), doctor


def test_what_writes_says_why_not_and_changes_nothing(demo: Demo) -> None:
    allow(demo.stack.folder, write=False)
    was = everything(demo.stack.folder)
    wrong = []
    for verb in WRITING:
        done = run(demo, *verb)
        errors = [line for line in done.err.splitlines() if line.startswith("error: ")]
        if done.code != 2 or len(errors) != 1 or "Permission denied" not in errors[0]:
            wrong.append((verb, done))
    assert not wrong, "\n".join(f"{verb}: {done}" for verb, done in wrong)
    assert everything(demo.stack.folder) == was
