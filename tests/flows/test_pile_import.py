"""Importing a pile as a person does: formats, bases, order, what is set aside, and again."""

from __future__ import annotations

import base64
import gzip
import tomllib
from pathlib import Path

import pytest

from tests.conftest import numbered
from tests.support.piles import Pile
from tests.support.repo import RepoBuilder

APP = numbered(60)


def changed(data: bytes, *numbers: int) -> bytes:
    for number in numbers:
        data = data.replace(b"line %d\n" % number, b"LINE %d\n" % number)
    return data


def test_a_mixed_folder_is_placed_listed_and_imported_only_once(tmp_path: Path) -> None:
    pile = Pile(tmp_path, {"pkg/app.py": APP, "pkg/lib.py": APP})
    pile.snap("01-plain.patch", {"pkg/app.py": changed(APP, 5)})
    pile.edit({"pkg/app.py": changed(APP, 5, 20)})
    pile.add("02-packed.patch.gz.b64", base64.encodebytes(gzip.compress(pile.snapshot())))
    pile.edit({"pkg/lib.py": changed(APP, 30)})
    pile.add("03-note.md", b"# Faster lib\n\n```diff\n" + pile.snapshot() + b"```\n")
    pile.add("04-damaged.patch.gz.b64", base64.encodebytes(gzip.compress(b"x" * 999))[:-30])
    pile.add("05-other.patch", (
        b"--- a/notes/log.md\n+++ b/notes/log.md\n@@ -1 +1,2 @@\n # Log\n+more\n"
    ))
    pile.add("06-copy.diff", (pile.inputs / "01-plain.patch").read_bytes())
    pile.add("07-empty.patch", b"nothing here\n")
    pile.add("readme.txt", b"what these are\n")
    dry = pile.run("--dry-run", code=1)
    assert not (pile.stack.folder / "patches/imported.toml").exists()
    data = pile.run(code=1)
    assert [row["result"] for row in data["inputs"]] == [
        "placed", "placed", "placed", "damaged", "other", "duplicate", "other",
    ]
    assert [row["result"] for row in dry["inputs"]] == [row["result"] for row in data["inputs"]]
    assert data["inputs"][3]["reason"].startswith("damaged at line ")
    assert "notes/log.md" in data["inputs"][4]["reason"]
    assert data["inputs"][5]["reason"].endswith("01-plain.patch")
    assert data["order"] == "their names"
    assert data["bases"]["demo"]["line"] == "demo/1.0"
    assert pile.applied() == pile.tree()
    listed = tomllib.loads((pile.stack.folder / "patches/imported.toml").read_text())
    assert len(listed["input"]) == 7

    before = {path.name: path.read_bytes() for path in
              (pile.stack.folder / "patches/demo/1.0").iterdir()}
    again = pile.run(code=1)
    assert again["added"] == 0
    assert {path.name: path.read_bytes() for path in
            (pile.stack.folder / "patches/demo/1.0").iterdir()} == before
    pile.snap("08-new.patch", {"pkg/lib.py": changed(APP, 30, 50)})
    more = pile.run(code=1)
    assert more["added"] == 1
    assert pile.applied() == pile.tree()


def test_the_base_is_found_and_the_line_begun(tmp_path: Path) -> None:
    """The pile was made between two releases: a commit that no line is pinned at."""
    pile = Pile(tmp_path, {"pkg/app.py": APP, "pkg/lib.py": APP})
    up = pile.upstream
    up.commit("later", {"pkg/app.py": changed(APP, 2)})
    up.commit("elsewhere", {"docs.txt": b"x\n"})
    middle = up.head()
    pile.edit({"pkg/app.py": changed(APP, 2, 40), "pkg/lib.py": changed(APP, 7)})
    up.git("add", "--all")
    diff = up.git("diff", "--cached")
    want = up.git("write-tree").decode().strip()
    up.git("reset", "-q", "--hard")
    up.commit("last", {"pkg/lib.py": changed(APP, 50), "pkg/app.py": changed(APP, 3)})
    pile.add("01.patch", diff)
    data = pile.run()
    base = data["bases"]["demo"]
    assert (base["votes"], base["of"], base["window"], base["margin"]) == (2, 2, 2, 1)
    assert base["last"] == middle
    line = data["lines"]["demo"]
    assert line == f"demo/{middle[:7]}"
    assert pile.stack.ok("apply", "--line", line, "--json").json["data"]["tree"] == want
    other = pile.run("--base", "demo@v1.0", "--dry-run")
    assert other["lines"] == {"demo": "demo/1.0"}
    assert "merged from another base" in other["inputs"][0]["reason"]


def test_two_upstreams_in_one_file_are_split(tmp_path: Path) -> None:
    pile = Pile(tmp_path, {"pkg/app.py": APP})
    other = RepoBuilder(tmp_path / "kernels")
    other.commit("begin", {"csrc/k.cpp": APP, "README.md": b"k\n"})
    other.git("tag", "v3")
    pile.stack.ok("upstream", "add", "kernels", other.folder)
    pile.edit({"pkg/app.py": changed(APP, 5)})
    other.write({"csrc/k.cpp": changed(APP, 9)})
    both = pile.snapshot() + other.git("diff").replace(b"a/csrc", b"a/src/kernels/csrc").replace(
        b"b/csrc", b"b/src/kernels/csrc"
    )
    pile.add("01-both.patch", both)
    rows = pile.run()["inputs"]
    assert [(row["upstream"], row["result"]) for row in rows] == [
        ("demo", "placed"), ("kernels", "placed"),
    ]
    pile.stack.ok("apply", "--line", "kernels/3")
    done = pile.stack.folder / ".stack/workspaces/kernels/3/tree/csrc/k.cpp"
    assert done.read_bytes() == changed(APP, 9)


def test_the_order_is_that_of_first_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names say the opposite, and a file that was renamed since keeps its time and author."""
    pile = Pile(tmp_path, {"pkg/app.py": APP})
    repo = pile.inputs
    home = RepoBuilder(tmp_path / "notes")
    for at, (name, lines) in enumerate([("z-one", (5,)), ("m-two", (5, 9)), ("a-three", (9,))]):
        pile.edit({"pkg/app.py": changed(APP, *lines)})
        monkeypatch.setenv("GIT_AUTHOR_DATE", f"2026-03-0{at + 1}T10:00:00+02:00")
        home.commit(f"note {name}", {f"{name}.patch": pile.snapshot()})
    monkeypatch.setenv("GIT_AUTHOR_DATE", "2026-04-01T10:00:00+02:00")
    home.git("mv", "z-one.patch", "x-one.patch")
    home.commit("moved", {})
    repo.rmdir()
    (tmp_path / "notes").rename(repo)
    data = pile.run()
    assert data["order"] == "the time that each file was first committed"
    assert [Path(row["file"]).name for row in data["inputs"]] == [
        "x-one.patch", "m-two.patch", "a-three.patch",
    ]
    assert [row["result"] for row in data["inputs"]] == ["placed", "placed", "reverts"]
    assert pile.file("pkg/app.py") == changed(APP, 9)
    text = (pile.stack.folder / "patches/demo/1.0/x-one.patch").read_text()
    assert "Date: Sun, 1 Mar 2026 10:00:00 +0200" in text
    assert "From: Ann Author <ann@example.com>" in text


def test_a_quilt_series_with_options(tmp_path: Path) -> None:
    pile = Pile(tmp_path, {"pkg/app.py": changed(APP, 50)})
    hunk = b"@@ -4,3 +4,3 @@\n line 4\n-line 5\n+LINE 5\n line 6\n"
    pile.add("b.diff", b"The first\n\n--- pkg/app.py.orig\n+++ pkg/app.py\n" + hunk)
    pile.add("a.diff", (
        b"--- x/y/pkg/app.py\n+++ x/y/pkg/app.py\n@@ -49,3 +49,3 @@\n line 49\n-line 50\n+LINE 50\n"
        b" line 51\n"
    ))
    pile.add("series", b"# ours\nb.diff -p0\na.diff -p2 -R\n")
    data = pile.run()
    assert data["order"] == "the series file"
    assert [Path(row["file"]).name for row in data["inputs"]] == ["b.diff", "a.diff"]
    assert pile.file("pkg/app.py") == changed(APP, 5)


def test_labels_are_suggestions_with_what_is_alive(tmp_path: Path) -> None:
    pile = Pile(tmp_path, {"pkg/app.py": APP})
    pile.snap("01-negative.patch", {"pkg/app.py": changed(APP, 5, 6)})
    pile.snap("02-last.patch", {"pkg/app.py": changed(APP, 5)})
    row = pile.rows()["01-negative.patch"]
    assert row["suggestion"] == (
        "labelled `negative`: park as negative? 1 of its 2 added lines stand at the end"
    )
    text = (pile.stack.folder / "patches/demo/1.0/series.toml").read_text()
    assert 'state = "active"' in text
    assert "parked" not in text


def test_what_undoes_upstream_is_said(tmp_path: Path) -> None:
    pile = Pile(tmp_path, {"pkg/app.py": APP}, later={"pkg/app.py": changed(APP, 30)})
    pile.upstream.git("checkout", "-q", "v2.0")
    pile.edit({"pkg/app.py": APP})
    pile.add("01-back.patch", pile.upstream.git("diff"))
    row = pile.rows("--base", "demo@v2.0")["01-back.patch"]
    assert row["result"] == "placed"
    assert "undoes upstream: pkg/app.py is what it was before" in row["reason"]
    assert "(later)" in row["reason"]


def test_misordered_increments_wait_for_what_they_were_made_on(tmp_path: Path) -> None:
    pile = Pile(tmp_path, {"pkg/app.py": APP})
    pile.step("c-first.patch", {"pkg/app.py": changed(APP, 5)})
    pile.step("b-second.patch", {"pkg/app.py": changed(APP, 5).replace(b"LINE 5", b"Line five")})
    pile.step("a-third.patch", {"pkg/app.py": changed(APP, 5).replace(b"LINE 5", b"line FIVE")})
    rows = pile.rows()
    assert {row["result"] for row in rows.values()} == {"placed"}
    assert "c-first.patch, on which it was made" in rows["b-second.patch"]["reason"]
    assert pile.applied() == pile.tree()


def test_an_unplaceable_input_is_set_aside_whole(tmp_path: Path) -> None:
    pile = Pile(tmp_path, {"pkg/app.py": APP, "pkg/lib.py": APP})
    good = b"--- a/pkg/app.py\n+++ b/pkg/app.py\n@@ -4,3 +4,3 @@\n line 4\n-line 5\n+X\n line 6\n"
    bad = b"--- a/pkg/lib.py\n+++ b/pkg/lib.py\n@@ -4,3 +4,3 @@\n line 4\n-other\n+X\n line 6\n"
    pile.add("01.patch", good + bad)
    row = pile.rows(code=1)["01.patch"]
    assert (row["result"], row["patches"]) == ("unplaceable", [])
    assert "pkg/lib.py: line 10: this file has no line `other`" in row["reason"]
    assert not (pile.stack.folder / "patches/demo/1.0/01.patch").exists()


def test_hostile_paths_and_links(tmp_path: Path) -> None:
    pile = Pile(tmp_path, {"pkg/app.py": APP})
    link = b"diff --git a/%s b/%s\nnew file mode 120000\n--- /dev/null\n+++ b/%s\n"
    link += b"@@ -0,0 +1 @@\n+%s\n\\ No newline at end of file\n"
    pile.add("01-link.patch", link % ((b"pkg/out",) * 3 + (b"../../etc",)))
    pile.add("02-git.patch", b"--- a/.git/config\n+++ b/.git/config\n@@ -1 +1 @@\n-a\n+b\n")
    pile.add("03-up.patch", b"--- a/../x\n+++ b/../x\n@@ -1 +1 @@\n-a\n+b\n")
    pile.add("04-root.patch", b"--- /dev/null\n+++ /etc/cron.d/x\n@@ -0,0 +1 @@\n+b\n")
    pile.add("05-nul.patch", b"--- a/pkg/app.py\n+++ b/pkg/app.py\n@@ -1 +1 @@\n-a\0\n+b\n")
    pile.add("06-bad-utf8.patch", b"--- a/\xff\xfe\n+++ b/\xff\xfe\n@@ -1 +1 @@\n-\xff\n+\xfe\n")
    pile.add("07-good-link.patch", link % ((b"pkg/in",) * 3 + (b"app.py",)))
    rows = pile.rows(code=1)
    assert {name: row["result"] for name, row in rows.items()} == {
        "01-link.patch": "unplaceable", "02-git.patch": "damaged", "03-up.patch": "damaged",
        "04-root.patch": "other", "05-nul.patch": "damaged", "06-bad-utf8.patch": "other",
        "07-good-link.patch": "placed",
    }
    assert not (tmp_path / "x").exists()


def test_mail_keeps_its_words_and_well_formed_mail_its_strict_reader(tmp_path: Path) -> None:
    pile = Pile(tmp_path, {"pkg/app.py": APP})
    pile.upstream.commit("[Core] Five\n\nWords.\n\nWhy: a reason\n", {
        "pkg/app.py": changed(APP, 5)
    })
    (mail,) = pile.upstream.patches("v1.0", tmp_path / "mails")
    pile.add("01.patch", mail.read_bytes().replace(b"@@ -2,7 +2,7 @@", b"@@ -2,6 +2,6 @@"))
    strict = pile.stack("import", pile.inputs / "01.patch")
    assert strict.code == 2
    assert "the hunk goes on" in strict.err
    assert pile.results("--as", "pile") == {"01.patch": "placed"}
    text = (pile.stack.folder / "patches/demo/1.0/five.patch").read_text()
    assert "Subject: [Core] Five\n" in text
    assert "Why: a reason\n" in text
    assert "hunk counts differ from the body" in text
    same = pile.stack("import", mail, "--json").json["data"]
    assert "inputs" in same
    assert same["bases"]["demo"]["line"] == "demo/1.0"
