"""Files of `.stack/` that somebody damaged are named in one line with a way on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import numbered
from tests.support.cli import Stack
from tests.support.project import Demo

DAMAGE = {
    "text": b"no document\n", "empty": b"", "another kind": b"[]\n", "without fields": b"{}\n",
    "cut off": b'{"schema": 1, "upstr', "deep": b"[" * 100_000,
}  # fmt: skip


@pytest.fixture
def demo(stack: Stack, tmp_path: Path) -> Demo:
    made = Demo(stack, tmp_path)
    made.patches(1)
    made.apply()
    return made


def journal(demo: Demo) -> tuple[str, tuple[str, ...]]:
    return ".stack/journal.json", ("new", "x", "-m", "X", "--why", "it is")


def receipt(demo: Demo) -> tuple[str, tuple[str, ...]]:
    return ".stack/workspaces/demo/1.0/receipt.json", ("status",)


def stopped_rebase(demo: Demo) -> tuple[str, tuple[str, ...]]:
    demo.upstream.commit("Theirs", {"src/f0.py": numbered(20).replace(b"line 7\n", b"theirs\n")})
    demo.upstream.git("tag", "v1.1")
    assert demo.stack("rebase", "--onto", "demo@v1.1").code == 3
    return ".stack/rebase/state.json", ("rebase", "--continue")


def stopped_drop(demo: Demo) -> tuple[str, tuple[str, ...]]:
    demo.write({"src/f0.py": numbered(20).replace(b"line 7\n", b"changed twice\n")})
    demo.stack.ok("new", "twice", "-m", "Twice", "--why", "it is more")
    assert demo.stack("drop", "edit-0").code == 3
    return ".stack/restack/state.json", ("drop", "--continue")


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize(
    "begin", [journal, receipt, stopped_rebase, stopped_drop], ids=lambda one: one.__name__
)
def test_a_damaged_file_is_named(
    demo: Demo, begin: Callable[[Demo], tuple[str, tuple[str, ...]]], kind: str
) -> None:
    name, command = begin(demo)
    before = demo.files()
    path = demo.stack.folder / name
    path.write_bytes(DAMAGE[kind])
    for arguments in (("status",), command):
        output = demo.stack(*arguments)
        if output.code:
            assert output.code == 2, output
            assert output.err.splitlines()[0].startswith(f"error: {name}: damaged: "), output
            assert "hint: " in output.err
    assert output.code == 2, output
    assert demo.files() == before
    path.unlink()
    demo.stack.ok("apply")
