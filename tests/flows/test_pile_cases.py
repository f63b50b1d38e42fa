"""The sixteen ways in which a real pile is hard, each with content of our own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import numbered
from tests.support.piles import Pile

INIT = {"pkg/__init__.py": b""}
APP = numbered(60)


def changed(data: bytes, *numbers: int) -> bytes:
    for number in numbers:
        data = data.replace(b"line %d\n" % number, b"LINE %d\n" % number)
    return data


def test_1_a_new_file_whose_hunk_declares_fewer_lines_than_it_has_is_never_truncated(
    tmp_path: Path,
) -> None:
    pile = Pile(tmp_path, INIT)
    pile.add("01-new.patch", (
        b"diff --git a/pkg/new.py b/pkg/new.py\nnew file mode 100644\n--- /dev/null\n"
        b"+++ b/pkg/new.py\n@@ -0,0 +1,3 @@\n+one = 1\n+two = 2\n+three = 3\n+four = 4\n+five = 5\n"
    ))
    row = pile.rows()["01-new.patch"]
    assert row["result"] == "placed"
    assert "hunk counts differ from the body" in row["flags"]
    assert pile.file("pkg/new.py") == b"one = 1\ntwo = 2\nthree = 3\nfour = 4\nfive = 5\n"


def test_1_one_that_declares_more_than_it_has_is_damaged_not_a_shorter_file(tmp_path: Path) -> None:
    pile = Pile(tmp_path, INIT)
    pile.add("01-new.patch", (
        b"diff --git a/pkg/new.py b/pkg/new.py\nnew file mode 100644\n--- /dev/null\n"
        b"+++ b/pkg/new.py\n@@ -0,0 +1,5 @@\n+one = 1\n+two = 2\n"
    ))
    row = pile.rows(code=1)["01-new.patch"]
    assert row["result"] == "unplaceable"
    assert row["patches"] == []


def test_2_a_bare_hunk_with_unique_context_is_located_and_counts(tmp_path: Path) -> None:
    pile = Pile(tmp_path, {"pkg/app.py": APP})
    pile.add("01-bare.patch", (
        b"diff --git a/pkg/app.py b/pkg/app.py\n--- a/pkg/app.py\n+++ b/pkg/app.py\n"
        b"@@\n line 29\n-line 30\n+LINE 30\n line 31\n"
    ))
    row = pile.rows()["01-bare.patch"]
    assert row["result"] == "placed"
    assert "a hunk without line numbers" in row["flags"]
    assert pile.file("pkg/app.py") == changed(APP, 30)


def test_2_a_bare_hunk_that_stands_twice_is_set_aside(tmp_path: Path) -> None:
    twice = b"head\n" + b"a\nb\nc\n" * 2
    pile = Pile(tmp_path, {"pkg/app.py": twice})
    pile.add("01-bare.patch", b"--- a/pkg/app.py\n+++ b/pkg/app.py\n@@\n a\n-b\n+B\n c\n")
    row = pile.rows(code=1)["01-bare.patch"]
    assert row["result"] == "unplaceable"
    assert "stand in 2 places (2, 5): ambiguous" in row["reason"]


def test_3_sections_without_a_diff_line(tmp_path: Path) -> None:
    pile = Pile(tmp_path, {"pkg/app.py": APP, "pkg/lib.py": APP})
    hunk = b"@@ -9,3 +9,3 @@\n line 9\n-line 10\n+LINE 10\n line 11\n"
    pile.add("01-two.diff", b"".join(
        b"--- a/pkg/%s\n+++ b/pkg/%s\n" % (name, name) + hunk for name in (b"app.py", b"lib.py")
    ))
    assert pile.rows()["01-two.diff"]["result"] == "placed"
    assert pile.file("pkg/app.py") == pile.file("pkg/lib.py") == changed(APP, 10)


def test_4_each_side_has_its_own_depth(tmp_path: Path) -> None:
    pile = Pile(tmp_path, {"pkg/sub/app.py": APP})
    pile.add("01-deep.diff", (
        b"--- /tmp/orig/pkg/sub/app.py\t2026-04-01 10:00:00.000000000 +0200\n"
        b"+++ /opt/venv/lib/python3.12/site-packages/pkg/sub/app.py\t2026-04-02 11:00:00 +0200\n"
        b"@@ -9,3 +9,3 @@\n line 9\n-line 10\n+LINE 10\n line 11\n"
    ))
    row = pile.rows()["01-deep.diff"]
    assert row["result"] == "placed"
    assert {"absolute paths", "paths of another depth"} <= set(row["flags"])
    assert pile.file("pkg/sub/app.py") == changed(APP, 10)


def test_5_words_as_ids_are_neither_ids_nor_no_base(tmp_path: Path) -> None:
    pile = Pile(tmp_path, {"pkg/app.py": APP})
    pile.edit({"pkg/app.py": changed(APP, 10)})
    lines = pile.snapshot().splitlines(keepends=True)
    words = [b"index base..variant 100644\n" if x.startswith(b"index ") else x for x in lines]
    pile.add("01-words.patch", b"".join(words))
    row = pile.rows()["01-words.patch"]
    assert row["result"] == "placed"
    assert "words as ids" in row["flags"]
    assert pile.file("pkg/app.py") == changed(APP, 10)


KLASS = b"class %s%d(Base):\n    bits = 4\n    group = 128\n\n\n"
SCHEMES = b"".join(KLASS % (b"Scheme", n) for n in range(10))
MORE = b"".join(KLASS % (b"Extra", n) for n in range(2))


@pytest.mark.parametrize("ids", [True, False])
def test_6_the_change_follows_its_class_among_ten_that_look_alike(
    tmp_path: Path, ids: bool
) -> None:
    """Made on the base, where the sixth is at line 26; moved to upstream, which has two more."""
    pile = Pile(tmp_path, {"pkg/s.py": SCHEMES}, later={"pkg/s.py": MORE + SCHEMES})
    sixth = SCHEMES.replace(
        b"class Scheme5(Base):\n    bits = 4\n", b"class Scheme5(Base):\n    bits = 8\n"
    )
    pile.edit({"pkg/s.py": sixth})
    diff = pile.snapshot("-U1")
    diff = diff if ids else b"".join(
        x for x in diff.splitlines(keepends=True) if not x.startswith(b"index ")
    )
    pile.add("01-six.patch", diff)
    assert pile.results() == {"01-six.patch": "placed"}
    assert pile.file("pkg/s.py") == sixth
    pile.stack.ok("rebase", "--line", "demo/1.0", "--onto", "demo@v2.0")
    pile.stack.ok("apply", "--line", "demo/2.0")
    moved = pile.stack.folder / ".stack/workspaces/demo/2.0/tree/pkg/s.py"
    assert moved.read_bytes() == MORE + sixth


def test_6_without_ids_the_heading_finds_the_class_in_a_shifted_file(tmp_path: Path) -> None:
    pile = Pile(tmp_path, {"pkg/s.py": MORE + SCHEMES})
    pile.add("01-six.patch", (
        b"--- a/pkg/s.py\n+++ b/pkg/s.py\n@@ -27,2 +27,2 @@ class Scheme5(Base):\n"
        b"-    bits = 4\n+    bits = 8\n     group = 128\n"
    ))
    row = pile.rows()["01-six.patch"]
    assert row["result"] == "placed"
    assert "one of several equal places, taken where its heading says" in row["flags"]
    want = SCHEMES.replace(b"Scheme5(Base):\n    bits = 4", b"Scheme5(Base):\n    bits = 8")
    assert pile.file("pkg/s.py") == MORE + want


def test_7_a_patch_that_needs_a_module_of_another_comes_after_it(tmp_path: Path) -> None:
    pile = Pile(tmp_path, {**INIT, "pkg/app.py": b"import os\n\n\ndef run():\n    return os\n"})
    pile.step("02-helper.patch", {"pkg/helper.py": b"def help_it():\n    return 1\n"})
    pile.step("01-user.patch", {
        "pkg/app.py": b"import os\nfrom pkg.helper import help_it\n\n\ndef run():\n    return os\n"
    })
    rows = pile.rows()
    assert "needs" in rows["01-user.patch"]["reason"]
    assert "02-helper.patch for pkg.helper" in rows["01-user.patch"]["reason"]
    listed = pile.stack.ok("list", "--json").json["data"]
    assert str(listed).index("02-helper") < str(listed).index("01-user")


def test_8_what_nothing_defines_is_said(tmp_path: Path) -> None:
    pile = Pile(tmp_path, {**INIT, "pkg/app.py": b"import os\n\n\ndef run():\n    return os\n"})
    pile.step("01-user.patch", {
        "pkg/app.py": b"import os\nfrom .nowhere import thing\n\n\ndef run():\n    return os\n"
    })
    row = pile.rows()["01-user.patch"]
    assert row["result"] == "placed"
    assert "pkg/app.py imports pkg.nowhere.thing, which nothing defines" in row["reason"]


def test_9_two_patches_make_one_file_and_the_second_is_the_longer(tmp_path: Path) -> None:
    pile = Pile(tmp_path, INIT)
    pile.snap("01-new.patch", {"pkg/new.py": numbered(10)})
    pile.snap("02-new.patch", {"pkg/new.py": numbered(14)})
    assert pile.results() == {"01-new.patch": "placed", "02-new.patch": "placed"}
    assert pile.file("pkg/new.py") == numbered(14)
    text = (pile.stack.folder / "patches/demo/1.0/02-new.patch").read_bytes()
    assert text.count(b"\n+line") == 4


def test_10_three_snapshots_are_three_small_interdiffs(tmp_path: Path) -> None:
    pile = Pile(tmp_path, {"pkg/app.py": APP})
    for number, lines in enumerate([(10,), (10, 30), (10, 30, 50)], 1):
        pile.snap(f"0{number}.patch", {"pkg/app.py": changed(APP, *lines)})
    assert set(pile.results().values()) == {"placed"}
    for number in (1, 2, 3):
        text = (pile.stack.folder / f"patches/demo/1.0/0{number}.patch").read_bytes()
        assert (text.count(b"\n+LINE"), text.count(b"\n-line")) == (1, 1)
    assert pile.applied() == pile.tree()


def test_11_a_patch_that_undoes_half_of_the_one_before_is_a_revert(tmp_path: Path) -> None:
    pile = Pile(tmp_path, {"pkg/app.py": APP})
    pile.snap("01-both.patch", {"pkg/app.py": changed(APP, 10, 40)})
    pile.snap("02-half.patch", {"pkg/app.py": changed(APP, 40)})
    row = pile.rows()["02-half.patch"]
    assert row["result"] == "reverts"
    assert "takes back 2 lines of" in row["reason"]
    assert "01-both.patch" in row["reason"]
    assert pile.file("pkg/app.py") == changed(APP, 40)


def test_12_what_upstream_has_is_upstreamed_and_never_taken_in_reverse(tmp_path: Path) -> None:
    pile = Pile(tmp_path, {"pkg/app.py": APP}, later={"pkg/app.py": changed(APP, 10)})
    pile.edit({"pkg/app.py": changed(APP, 10)})
    with_ids = pile.snapshot()
    pile.add("01-ids.patch", with_ids)
    pile.add("02-none.patch", b"".join(
        x for x in with_ids.splitlines(keepends=True) if not x.startswith((b"index ", b"diff "))
    ))
    rows = pile.rows("--base", "demo@v2.0")
    assert rows["01-ids.patch"]["result"] == "upstreamed"
    assert rows["02-none.patch"]["result"] in ("upstreamed", "duplicate")
    assert not list((pile.stack.folder / "patches/demo").glob("*/0*.patch"))


def test_13_context_that_skips_a_line_is_the_only_such_place_and_flagged(tmp_path: Path) -> None:
    pile = Pile(tmp_path, {"pkg/app.py": APP})
    pile.add("01-skips.patch", (
        b"--- a/pkg/app.py\n+++ b/pkg/app.py\n@@ -27,5 +27,5 @@\n line 27\n line 29\n-line 30\n"
        b"+LINE 30\n line 31\n line 33\n"
    ))
    row = pile.rows()["01-skips.patch"]
    assert row["result"] == "placed"
    assert "context that skips lines" in row["flags"]
    assert pile.file("pkg/app.py") == changed(APP, 30)


BODY = b"class Model:\n    def load(self):\n        return 1\n\n" + b"".join(
    b"    def step%d(self):\n        return %d\n\n" % (n, n) for n in range(12)
)
OWN = b"    def extra(self):\n        return 'ours'\n\n"
THEIRS = b"    def extra(self):\n        return 'upstream'\n\n"


def test_14_a_method_that_upstream_adds_further_down_shadows_ours_and_that_is_said(
    tmp_path: Path,
) -> None:
    pile = Pile(tmp_path, {"pkg/m.py": BODY}, later={"pkg/m.py": BODY + THEIRS})
    cut = BODY.index(b"    def step0")
    pile.snap("01-extra.patch", {"pkg/m.py": BODY[:cut] + OWN + BODY[cut:]})
    assert pile.results() == {"01-extra.patch": "placed"}
    told = pile.stack("forecast", "--line", "demo/1.0", "--onto", "demo@v2.0", "--strict")
    assert told.code == 1
    assert "`Model.extra`" in told.out
    assert "shadowed" in told.out


GUARD = b"def ready(self):\n%s        return 0\n    return 1\n"
LONG = GUARD % b"    if (\n        not self.a()\n        and not self.b()\n    ):\n"
SHORT = GUARD % b"    if self.c():\n"


def test_15_a_line_does_not_land_above_an_if_that_upstream_rewrote(tmp_path: Path) -> None:
    pile = Pile(tmp_path, {"pkg/g.py": LONG}, later={"pkg/g.py": SHORT})
    pile.snap("01-guard.patch", {
        "pkg/g.py": LONG.replace(b"self.b()\n", b"self.b()\n        and not self.d()\n")
    })
    assert pile.results() == {"01-guard.patch": "placed"}
    output = pile.stack("rebase", "--line", "demo/1.0", "--onto", "demo@v2.0")
    assert output.code == 3, output


def test_16_a_class_that_moved_is_looked_for_where_it_is_not_where_its_file_went(
    tmp_path: Path,
) -> None:
    other = b"".join(b"def helper%d():\n    return %d\n\n\n" % (n, n) for n in range(30))
    klass = b"class RowParallelNorm:\n    epsilon_of_norm = 1\n    weight_scale_inv = 2\n"
    pile = Pile(
        tmp_path, {"pkg/old.py": other + klass},
        later={"pkg/old.py": None, "pkg/new.py": other, "pkg/norm/far.py": b"FAR = 1\n" + klass},
    )
    pile.snap("01-norm.patch", {"pkg/old.py": other + klass.replace(b"norm = 1", b"norm = 9")})
    assert pile.results() == {"01-norm.patch": "placed"}
    output = pile.stack("rebase", "--line", "demo/1.0", "--onto", "demo@v2.0")
    assert output.code == 3, output
    assert "stand in pkg/norm/far.py now" in output.err
