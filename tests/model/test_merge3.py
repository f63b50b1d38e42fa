"""Three-way merges of one file: clean where both sides allow it, regions where they do not."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stack.model.diff.linediff import split
from stack.model.diff.merge3 import Region, merge

BASE = b"".join(b"%d\n" % n for n in range(1, 21))


def swap(text: bytes, old: bytes, new: bytes) -> bytes:
    assert text.count(old) == 1
    return text.replace(old, new)


def test_changes_of_different_places_both_come_in() -> None:
    done = merge(BASE, swap(BASE, b"3\n4\n", b"3\nA\n"), swap(BASE, b"17\n", b"B\n"))
    assert done.data == swap(swap(BASE, b"3\n4\n", b"3\nA\n"), b"17\n", b"B\n")
    assert not done.regions
    assert not done.there


def test_the_same_change_on_both_sides_is_there_once_and_counted() -> None:
    changed = swap(BASE, b"8\n9\n", b"8\nnine\n")
    done = merge(BASE, changed, swap(changed, b"17\n", b"B\n"))
    assert done.data == swap(changed, b"17\n", b"B\n")
    assert done.there == ((8, 9, 8, 9),)


def test_a_conflict_is_a_region_with_its_three_sides_and_its_line() -> None:
    done = merge(BASE, swap(BASE, b"8\n9\n", b"8\nX\n"), swap(BASE, b"8\n9\n", b"8\nY\n"))
    assert [(r.base, r.target, r.patch, r.line) for r in done.regions] == [
        (b"9\n", b"X\n", b"Y\n", 9)
    ]
    shown = b"<<<<<<< target\nX\n||||||| before the patch\n9\n=======\nY\n>>>>>>> patch\n"
    assert done.data == swap(BASE, b"8\n9\n", b"8\n" + shown)


def test_an_answer_takes_the_place_of_its_region_wherever_it_stands() -> None:
    known = {Region(base=b"9\n", target=b"X\n", patch=b"Y\n").key: b"answer\n"}
    head = b"new\n" * 3
    done = merge(
        BASE,
        head + swap(BASE, b"8\n9\n", b"8\nX\n"),
        swap(BASE, b"8\n9\n", b"8\nY\n"),
        answer=lambda region: known.get(region.key),
    )
    assert done.data == head + swap(BASE, b"8\n9\n", b"8\nanswer\n")
    assert not done.regions
    assert len(done.answered) == 1


def test_the_key_is_the_question_and_not_its_place() -> None:
    one = Region(base=b"a", target=b"b", patch=b"c", line=3)
    assert one.key == Region(base=b"a", target=b"b", patch=b"c", line=9).key
    others = [(b"ab", b"", b"c"), (b"a", b"c", b"b"), (b"", b"ab", b"c"), (b"a", b"bc", b"")]
    assert len({one.key, *(Region(base=x, target=y, patch=z).key for x, y, z in others)}) == 5


def test_what_both_sides_agree_on_is_not_part_of_a_conflict() -> None:
    mine = swap(BASE, b"8\n9\n10\n", b"same\nX\n10\n")
    yours = swap(BASE, b"8\n9\n10\n", b"same\nY\n10\n")
    (region,) = merge(BASE, mine, yours).regions
    assert (region.target, region.patch) == (b"X\n", b"Y\n")


def test_changes_that_touch_are_a_conflict() -> None:
    done = merge(BASE, swap(BASE, b"8\n9\n", b"8\nX\n"), swap(BASE, b"9\n10\n", b"9\nY\n"))
    assert len(done.regions) == 1


def test_the_right_one_of_equal_blocks_is_changed() -> None:
    """Seven tools put this change into the second block, without a word."""
    block = b"begin\n  a = 1\n  b = 2\n  c = 3\nend\n"
    base = block * 6
    patch = block * 2 + block.replace(b"b = 2", b"b = 22") + block * 3
    done = merge(base, b"x\ny\nz\n" + base, patch)
    assert done.data == b"x\ny\nz\n" + patch
    assert not done.regions


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_missing_last_newline_is_kept(end: bytes) -> None:
    base = b"a\nb\nc\nd\nz" + end
    done = merge(base, base.replace(b"a", b"A"), base.replace(b"z", b"Z"))
    assert done.data == b"A\nb\nc\nd\nZ" + end


def test_markers_of_a_region_without_a_last_newline_stand_on_their_own_lines() -> None:
    done = merge(b"a\nz", b"a\nX", b"a\nY")
    assert done.data.splitlines()[1:] == [
        b"<<<<<<< target",
        b"X",
        b"||||||| before the patch",
        b"z",
        b"=======",
        b"Y",
        b">>>>>>> patch",
    ]


EDITS = st.lists(
    st.tuples(
        st.integers(0, 19),
        st.integers(0, 3),
        st.lists(st.sampled_from([b"p\n", b"q\n", b"r\n"]), max_size=3),
    ),
    max_size=3,
)


def edited(edits: list[tuple[int, int, list[bytes]]], mark: bytes) -> bytes:
    lines = split(BASE)
    for at, gone, new in sorted(edits, key=lambda edit: -edit[0]):
        lines[at : at + gone] = [mark + line for line in new]
    return b"".join(lines)


@settings(max_examples=60)
@given(left=EDITS, right=EDITS)
def test_every_clean_merge_is_the_one_of_git(
    left: list[tuple[int, int, list[bytes]]],
    right: list[tuple[int, int, list[bytes]]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    mine, yours = edited(left, b"m"), edited(right, b"y")
    done = merge(BASE, mine, yours)
    if done.regions:
        return
    folder: Path = tmp_path_factory.mktemp("merge")
    for name, data in (("base", BASE), ("mine", mine), ("yours", yours)):
        (folder / name).write_bytes(data)
    said = subprocess.run(
        ["git", "merge-file", "-p", "mine", "base", "yours"],
        cwd=folder,
        capture_output=True,
        check=False,
    )
    assert said.returncode == 0
    assert said.stdout == done.data
