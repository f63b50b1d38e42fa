"""How the files of a pile are decoded and parsed: strictly where damage could hide, else widely."""

from __future__ import annotations

import base64
import bz2
import gzip
import lzma
import time
import tracemalloc

import pytest

from stack.model.pile.decode import ROOM, decode
from stack.model.pile.parse import parse
from stack.model.pile.paths import find, leads_out, prefix_of, suffixes
from stack.model.pile.sections import Damage, Flag, Section

DIFF = (
    b"diff --git a/pkg/app.py b/pkg/app.py\nindex 1234567..89abcde 100644\n--- a/pkg/app.py\n"
    b"+++ b/pkg/app.py\n@@ -1,3 +1,3 @@ class A:\n one\n-two\n+TWO\n three\n"
)
LONG = DIFF * 40


def texts(data: bytes, **options: object) -> list[bytes]:
    found = decode(data, **options)  # type: ignore[arg-type]
    assert not isinstance(found, Damage), found
    return [text.data for text in found]


def damage(data: bytes, **options: object) -> Damage:
    found = decode(data, **options)  # type: ignore[arg-type]
    assert isinstance(found, Damage)
    return found


def only(data: bytes) -> Section:
    parsed = parse(data)
    assert parsed.damage is None
    (section,) = parsed.sections
    return section


class TestDecode:
    @pytest.mark.parametrize("pack", [
        lambda data: data, gzip.compress, bz2.compress, lzma.compress, base64.encodebytes,
        lambda data: base64.encodebytes(gzip.compress(data)),
        lambda data: base64.encodebytes(lzma.compress(data)).replace(b"\n", b"\r\n"),
        lambda data: base64.b64encode(bz2.compress(data)),
        lambda data: gzip.compress(data[:300]) + gzip.compress(data[300:]),
    ])
    def test_packed_in_any_way(self, pack: object) -> None:
        assert texts(pack(LONG)) == [LONG]  # type: ignore[operator]

    def test_markdown_gives_its_fences_with_their_lines(self) -> None:
        note = b"# Note\n\n```python\nprint()\n```\n\nwords\n\n```diff\n" + DIFF + b"```\nend\n"
        found = decode(note, name=".md")
        assert not isinstance(found, Damage)
        assert [(text.data, text.first) for text in found] == [(DIFF, 10)]
        assert b"words" in found[0].around
        inside = DIFF.replace(b"\n", b"\n   ").rstrip()
        nested = b"1. item\n\n   ````\n   " + inside + b"\n   ````\n"
        assert texts(nested, name=".md") == [DIFF]

    def test_damaged_base64_names_its_line(self) -> None:
        lines = base64.encodebytes(gzip.compress(LONG * 9, mtime=0)).splitlines(keepends=True)
        assert len(lines) > 4
        assert damage(b"".join([*lines[:2], b"!!!" + lines[2][3:], *lines[3:]])).line == 3
        assert damage(b"".join([*lines[:2], lines[2][5:], *lines[3:]])).line == 3
        assert "ends early" in damage(b"".join(lines[:-1])).why
        turned = bytearray(b"".join(lines))
        turned[len(turned) // 2] ^= 3
        found = decode(bytes(turned))
        assert isinstance(found, Damage)
        assert found.line > 1

    def test_damaged_gzip_is_never_half_a_diff(self) -> None:
        packed = gzip.compress(LONG, mtime=0)
        for at in range(10, len(packed)):
            broken = bytearray(packed)
            broken[at] ^= 0x55
            found = decode(bytes(broken))
            assert isinstance(found, Damage) or [text.data for text in found] == [LONG]
        for at in range(12, len(packed)):
            assert isinstance(decode(packed[:at]), Damage)

    def test_bombs_take_little(self) -> None:
        bomb = gzip.compress(gzip.compress(bytes(3 * ROOM), 9))
        tracemalloc.start()
        begun = time.process_time()
        assert "MiB" in damage(bomb).why
        assert tracemalloc.get_traced_memory()[1] < 3 * ROOM
        tracemalloc.stop()
        assert time.process_time() - begun < 60
        assert "MiB" in damage(bytes(ROOM + 1)).why
        deep = DIFF
        for _ in range(6):
            deep = gzip.compress(deep)
        assert "packed more than" in damage(deep).why

    def test_what_is_no_text(self) -> None:
        assert damage(DIFF + b"\0").line == 10
        assert "nothing where base64" in damage(b" \n\n", base64_said=True).why
        assert "archive" in damage(b"PK\x03\x04" + b"x" * 30).why


class TestParse:
    def test_a_whole_diff_has_no_flags(self) -> None:
        section = only(DIFF)
        assert section.flags == ()
        assert (section.old_id, section.new_id, section.kind) == ("1234567", "89abcde", "modify")
        assert section.hunks[0].heading == b"class A:"

    @pytest.mark.parametrize(("old", "new", "flag"), [
        (b"@@ -1,3 +1,3 @@ class A:", b"@@", Flag.BARE_HUNK),
        (b"@@ -1,3 +1,3 @@", b"@@ -1,2 +1,2 @@", Flag.COUNTS),
        (b"@@ -1,3 +1,3 @@", b"@@ -1,7 +1,7 @@", Flag.COUNTS),
        (b"index 1234567..89abcde 100644\n", b"", Flag.NO_INDEX),
        (b"1234567..89abcde", b"0000000..0000000", Flag.ZERO_IDS),
        (b"1234567..89abcde", b"base..variant", Flag.WORD_IDS),
        (b"diff --git a/pkg/app.py b/pkg/app.py\nindex 1234567..89abcde 100644\n", b"",
         Flag.NO_DIFF_LINE),
        (b"--- a/pkg", b"--- /home/me/pkg", None),
        (b"+++ b/pkg", b"+++ /home/me/pkg", Flag.ABSOLUTE),
        (b" three\n", b"\n three\n", Flag.BLANK_CONTEXT),
        (b" one\n-two\n+TWO\n three\n", b"-two\n+TWO\n", Flag.NO_CONTEXT),
        (b" three\n", b" three\n\nThat is all.\n", Flag.PROSE),
        (b" three\n", b" three", Flag.NO_NEWLINE),
    ])
    def test_every_anomaly_is_a_flag(self, old: bytes, new: bytes, flag: Flag | None) -> None:
        assert old in DIFF
        section = only(DIFF.replace(old, new, 1))
        assert flag is None or flag in section.flags
        assert section.hunks[0].new.count(b"TWO\n") == 1
        assert b"That is all.\n" not in section.hunks[0].new

    def test_cr_lf_throughout_is_no_content(self) -> None:
        section = only(DIFF.replace(b"\n", b"\r\n"))
        assert Flag.CR_LF in section.flags
        assert section.hunks[0].new == [b"one\n", b"TWO\n", b"three\n"]

    def test_the_names_of_the_next_file_are_no_lines(self) -> None:
        two = DIFF[DIFF.index(b"--- a") :] * 2
        assert [len(one.hunks[0].lines) for one in parse(two).sections] == [4, 4]
        bare = two.replace(b"@@ -1,3 +1,3 @@ class A:", b"@@")
        assert [len(one.hunks[0].lines) for one in parse(bare).sections] == [4, 4]

    def test_a_removed_comment_that_looks_like_a_name(self) -> None:
        data = b"--- a/q.sql\n+++ b/q.sql\n@@ -1,2 +1,2 @@\n one\n--- old\n+++ new\n"
        section = only(data)
        assert [sign for sign, _ in section.hunks[0].lines] == [b" ", b"-", b"+"]

    def test_words_behind_the_last_hunk(self) -> None:
        data = DIFF + b"\nNotes:\n\n- faster\n- not measured\n"
        section = only(data)
        assert section.hunks[0].new == [b"one\n", b"TWO\n", b"three\n"]
        assert b"- faster" in parse(data).prose

    def test_lines_of_a_change_behind_text_are_damage(self) -> None:
        data = DIFF.replace(b"@@ -1,3 +1,3 @@", b"@@ -1,9 +1,9 @@")
        data = data.replace(b"-two", b"oops, no sign\n-two")
        found = parse(data)
        assert found.damage is not None
        assert found.damage.line == 9

    @pytest.mark.parametrize(("data", "why"), [
        (DIFF.replace(b"a/pkg/app.py", b"a/../../etc/passwd"), "outside the tree"),
        (DIFF.replace(b"b/pkg/app.py", b"b/.git/hooks/post-checkout"), "into .git"),
        (DIFF.replace(b"pkg/app.py", b"pkg/.GIT/config"), "into .git"),
        (b"@@ -1 +1 @@\n-a\n+b\n", "a hunk without a file"),
        (b"diff --cc x\n" + DIFF, "combined diff"),
        (DIFF.replace(b"100644", b"160000"), "submodule"),
        (b"diff --git a/x b/x\nBinary files a/x and b/x differ\n", "without its data"),
        (b"*** a/x\n--- b/x\n***************\n*** 1,2 ****\n", "context diff"),
        (DIFF[: DIFF.index(b"--- a")], "without hunks"),
    ])
    def test_what_cannot_be_taken(self, data: bytes, why: str) -> None:
        found = parse(data)
        assert found.damage is not None
        assert why in found.damage.why

    def test_a_million_hunks_take_little(self) -> None:
        data = DIFF + b"@@ -1 +1 @@\n-a\n+b\n" * 1_000_000
        begun = time.process_time()
        found = parse(data)
        assert found.damage is not None
        assert "hunks" in found.damage.why
        assert time.process_time() - begun < 60

    def test_the_other_format_for_edits(self) -> None:
        data = (
            b"*** Begin Patch\n*** Update File: pkg/app.py\n@@ class A:\n one\n-two\n+TWO\n three\n"
            b"*** Add File: pkg/new.py\n+a = 1\n+b = 2\n*** End Patch\n"
        )
        change, new = parse(data).sections
        assert (change.new, change.hunks[0].heading) == (b"pkg/app.py", b"class A:")
        assert (new.kind, new.hunks[0].new) == ("add", [b"a = 1\n", b"b = 2\n"])


class TestPaths:
    def test_any_prefix_means_the_file(self) -> None:
        known = {b"vllm/v1/core.py", b"README.md", b"src/flake/x.py"}
        for name in (
            b"a/vllm/v1/core.py", b"vllm/v1/core.py", b"/home/me/src/vllm/vllm/v1/core.py",
            b"b/src/vllm/vllm/v1/core.py", b"p/q/r/vllm/v1/core.py",
            b"/opt/lib/python3/site-packages/vllm/v1/core.py",
        ):
            assert find(name, known.__contains__) == b"vllm/v1/core.py"
        assert find(b"a/README.md", known.__contains__) == b"README.md"
        assert find(b"notes/mine/README.md", known.__contains__) is None
        site = b"/x/site-packages/flake/x.py"
        assert find(site, known.__contains__, ["src/flake"]) == b"src/flake/x.py"
        assert find(b"one/two/vllm/v1/core.py", known.__contains__, (), 2) == b"vllm/v1/core.py"
        assert find(b"one/two/vllm/v1/core.py", known.__contains__, (), 1) is None

    def test_small_things(self) -> None:
        assert suffixes(b"a/x/y")[0] == b"x/y"
        assert prefix_of(b"a/src/vllm/x/y", b"x/y") == b"src/vllm"
        assert leads_out(b"a/link", b"../../etc")
        assert leads_out(b"a/link", b"/etc")
        assert not leads_out(b"a/link", b"../b")


def test_what_stands_under_a_signature_is_dropped_where_it_is_one_only() -> None:
    """A version of git; a line of a change there is damage, and words are kept."""
    for version in (b"2.43.0\n", b"2.39.5 (Apple Git-154)\n"):
        assert parse(DIFF + b"-- \n" + version).prose == b""
    assert parse(DIFF + b"-- \nthe team\n").prose == b"the team\n"
    cut = DIFF.replace(b"-1,3 +1,3", b"-1,5 +1,5")
    found = parse(cut + b"words\n-- \n+more\n")
    assert found.damage == Damage(12, "lines of a change after text that is none")
