"""Hunks in files: exact where they were made, elsewhere unambiguous or refused."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stack.model.diff.apply import Misfit, Placed, apply_hunks
from stack.model.diff.parse import parse_diff
from stack.model.objects import object_id


def git_diff(old: bytes, new: bytes, folder: Path, context: int = 3) -> bytes:
    """What `git diff` says between two contents of the file `f`."""
    (folder / "old").write_bytes(old)
    (folder / "new").write_bytes(new)
    done = subprocess.run(
        ["git", "diff", "--no-index", "--full-index", f"-U{context}", "old", "new"],
        cwd=folder, capture_output=True, check=False,
    )
    return done.stdout.replace(b"a/old", b"a/f").replace(b"b/new", b"b/f")


def git_apply(data: bytes, diff: bytes, folder: Path) -> bytes | None:
    """What `git apply` makes of a file; None where it refuses."""
    (folder / "f").write_bytes(data)
    env = {"PATH": "/usr/bin:/bin", "GIT_CEILING_DIRECTORIES": str(folder.parent), "HOME": "/none"}
    done = subprocess.run(
        ["git", "apply", "-p1"], cwd=folder, input=diff, env=env, check=False, capture_output=True
    )
    return (folder / "f").read_bytes() if done.returncode == 0 else None


def ours(data: bytes, diff: bytes, *, old: bytes | None = None) -> Placed | Misfit:
    (file,) = parse_diff(diff, "x.patch")
    return apply_hunks(data, file.hunks, old_id=object_id("blob", old) if old is not None else None)


def blocks(count: int) -> bytes:
    return b"".join(b"begin\n  a\n  b\n  c\nend\n" for _ in range(count))


@pytest.mark.parametrize("context", [0, 1, 3])
def test_equal_blocks_are_told_apart_in_the_original_only(context: int, tmp_path: Path) -> None:
    """Seven tools, `git am -3` among them, edit the wrong one of six equal blocks after a drift."""
    old = blocks(6)
    lines = old.splitlines(keepends=True)
    lines[11] = b"  B\n"
    new = b"".join(lines)
    diff = git_diff(old, new, tmp_path, context)
    assert ours(old, diff, old=old) == Placed(new, (0,))
    drifted = b"x\ny\nz\n" + old
    refused = ours(drifted, diff, old=old)
    assert isinstance(refused, Misfit)
    assert re.search(r"in [56] places .*ambiguous", refused.why)
    if context == 3:
        assert git_apply(drifted, diff, tmp_path) not in (None, b"x\ny\nz\n" + new)  # it is wrong
    same_place = ours(old + b"more\n", diff, old=old)
    assert isinstance(same_place, Misfit), "no offset, but another file: still a guess"


def test_one_other_place_is_an_offset(tmp_path: Path) -> None:
    old = b"".join(b"line %d\n" % n for n in range(30))
    new = old.replace(b"line 9\n", b"LINE 9\n")
    diff = git_diff(old, new, tmp_path)
    assert ours(b"top\n" + old, diff, old=old) == Placed(b"top\n" + new, (1,))
    assert ours(old[len(b"line 0\n") :], diff, old=old) == Placed(new[len(b"line 0\n") :], (-1,))


def test_beginning_and_end_are_anchors(tmp_path: Path) -> None:
    old = b"a\nb\nc\n"
    first = git_diff(old, b"X\n" + old, tmp_path)
    last = git_diff(old, old + b"X\n", tmp_path)
    for diff, data in ((first, b"new\n" + old), (last, old + b"new\n")):
        assert isinstance(ours(data, diff, old=old), Misfit)
        assert git_apply(data, diff, tmp_path) is None
    lines = b"".join(b"line %d\n" % n for n in range(9))
    last = git_diff(lines, lines + b"X\n", tmp_path)
    assert ours(b"new\n" + lines, last, old=lines) == Placed(b"new\n" + lines + b"X\n", (1,))


def test_a_new_file_and_an_emptied_one(tmp_path: Path) -> None:
    diff = git_diff(b"", b"a\nb", tmp_path)
    assert ours(b"", diff, old=b"") == Placed(b"a\nb", (0,))
    assert isinstance(ours(b"other\n", diff, old=b""), Misfit)
    diff = git_diff(b"a\nb", b"", tmp_path)
    assert ours(b"a\nb", diff, old=b"a\nb") == Placed(b"", (0,))


def test_what_stands_there_instead_is_told(tmp_path: Path) -> None:
    old = b"".join(b"line %d\n" % n for n in range(12))
    diff = git_diff(old, old.replace(b"line 6\n", b"six\n"), tmp_path)
    found = ours(old.replace(b"line 5\n", b"five\n"), diff, old=old)
    assert isinstance(found, Misfit)
    assert (found.hunk, found.at) == (1, 6)
    assert found.expected[0] == b"line 5\n"
    assert found.found[0] == b"five\n"


def test_line_endings_are_named_as_the_cause(tmp_path: Path) -> None:
    old = b"a\nb\nc\n"
    diff = git_diff(old, b"a\nB\nc\n", tmp_path)
    found = ours(old.replace(b"\n", b"\r\n"), diff, old=old)
    assert isinstance(found, Misfit)
    assert "line endings" in found.why


line = st.sampled_from([b"a\n", b"b\n", b"  c\n", b"\n", b"}\n", b"x = 1\n", b"y\r\n"])
text = st.lists(line, max_size=24)


@st.composite
def edited(draw: st.DrawFn, lines: list[bytes]) -> list[bytes]:
    out = list(lines)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(out)))
        stop = min(len(out), at + draw(st.integers(0, 3)))
        out[at:stop] = draw(st.lists(line | st.just(b"new\n"), max_size=3))
    return out


@settings(max_examples=150)
@given(st.data())
def test_in_the_original_it_is_what_git_makes_of_it(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("x", numbered=True)
    lines = data.draw(text)
    old = b"".join(lines)[: None if data.draw(st.booleans()) else -1]
    new = b"".join(data.draw(edited(lines)))[: None if data.draw(st.booleans()) else -1]
    diff = git_diff(old, new, folder, data.draw(st.sampled_from([1, 2, 3, 7])))
    if not diff:
        return
    assert ours(old, diff, old=old) == Placed(new, (0,) * diff.count(b"\n@@ -"))


@settings(max_examples=200)
@given(st.data())
def test_in_a_drifted_file_it_is_right_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Drift adds only before and after: the right answer is known, and no other may come out."""
    folder = tmp_path_factory.mktemp("x", numbered=True)
    lines = data.draw(text)
    old, new = b"".join(lines), b"".join(data.draw(edited(lines)))
    diff = git_diff(old, new, folder)
    if not diff:
        return
    before, after = (b"".join(data.draw(st.lists(line, max_size=8))) for _ in range(2))
    found = ours(before + old + after, diff, old=old)
    if isinstance(found, Placed):
        assert found.data == before + new + after
