"""The strict reader of diffs: what git writes is read, damage is named with file and line."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stack.errors import BadPatch
from stack.model.diff.hunks import FilePatch
from stack.model.diff.parse import parse_diff

HEAD = b"diff --git a/f b/f\nindex 1111111..2222222 100644\n--- a/f\n+++ b/f\n"
FILE = b"diff --git a/f b/f\n"
MOVE = b"diff --git a/f b/g\nsimilarity index 100%\n"
MODULE = (
    b"diff --git a/s b/s\nindex 1..2 160000\n--- a/s\n+++ b/s\n@@ -1 +1 @@\n"
    b"-Subproject commit 1\n+Subproject commit 2\n"
)
GOOD = HEAD + b"@@ -1,3 +1,3 @@ section\n a\n-b\n+B\n c\n"


def bad(data: bytes, first: int = 1) -> str:
    with pytest.raises(BadPatch) as wrong:
        parse_diff(data, "x.patch", first=first)
    return wrong.value.message


def one(data: bytes) -> FilePatch:
    (found,) = parse_diff(data, "x.patch")
    return found


def test_a_plain_hunk() -> None:
    found = one(GOOD)
    (hunk,) = found.hunks
    assert (found.kind, found.old, found.new, found.path) == ("modify", b"f", b"f", b"f")
    assert (hunk.old_start, hunk.new_start, hunk.section, hunk.at) == (1, 1, b"section", 5)
    assert (hunk.old, hunk.new) == ([b"a\n", b"b\n", b"c\n"], [b"a\n", b"B\n", b"c\n"])
    assert (hunk.added, hunk.removed) == (1, 1)


@pytest.mark.parametrize("first", [1, 40])
@pytest.mark.parametrize(
    ("data", "line", "why"),
    [
        (b"", 1, "no diff found"),
        (b"\n\n", 3, "no diff found"),
        (b"hello\n", 1, "not a part of a diff: hello"),
        (b"@@ -1 +1 @@\n-a\n+b\n", 1, "a hunk without a file"),
        (b"*** f\n--- f\n", 1, "not a part of a diff"),
        (b"diff --cc f\nindex 1,2..3\n", 1, "a combined diff of a merge cannot be applied"),
        (b"diff --combined f\n", 1, "a combined diff of a merge cannot be applied"),
        (FILE + b"@@ -1 +1 @@\n-a\n+b\n", 2, "a hunk without `---` and `+++` lines"),
        (HEAD, 5, "a file without hunks"),
        (HEAD + b"@@ -1 +1 @\n-a\n+b\n", 5, "a hunk header without line numbers"),
        (HEAD + b"@@\n-a\n+b\n", 5, "a file without hunks"),
        (HEAD + b"@@ @@\n-a\n+b\n", 5, "a hunk header without line numbers"),
        (HEAD + b"@@ -1,0 +1,0 @@\n", 5, "a hunk without lines"),
        (
            HEAD + b"@@ -" + b"9" * 5000 + b" +1 @@\n-a\n+b\n",
            5,
            "a hunk header without line numbers",
        ),
        (GOOD.replace(b"-1,3 +1,3", b"-1,2 +1,2"), 9, "the hunk goes on after the lines"),
        (GOOD.replace(b"-1,3 +1,3", b"-1,4 +1,4"), 10, "the patch ends in the middle of a file"),
        (GOOD.replace(b"-1,3 +1,3", b"-1,4 +1,4") + GOOD, 10, "the hunk ends before the lines"),
        (GOOD.replace(b"-1,3 +1,3", b"-1,3 +1,4") + b"-x\n", 10, "the hunk's lines do not add up"),
        (GOOD + b"+d\n", 10, "the hunk goes on after the lines"),
        (GOOD + b"trailing\n", 10, "not a part of a diff: trailing"),
        (GOOD[:-1], 9, "the patch ends in the middle of a line: it is truncated"),
        (GOOD[:-2], 9, "the patch ends in the middle of a line: it is truncated"),
        (GOOD.replace(b" c\n", b"\rc\n"), 9, "the hunk ends before the lines"),
        (GOOD.replace(b"+++ b/f\n", b""), 4, "expected a `+++ ` line"),
        (GOOD.replace(b"--- a/f\n", b""), 3, "a file without hunks"),
        (GOOD.replace(b"+++ b/f", b"+++ b/g"), 4, "two names for one file: a/f and b/g"),
        (GOOD.replace(b"diff --git a/f b/f", b"diff --git a/g b/g"), 4, "two names for one file"),
        (FILE, 2, "a file without hunks"),
        (FILE + b"index 1111111..2222222 100644\n", 3, "a file without hunks"),
        (FILE + b"new file mode 100644\nindex 0000000..2222222\n", 4, "a file without hunks"),
        (FILE + b"deleted file mode 100644\nindex 2222222..0000000\n", 4, "a file without"),
        (FILE + b"Binary files a/f and b/f differ\n", 2, "a binary file without its data"),
        (FILE + b"GIT binary patch\nwhole 5\n", 3, "a binary patch that is neither"),
        (FILE + b"GIT binary patch\nliteral 5\n", 4, "the patch ends in the middle"),
        (FILE + b"GIT binary patch\nliteral 5\nzzz\n\n", 4, "damaged binary data"),
        (FILE + b"GIT binary patch\nliteral " + b"9" * 5000 + b"\n", 3, "a binary patch"),
        (MODULE, 4, "a change of a submodule"),
        (FILE + b"old mode 100644\nnew mode 100600\n", 3, "a file mode that git does not"),
        (FILE + b"old mode 100644\nnew mode 120000\n", 3, "a file turned into a link"),
        (MOVE + b"rename from f\n", 3, "a rename without its `rename to`"),
        (MOVE + b"rename to g\n", 3, "a rename without its `rename from`"),
    ],
)
def test_damage_is_named_with_its_line(data: bytes, line: int, why: str, first: int) -> None:
    message = bad(data, first)
    assert message.startswith(f"x.patch:{line + first - 1}: {why}"), message


@pytest.mark.parametrize(
    "path",
    [
        b"../f",
        b"a/../../f",
        b"./f",
        b"a//f",
        b"/etc/passwd",
        b".git/config",
        b".GIT/config",
        b"sub/.git/hooks/post-checkout",
        b".git",
        b".git./x",
        b".git /x",
        b"GIT~1/x",
        b".Git::$INDEX/x",
        b"a/.",
        b"a/..",
        b"",
    ],
)
@pytest.mark.parametrize(
    "shape",
    [
        b"diff --git a/%s b/%s\n--- a/%s\n+++ b/%s\n@@ -1 +1 @@\n-a\n+b\n",
        b"--- a/%s\n+++ b/%s\n@@ -1 +1 @@\n-a\n+b\n",
        b"diff --git a/%s b/%s\nnew file mode 100644\n--- /dev/null\n+++ b/%s\n@@ -0,0 +1 @@\n+b\n",
        (b"diff --git a/%s b/%s\ndeleted file mode 100644\n"
        b"--- a/%s\n+++ /dev/null\n@@ -1 +0,0 @@\n-b\n"),
        b"diff --git a/%s b/%s\nold mode 100644\nnew mode 100755\n",
        b"diff --git a/x b/%s\nsimilarity index 100%%\nrename from x\nrename to %s\n",
        b"diff --git a/%s b/x\nsimilarity index 100%%\nrename from %s\nrename to x\n",
        b"diff --git a/x b/%s\nsimilarity index 100%%\ncopy from x\ncopy to %s\n",
    ],
)
def test_no_path_leaves_the_tree(path: bytes, shape: bytes) -> None:
    data = shape.replace(b"%s", path).replace(b"%%", b"%")
    assert re.match(r"x\.patch:\d+: (a path|an absolute|cannot tell)", bad(data))


@pytest.mark.parametrize("name", [b"/f", b"/etc/passwd", b"f", b"../f", b"./f"])
def test_names_without_a_prefix_are_refused(name: bytes) -> None:
    data = b"--- " + name + b"\n+++ " + name + b"\n@@ -1 +1 @@\n-a\n+b\n"
    assert re.match(r"x\.patch:2: (an absolute path|a path without the leading)", bad(data))


@pytest.mark.parametrize(
    ("quoted", "plain"),
    [
        (b'"a/tab\\there"', b"tab\there"),
        (b'"a/gr\\303\\274n"', "gr\u00fcn".encode()),
        (b'"a/quo\\"te\\\\d"', b'quo"te\\d'),
        (b"a/with space\t", b"with space"),
        (b"a/x b/y", b"x b/y"),
    ],
)
def test_quoted_names(quoted: bytes, plain: bytes) -> None:
    other = quoted.replace(b"a/", b"b/", 1)
    header = quoted.rstrip(b"\t") + b" " + other.rstrip(b"\t")
    hunk = b"@@ -1 +1 @@\n-a\n+b\n"
    found = one(b"diff --git " + header + b"\n--- " + quoted + b"\n+++ " + other + b"\n" + hunk)
    assert found.path == plain
    mode = one(b"diff --git " + header + b"\nold mode 100644\nnew mode 100755\n")
    assert (mode.path, mode.old_mode, mode.new_mode) == (plain, 0o100644, 0o100755)


@pytest.mark.parametrize("name", [b'"a/open', b'"a/\\q"', b'"a/\\9"', b'"a/\\'])
def test_a_name_whose_quotes_are_damaged(name: bytes) -> None:
    data = b"--- " + name + b"\n+++ " + name + b"\n@@ -1 +1 @@\n-a\n+b\n"
    assert "a quoted name that does not end" in bad(data)


def test_renames_copies_and_empty_files() -> None:
    rename = one(
        b"diff --git a/f b/g\nold mode 100644\nnew mode 100755\nsimilarity index 80%\n"
        b"rename from f\n"
        b"rename to g\nindex 1111111..2222222\n--- a/f\n+++ b/g\n@@ -1 +1 @@\n-a\n+b\n"
    )
    assert (rename.kind, rename.old, rename.new, rename.new_mode) == (
        "rename",
        b"f",
        b"g",
        0o100755,
    )
    copy = one(b"diff --git a/f b/g\nsimilarity index 100%\ncopy from f\ncopy to g\n")
    assert (copy.kind, copy.old, copy.new, copy.hunks) == ("copy", b"f", b"g", ())
    empty = b"e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
    for ids, word, kind in (
        (b"0" * 40 + b".." + empty, b"new file", "add"),
        (empty + b".." + b"0" * 40, b"deleted file", "delete"),
        (b"0000000..e69de29", b"new file", "add"),
    ):
        found = one(b"diff --git a/f b/f\n" + word + b" mode 100644\nindex " + ids + b"\n")
        assert (found.kind, found.hunks) == (kind, ())


def test_a_rename_whose_names_disagree_is_refused() -> None:
    data = (
        b"diff --git a/f b/g\nsimilarity index 80%\nrename from f\nrename to g\n"
        b"--- a/f\n+++ b/h\n@@ -1 +1 @@\n-a\n+b\n"
    )
    assert "two names for one file" in bad(data)


def test_missing_newline_at_the_end() -> None:
    mark = b"\\ No newline at end of file\n"
    (hunk,) = one(HEAD + b"@@ -1 +1 @@\n-a\n" + mark + b"+b\n" + mark).hunks
    assert (hunk.old, hunk.new) == ([b"a"], [b"b"])
    (hunk,) = one(HEAD + b"@@ -1 +1 @@\n-a\n+b\n" + mark).hunks
    assert (hunk.old, hunk.new) == ([b"a\n"], [b"b"])
    for lines in (b" a\n#-b\n+c\n", b"+a\n#+b\n-c\n-d\n", b"-c\n#-d\n+a\n+b\n"):
        lines = lines.replace(b"#", mark)
        assert "no newline" in bad(HEAD + b"@@ -1,2 +1,2 @@\n" + lines)


def test_blank_context_that_an_editor_stripped_and_carriage_returns() -> None:
    (hunk,) = one(HEAD + b"@@ -1,3 +1,3 @@\n a\r\n\n-b\r\n+B\r\n").hunks
    assert hunk.old == [b"a\r\n", b"\n", b"b\r\n"]


def test_a_signature_ends_the_diff_and_nothing_may_hide_behind_it() -> None:
    assert one(GOOD + b"-- \n2.39.5\n\n").hunks
    assert "after the signature" in bad(GOOD + b"-- \n2.39.5\n\n" + GOOD)
    assert "after the signature" in bad(GOOD + b"-- \n+hidden\n")


def test_one_file_twice_is_read_in_order() -> None:
    first, second = parse_diff(GOOD + GOOD, "x.patch")
    assert first.path == second.path
    assert second.at == 10


@given(st.data())
def test_no_damage_is_anything_but_a_bad_patch_with_a_line(data: st.DataObject) -> None:
    whole = (
        GOOD
        + b'diff --git "a/gr\\303\\274n" "b/gr\\303\\274n"\nnew file mode 100755\n'
        b'index 0000000..1111111\n'
        b'--- /dev/null\n+++ "b/gr\\303\\274n"\n@@ -0,0 +1 @@\n+x\n\\ No newline at end of file\n'
        b"diff --git a/b b/b\nindex 1..2 100644\nGIT binary patch\nliteral 5\nMcmZQzWMT#Y01f~L\n\n"
        b"literal 0\nHcmV?d00001\n\n"
    )
    raw = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw)))
        raw[at : at + data.draw(st.integers(0, 12))] = data.draw(st.binary(max_size=6))
    said = "x.patch:1:"
    try:
        parse_diff(bytes(raw), "x.patch")
    except BadPatch as wrong:
        said = wrong.message
    assert re.match(r"x\.patch:\d+:", said)
