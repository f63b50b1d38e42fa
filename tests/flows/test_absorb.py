"""`stack refresh --absorb`: each hunk goes to the patch whose lines it changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import numbered
from tests.support.cli import Stack
from tests.support.project import Demo
from tests.support.stacks import same_as_git_am, state_of


@pytest.fixture
def demo(stack: Stack, tmp_path: Path) -> Demo:
    """Three patches of `src/f0.py`, at lines 3, 10 and 17, and one of `src/f1.py`."""
    made = Demo(stack, tmp_path)
    data = numbered(20)
    for number, at in enumerate((3, 10, 17)):
        data = data.replace(b"line %d\n" % at, b"changed %d\nadded %d\n" % (at, at))
        made.upstream.commit(f"Patch {number}", {"src/f0.py": data})
    made.upstream.commit("Other", {"src/f1.py": b"other\n"})
    mails = made.upstream.patches("v1.0", tmp_path / "mails")
    made.upstream.git("reset", "--quiet", "--hard", "v1.0")
    stack.ok("import", *mails)
    made.apply()
    return made


def absorbed(demo: Demo, *more: str) -> list[tuple[str, int, str | None]]:
    rows = demo.stack("refresh", "--absorb", "--json", *more).json["data"]["hunks"]
    return [(row["path"], row["line"], row["patch"]) for row in rows]


def test_each_hunk_finds_its_patch_and_the_rest_stays(demo: Demo) -> None:
    data = (demo.tree / "src/f0.py").read_bytes()
    data = data.replace(b"changed 3\n", b"better 3\n").replace(b"added 17\n", b"added 17\nand 18\n")
    data = data.replace(b"line 6\n", b"mine 6\n").replace(b"added 10\n", b"")
    demo.write({"src/f0.py": data, "src/new.py": b"1\n"})
    before = state_of(demo)
    wanted = [
        ("src/f0.py", 3, "patch-0"), ("src/f0.py", 7, None), ("src/f0.py", 12, "patch-1"),
        ("src/f0.py", 21, "patch-2"), ("src/new.py", 1, None),
    ]
    assert absorbed(demo, "--dry-run") == wanted
    assert state_of(demo) == before
    assert absorbed(demo) == wanted
    assert (demo.tree / "src/f0.py").read_bytes() == data
    assert demo.git("diff", "--unified=0", "HEAD").split("\n")[-2:] == ["-line 6", "+mine 6"]
    assert demo.git("status", "--porcelain").split("\n") == ["M src/f0.py", "?? src/new.py"]
    files = demo.files()
    assert b"+better 3\n" in files["patch-0.patch"]
    assert b"added 10" not in files["patch-1.patch"]
    assert b"+and 18\n" in files["patch-2.patch"]
    same_as_git_am(demo)
    demo.stack.ok("undo")
    assert state_of(demo) == before
    demo.stack.ok("undo", "--redo")
    assert (demo.tree / "src/f0.py").read_bytes() == data
    assert demo.files() == files


def test_lines_of_two_patches_and_of_none_are_said_and_left(demo: Demo) -> None:
    demo.write({"src/f2.py": numbered(20).replace(b"line 5\n", b"five\n")})
    output = demo.stack("refresh", "--absorb")
    assert output.code == 1
    assert "no patch touched these lines" in output.out
    text = demo.git("diff")
    data = (demo.tree / "src/f0.py").read_bytes()
    head, tail = data.index(b"added 3\n"), data.index(b"added 10\n")
    demo.write({"src/f0.py": data[:head] + b"one\n" + data[tail + 9 :]})
    output = demo.stack("refresh", "--absorb")
    assert output.code == 1
    assert "patch-0 and patch-1 touched these lines" in output.out
    assert text in demo.git("diff")


def test_everything_absorbed_leaves_the_workspace_clean(demo: Demo) -> None:
    demo.write({"src/f1.py": b"other\nmore\n"})
    assert absorbed(demo) == [("src/f1.py", 2, "other")]
    assert demo.git("status", "--porcelain") == ""
    same_as_git_am(demo)
    assert demo.stack("export", "--check").code == 0


def test_a_whole_file_goes_where_one_patch_alone_touched_it(demo: Demo) -> None:
    (demo.tree / "src/f1.py").unlink()
    assert absorbed(demo) == [("src/f1.py", 1, "other")]
    assert b"deleted file mode" in demo.files()["other.patch"]
    same_as_git_am(demo)
