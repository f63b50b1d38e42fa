"""Diffs without ids that fit more than one state: what shows which was meant, else it is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import numbered
from tests.flows.test_pile_cases import changed
from tests.support.piles import Pile

APP = numbered(60)
PATH = "pkg/app.py"


def bare(diff: bytes) -> bytes:
    """A diff without its ids."""
    lines = diff.splitlines(keepends=True)
    return b"".join(line for line in lines if not line.startswith(b"index "))


def of(diff: bytes, name: bytes) -> bytes:
    """The sections of one file."""
    parts = diff.split(b"diff --git ")[1:]
    return b"".join(b"diff --git " + part for part in parts if name in part.split(b"\n")[0])


def test_a_snapshot_of_what_stands_is_not_put_in_once_more(tmp_path: Path) -> None:
    """Its hunk would fit again, in the very line that it names."""
    text = b"p\nq\n" + APP
    pile = Pile(tmp_path, {PATH: text, "pkg/lib.py": APP})
    pile.snap("01.patch", {PATH: b"p\nq\np\nq\n" + APP})
    pile.edit({"pkg/lib.py": changed(APP, 30)})
    pile.add("02.patch", bare(pile.snapshot("-U1")))
    assert pile.results() == {"01.patch": "placed", "02.patch": "placed"}
    assert pile.applied() == pile.tree()


def test_numbers_that_are_right_on_the_base_alone_show_a_snapshot(tmp_path: Path) -> None:
    """Somebody turned the file back in between, and did something else."""
    pile = Pile(tmp_path, {PATH: APP})
    pile.snap("01.patch", {PATH: b"one\ntwo\nthree\n" + APP})
    pile.edit({PATH: changed(APP, 50)})
    pile.add("02.patch", bare(pile.snapshot()))
    rows = pile.rows()
    assert rows["02.patch"]["result"] == "placed"
    assert "takes back 3 lines" in rows["02.patch"]["reason"]
    assert pile.file(PATH) == changed(APP, 50)


def test_numbers_that_are_right_on_what_stands_alone_show_an_increment(tmp_path: Path) -> None:
    pile = Pile(tmp_path, {PATH: APP})
    pile.snap("01.patch", {PATH: b"one\ntwo\nthree\n" + APP})
    pile.step("02.patch", {PATH: b"one\ntwo\nthree\n" + changed(APP, 50)})
    pile.add("02.patch", bare((pile.inputs / "02.patch").read_bytes()))
    assert pile.results() == {"01.patch": "placed", "02.patch": "placed"}
    assert pile.applied() == pile.tree()


@pytest.mark.parametrize("numbers", [True, False])
def test_where_nothing_shows_it_the_likelier_is_taken_and_said(
    tmp_path: Path, numbers: bool
) -> None:
    pile = Pile(tmp_path, {PATH: APP})
    pile.snap("01.patch", {PATH: changed(APP, 50)})
    hunk = b"@@ -9,3 +9,3 @@" if numbers else b"@@"
    pile.add("02.patch", b"--- a/pkg/app.py\n+++ b/pkg/app.py\n" + hunk + (
        b"\n line 9\n-line 10\n+LINE 10\n line 11\n"
    ))
    output = pile.stack("import", pile.inputs)
    assert output.code == 1
    assert "1 could have been meant otherwise" in output.err + output.out
    text = (pile.stack.folder / "patches/imported.toml").read_text()
    assert "taken as made on what stood, but it fits the base as well" in text
    assert pile.file(PATH) == changed(APP, 10, 50)
    # The user knows, and says it: taken so, without a doubt.
    for kind, lines in (("increment", (10, 50)), ("snapshot", (10,))):
        options = ("--kind", f"../pile/02.patch={kind}")
        assert "hint: stack drop 02, then" in pile.stack("import", pile.inputs, *options).err
        pile.stack.ok("drop", "02")
        said = pile.stack.ok("import", pile.inputs, *options)
        assert "otherwise" not in said.err + said.out
        assert pile.file(PATH) == changed(APP, *lines)


@pytest.mark.parametrize("kind", ["snapshot", "increment"])
def test_a_kind_that_a_diff_cannot_be_is_said(tmp_path: Path, kind: str) -> None:
    pile = Pile(tmp_path, {PATH: APP})
    pile.snap("01.patch", {PATH: changed(APP, 10)})
    old = b"LINE 10" if kind == "snapshot" else b"line 10"  # is not on the base, or does not stand
    pile.add("02.patch", (
        b"--- a/pkg/app.py\n+++ b/pkg/app.py\n@@ -9,3 +9,3 @@\n line 9\n-%s\n+ten\n line 11\n" % old
    ))
    row = pile.rows("--kind", f"{pile.inputs}/02.patch={kind}", code=1)["02.patch"]
    assert (row["result"], row["unsure"]) == ("placed", True)
    assert row["reason"].endswith(f"it fits nothing else, though --kind says {kind}")


def test_a_kind_is_said_of_an_input_that_is_there(tmp_path: Path) -> None:
    pile = Pile(tmp_path, {PATH: APP})
    pile.snap("01.patch", {PATH: changed(APP, 50)})
    wrong = pile.stack("import", pile.inputs, "--kind", "02.patch=snapshot")
    assert (wrong.code, "no input `02.patch`" in wrong.err) == (2, True)
    wrong = pile.stack("import", pile.inputs, "--kind", "01.patch=maybe")
    assert "`01.patch=maybe` is no FILE=snapshot or FILE=increment" in wrong.err
    wrong = pile.stack("import", pile.inputs, "--as", "mails", "--kind", "01.patch=snapshot")
    assert "--kind is for piles" in wrong.err


@pytest.mark.parametrize("back", [True, False])
def test_a_later_input_that_names_the_state_shows_which_it_was(tmp_path: Path, back: bool) -> None:
    pile = Pile(tmp_path, {PATH: APP})
    pile.snap("01.patch", {PATH: changed(APP, 50)})
    pile.add("02.patch", (
        b"--- a/pkg/app.py\n+++ b/pkg/app.py\n@@ -9,3 +9,3 @@\n"
        b" line 9\n-line 10\n+LINE 10\n line 11\n"
    ))
    lines = (10,) if back else (10, 50)
    pile.edit({PATH: changed(APP, *lines)})
    pile.step("03.patch", {PATH: changed(APP, *lines, 30)})
    assert set(pile.results().values()) == {"placed"}
    assert pile.applied() == pile.tree()


@pytest.mark.parametrize("back", [True, False])
def test_one_file_of_a_diff_shows_it_for_all(tmp_path: Path, back: bool) -> None:
    """Of `lib.py` it is plain: its hunk stands in the base, or in what stood, only."""
    pile = Pile(tmp_path, {PATH: APP, "pkg/lib.py": APP})
    pile.snap("01.patch", {PATH: changed(APP, 50), "pkg/lib.py": changed(APP, 10)})
    if back:
        pile.edit({PATH: changed(APP, 10), "pkg/lib.py": APP.replace(b"line 10\n", b"ten\n")})
        pile.add("02.patch", bare(pile.snapshot()))
    else:
        pile.step("02.patch", {
            PATH: changed(APP, 10, 50), "pkg/lib.py": changed(APP, 10).replace(b"LINE 10", b"ten"),
        })
        pile.add("02.patch", bare((pile.inputs / "02.patch").read_bytes()))
    assert pile.results() == {"01.patch": "placed", "02.patch": "placed"}
    assert pile.applied() == pile.tree()


@pytest.mark.parametrize("kind", ["mode", "rename"])
def test_a_mode_or_a_name_alone_says_nothing_of_the_content(tmp_path: Path, kind: str) -> None:
    """`git diff` writes no ids for them, so that both could be meant; another file shows it."""
    pile = Pile(tmp_path, {PATH: APP, "pkg/lib.py": APP})
    pile.snap("01.patch", {PATH: changed(APP, 50)})
    pile.edit({PATH: APP})
    if kind == "mode":
        (pile.upstream.folder / PATH).chmod(0o755)
        diff = pile.snapshot()
    else:
        pile.edit({PATH: None, "pkg/moved.py": APP})
        diff = pile.snapshot("-M")
    pile.add("02.patch", diff)
    rows = pile.rows("--dry-run", code=1)
    assert rows["02.patch"]["unsure"]
    assert "nothing shows which was meant" in rows["02.patch"]["reason"]
    pile.edit({"pkg/lib.py": changed(APP, 30)})
    pile.add("02.patch", pile.snapshot("-M"))
    pile.snap("00.patch", {"pkg/lib.py": changed(APP, 5)})
    pile.edit({"pkg/lib.py": changed(APP, 30)})
    pile.add("00.patch", of((pile.inputs / "00.patch").read_bytes(), b"lib.py"))
    rows = pile.rows()
    assert not rows["02.patch"]["unsure"]
    assert pile.applied() == pile.tree()


def test_what_stands_and_would_fit_again_stands(tmp_path: Path) -> None:
    """What is added at the end of a file has no context behind it, so it fits there again."""
    pile = Pile(tmp_path, {PATH: APP})
    pile.snap("01.patch", {"pkg/own.py": numbered(20)})
    pile.snap("02.patch", {"pkg/own.py": numbered(20) + b"more\n"})
    pile.add("03.patch", (
        b"--- a/pkg/own.py\n+++ b/pkg/own.py\n@@ -19,2 +19,3 @@\n line 19\n line 20\n+more\n"
    ))
    row = pile.rows(code=1)["03.patch"]
    assert (row["result"], row["unsure"]) == ("contained", True)
    assert pile.applied() == pile.tree()


def test_nor_does_one_whose_file_was_turned_back_to_the_base(tmp_path: Path) -> None:
    """By its id it would fit the base, which stands again; what it was made after is past."""
    twice = b"head\n" + b"a\nb\nc\n" * 2
    pile = Pile(tmp_path, {"pkg/twice.py": twice, PATH: APP})
    pile.edit({PATH: changed(APP, 20)})
    pile.add("01.patch", pile.snapshot() + (
        b"--- a/pkg/twice.py\n+++ b/pkg/twice.py\n@@\n a\n-b\n+B\n c\n"
    ))
    pile.snap("02.patch", {PATH: changed(APP, 40)})
    pile.step("03.patch", {PATH: APP, "pkg/twice.py": b"head\na\nB\nc\na\nbb\nc\n"})
    assert pile.rows(code=1)["01.patch"]["result"] == "unplaceable"
    assert pile.applied() == pile.tree()


@pytest.mark.parametrize("own", [True, False])
def test_a_snapshot_that_had_no_place_in_its_turn_takes_nothing_back_later(
    tmp_path: Path, own: bool
) -> None:
    """Its hunk without numbers stands twice, until the third input makes one of the places go."""
    twice = b"head\n" + b"a\nb\nc\n" * 2
    path = "pkg/own.py" if own else PATH
    pile = Pile(tmp_path, {"pkg/twice.py": twice, PATH: APP})
    pile.snap("01.patch", {path: changed(APP, 20)})
    pile.edit({path: changed(APP, 20, 30)})
    pile.add("02.patch", bare(pile.snapshot()) + (
        b"--- a/pkg/twice.py\n+++ b/pkg/twice.py\n@@\n a\n-b\n+B\n c\n"
    ))
    pile.snap("03.patch", {
        path: changed(APP, 20, 40), "pkg/twice.py": b"head\na\nB\nc\na\nbb\nc\n",
    })
    rows = pile.rows(code=1)
    assert rows["02.patch"]["result"] == "unplaceable"
    assert pile.applied() == pile.tree()


def test_a_series_whose_second_patch_fits_the_base_only_is_said_to(tmp_path: Path) -> None:
    pile = Pile(tmp_path, {PATH: APP})
    head = b"--- a/pkg/app.py\n+++ b/pkg/app.py\n@@ -4,3 +4,3 @@\n line 4\n"
    pile.add("one.diff", head + b"-line 5\n+LINE 5\n line 6\n")
    pile.add("two.diff", head + b"-line 5\n+five\n line 6\n")
    pile.add("series", b"one.diff\ntwo.diff\n")
    row = pile.rows(code=1)["two.diff"]
    assert (row["result"], row["unsure"]) == ("placed", True)
    assert "it fits the base only, though a series or mail is made on those" in row["reason"]
    assert pile.file(PATH) == APP.replace(b"line 5\n", b"five\n")


@pytest.mark.parametrize(("context", "lost"), [(2, 1), (2, 2), (3, 1), (3, 2)])
def test_empty_context_that_was_stripped_off_the_end_of_a_diff_comes_back(
    tmp_path: Path, context: int, lost: int
) -> None:
    """The counts ask for it, and the file has it there; words that are lost are a loss."""
    text = b"".join(b"def f%d():\n    return %d\n    # end\n\n" % (n, n) for n in range(9))
    pile = Pile(tmp_path, {PATH: text})
    pile.edit({PATH: text.replace(b"return 4", b"return 44")})
    diff = bare(pile.snapshot(f"-U{context}"))
    pile.add("01.patch", b"".join(diff.splitlines(keepends=True)[:-lost]).rstrip(b"\n"))
    if (context, lost) == (2, 1):
        assert diff.endswith(b"+    return 44\n     # end\n \n")
        assert pile.results() == {"01.patch": "placed"}
        assert pile.applied() == pile.tree()
    else:
        row = pile.rows(code=1)["01.patch"]
        assert "ends before the lines that its header counts" in row["reason"]
