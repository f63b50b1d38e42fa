"""Patches that move: every case in which other tools lose, misplace or break a change."""

from __future__ import annotations

from pathlib import Path

import pytest

from stack.model.line.outcome import Outcome
from tests.conftest import numbered
from tests.support.carrying import Commits, Files, Moving

BLOCK = b"begin\n  a = 1\n  b = 2\n  c = 3\nend\n"


def moved(tmp_path: Path, base: Files, patches: Commits, upstream: Commits) -> Moving:
    return Moving(tmp_path / "m", base, patches, upstream)


def test_the_third_of_six_equal_blocks_stays_the_third(tmp_path: Path) -> None:
    changed = BLOCK * 2 + BLOCK.replace(b"b = 2", b"b = 22") + BLOCK * 3
    case = moved(
        tmp_path,
        {"f": BLOCK * 6},
        [("change", {"f": changed})],
        [("on top", {"f": b"x\ny\nz\n" + BLOCK * 6})],
    )
    step, files = case.one()
    assert step.outcome is Outcome.CLEAN
    assert files["f"] == b"x\ny\nz\n" + changed


def test_a_change_follows_its_class_among_ten_alike(tmp_path: Path) -> None:
    def classes(count: int, special: int = -1) -> bytes:
        return b"".join(
            b"class C%d(Base):\n    %s\n\n" % (n, b"limit = 9" if n == special else b"limit = 1")
            for n in range(count)
        )

    more = b"class A(Base):\n    limit = 1\n\nclass B(Base):\n    limit = 1\n\n"
    case = moved(
        tmp_path,
        {"f.py": classes(10)},
        [("sixth", {"f.py": classes(10, 5)})],
        [("two above", {"f.py": more + classes(10)})],
    )
    step, files = case.one()
    assert step.outcome is Outcome.CLEAN
    assert files["f.py"] == more + classes(10, 5)
    assert step.suspects == ()


def test_what_upstream_has_wholly_is_upstreamed_and_never_reversed(tmp_path: Path) -> None:
    new = numbered(20).replace(b"line 5\n", b"line five\n")
    case = moved(
        tmp_path,
        {"f": numbered(20)},
        [("five", {"f": new})],
        [("five, and more", {"f": new, "g": b"g\n"})],
    )
    step, files = case.one()
    assert step.outcome is Outcome.UPSTREAMED
    assert files["f"] == new


def test_what_upstream_has_in_half_names_the_hunk(tmp_path: Path) -> None:
    half = numbered(40).replace(b"line 5\n", b"line five\n")
    whole = half.replace(b"line 30\n", b"line thirty\n")
    case = moved(
        tmp_path,
        {"f": numbered(40)},
        [("both", {"f": whole})],
        [("first half", {"f": b"top\n" + half})],
    )
    step, files = case.one()
    assert step.outcome is Outcome.MODIFIED
    assert files["f"] == b"top\n" + whole
    assert [str(one) for one in step.shrunk] == ["f: hunk 1 of 2 is there already"]


def test_a_method_that_upstream_adds_too_is_dead_code_and_said(tmp_path: Path) -> None:
    head, tail = (
        b"class K:\n    def a(self):\n        return 1\n\n",
        b"    def z(self):\n        return 26\n",
    )
    mine = b"    def fast(self):\n        return 9\n\n"
    theirs = b"\n    def fast(self):\n        return 0\n"
    case = moved(
        tmp_path,
        {"k.py": head + tail},
        [("fast", {"k.py": head + mine + tail})],
        [("fast too", {"k.py": head + tail + theirs})],
    )
    step, files = case.one()
    assert step.outcome is Outcome.CLEAN
    assert files["k.py"] == head + mine + tail + theirs
    assert len(step.suspects) == 1
    assert "`K.fast` at line 5 is shadowed" in step.suspects[0]


def test_a_condition_that_upstream_rewrote_is_a_conflict_not_a_line_above_an_if(
    tmp_path: Path,
) -> None:
    before = (
        b"def f(x):\n    y = 0\n    if (\n        not a(x)\n        and not b(x)\n    ):\n"
        b"        y = 1\n    return y\n"
    )
    mine = before.replace(
        b"        and not b(x)\n", b"        and not b(x)\n        and not mine(x)\n"
    )
    theirs = before.replace(b"        not a(x)\n        and not b(x)\n", b"        c(x)\n")
    case = moved(tmp_path, {"f.py": before}, [("mine", {"f.py": mine})], [("c", {"f.py": theirs})])
    step, _ = case.one()
    assert step.outcome is Outcome.CONFLICT
    (trouble,) = step.trouble
    assert trouble.path == "f.py"
    (region,) = trouble.regions
    assert b"mine(x)" in region.patch
    assert b"c(x)" in region.target


def test_a_renamed_file_is_followed(tmp_path: Path) -> None:
    old = numbered(40)
    new = old.replace(b"line 9\n", b"line nine\n")
    case = moved(
        tmp_path,
        {"pkg/old.py": old},
        [("nine", {"pkg/old.py": new})],
        [("move", {"pkg/old.py": None, "lib/new.py": old.replace(b"line 30\n", b"thirty\n")})],
    )
    step, files = case.one()
    assert step.outcome is Outcome.CLEAN
    assert step.moved == {"pkg/old.py": "lib/new.py"}
    assert files["lib/new.py"] == new.replace(b"line 30\n", b"thirty\n")
    assert "pkg/old.py" not in files


@pytest.mark.parametrize("edited", [False, True])
def test_what_the_patch_renames_takes_along_what_was_changed_there(
    tmp_path: Path, edited: bool
) -> None:
    mine = numbered(40).replace(b"line 30\n", b"mine\n") if edited else numbered(40)
    theirs = numbered(40).replace(b"line 5\n", b"theirs\n")
    patches = [("rename", {"old": None, "folder/new": mine, "other": numbered(3)})]
    case = moved(tmp_path, {"old": numbered(40)}, patches, [("edit", {"old": theirs})])
    step, files = case.one()
    assert step.outcome is Outcome.CLEAN
    assert "old" not in files
    assert files["folder/new"] == mine.replace(b"line 5\n", b"theirs\n")


def test_a_dispute_in_what_the_patch_renames_is_asked_at_its_new_name(tmp_path: Path) -> None:
    mine, theirs = (numbered(40).replace(b"line 5\n", word) for word in (b"mine\n", b"theirs\n"))
    patches = [("rename", {"old": None, "new": mine})]
    case = moved(tmp_path, {"old": numbered(40)}, patches, [("edit", {"old": theirs})])
    step, _ = case.one()
    assert step.outcome is Outcome.CONFLICT
    (trouble,) = step.trouble
    assert (trouble.path, len(trouble.regions)) == ("new", 1)


def test_another_file_in_the_place_of_one_that_went_is_no_rename(tmp_path: Path) -> None:
    theirs = numbered(40).replace(b"line 5\n", b"theirs\n")
    patches = [("replace", {"old": None, "new": b"quite\nanother\nfile\n"})]
    case = moved(tmp_path, {"old": numbered(40)}, patches, [("edit", {"old": theirs})])
    step, _ = case.one()
    assert step.outcome is Outcome.CONFLICT
    assert "the patch deletes it" in step.trouble[0].why


def test_a_renamed_file_without_the_class_is_a_conflict_that_says_where_it_went(
    tmp_path: Path,
) -> None:
    rest = b"".join(b"def helper_%d(value):\n    return value + %d\n\n" % (n, n) for n in range(20))
    norm = (
        b"class TensorParallelNorm:\n    def forward(self, hidden_states):\n"
        b"        variance = hidden_states.pow(2).mean()\n"
        b"        return hidden_states * variance\n\n"
    )
    mine = norm.replace(
        b"variance = hidden_states.pow(2)", b"variance = hidden_states.contiguous().pow(2)"
    )
    case = moved(
        tmp_path,
        {"layers/attn.py": rest + norm},
        [("contiguous", {"layers/attn.py": rest + mine})],
        [
            (
                "split",
                {"layers/attn.py": None, "layers/linear/attn.py": rest, "layers/norms/tp.py": norm},
            )
        ],
    )
    step, _ = case.one()
    assert step.outcome is Outcome.CONFLICT
    (trouble,) = step.trouble
    assert trouble.path == "layers/linear/attn.py"
    assert trouble.why.endswith("the lines that the patch changes stand in layers/norms/tp.py now")


def test_a_file_that_is_gone_for_good_is_a_conflict(tmp_path: Path) -> None:
    case = moved(
        tmp_path,
        {"f": numbered(9), "g": b"g\n"},
        [("x", {"f": b"x\n" + numbered(9)})],
        [("gone", {"f": None})],
    )
    step, _ = case.one()
    assert step.outcome is Outcome.CONFLICT
    assert [(one.path, one.why) for one in step.trouble] == [("f", "the file is gone there")]


def test_a_new_file_that_imports_what_moved_is_suspect(tmp_path: Path) -> None:
    mine = b"from pkg.ops import gemm\n\n\ndef fast():\n    return gemm()\n"
    case = moved(
        tmp_path,
        {"pkg/__init__.py": b"", "pkg/ops.py": b"def gemm(): ...\n"},
        [("fast", {"pkg/fast.py": mine})],
        [("rename", {"pkg/ops.py": b"def matmul(): ...\n"})],
    )
    step, files = case.one()
    assert step.outcome is Outcome.CLEAN
    assert files["pkg/fast.py"] == mine
    assert step.suspects == ("pkg/fast.py: line 1: imports `gemm`, which pkg.ops does not have",)


@pytest.mark.parametrize(
    ("mine", "theirs", "why"),
    [
        ({"n": b"mine\n"}, {"n": b"theirs\n"}, "both sides made this file"),
        (
            {"f": None},
            {"f": b"x\n" + numbered(9)},
            "the patch deletes it, and it was changed there",
        ),
        ({"b": b"\0\1mine"}, {"b": b"\0\1theirs"}, "binary on both sides: no lines to merge"),
    ],
)
def test_what_cannot_be_merged_says_why(
    tmp_path: Path, mine: Files, theirs: Files, why: str
) -> None:
    base = {"f": numbered(9), "b": b"\0\1\2"}
    step, _ = moved(tmp_path, base, [("mine", mine)], [("theirs", theirs)]).one()
    assert step.outcome is Outcome.CONFLICT
    assert [one.why for one in step.trouble] == [why]


def test_modes_travel_with_contents(tmp_path: Path) -> None:
    case = moved(
        tmp_path,
        {"tool": numbered(9)},
        [("x", {"tool": numbered(9) + b"more\n"})],
        [("y", {"tool": b"first\n" + numbered(9)})],
    )
    case.repo.git("checkout", "-q", "main")
    case.repo.git("update-index", "--chmod=+x", "tool")
    case.repo.git("commit", "-qm", "executable")
    case.repo.git("tag", "-f", "v2")
    step, _ = case.one()
    assert step.commit
    assert step.tree
    listed = case.git.run("ls-tree", "v2").text
    assert "100755" in listed
    assert step.outcome is Outcome.CLEAN


def test_behind_a_conflict_the_patches_own_lines_are_assumed(tmp_path: Path) -> None:
    one = numbered(30).replace(b"line 5\n", b"mine\n")
    two = one.replace(b"line 20\n", b"twenty\n")
    case = moved(
        tmp_path,
        {"f": numbered(30)},
        [("one", {"f": one}), ("two", {"f": two})],
        [("theirs", {"f": numbered(30).replace(b"line 5\n", b"theirs\n")})],
    )
    steps, files = case.carry()
    assert [step.outcome for step in steps] == [Outcome.CONFLICT, Outcome.CLEAN]
    assert files["f"] == two
    steps, _ = case.carry(on_conflict="stop")
    assert [step.outcome for step in steps] == [Outcome.CONFLICT, Outcome.NOT_TRIED]
