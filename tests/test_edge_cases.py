"""Patches as the world has them: what `import` and `apply` make of each, byte for byte.

Every row is a case in which some well-known tool lost, moved or refused something. `git apply` and
`git am` are the oracle where they are right.
"""

from __future__ import annotations

import base64
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from tests.conftest import numbered
from tests.support.cli import Stack
from tests.support.faults import Ran, Server
from tests.support.repo import RepoBuilder

TEXT = numbered(12)
BLOCKS = b"".join(b"begin\n  a\n  b\n  c\nend\n" for _ in range(6))
CRLF = TEXT.replace(b"\n", b"\r\n")
BLOB = bytes(range(256))
FILES = {
    "text": TEXT, "blocks": BLOCKS, "crlf": CRLF, "bare": b"one\ntwo\nthree", "empty": b"",
    "bin": BLOB, "a": b"a\n" * 9, "b": b"b\n" * 9, "sp ace": TEXT, "tab\there": TEXT,
    "latin": "gr\xfc\xdfe\n".encode("latin-1"), "gap": b"one\n\n\ntwo\n\nthree\n",
}  # fmt: skip
Tree = dict[str, tuple[str, bytes]]


class Case:
    """A project whose upstream has every kind of file; each test imports into a copy of it."""

    def __init__(self, template: Path, upstream: RepoBuilder, folder: Path, server: Server) -> None:
        self.upstream, self.server, self.folder = upstream, server, folder
        shutil.copytree(template, folder, symlinks=True)
        upstream.git("reset", "--quiet", "--hard", "v1.0")
        upstream.git("clean", "--quiet", "-fdx")

    def run(self, *arguments: str | Path) -> Ran:
        return self.server.run(self.folder, *arguments)

    def mail(self, data: bytes, name: str = "one.patch") -> Path:
        path = self.folder.parent / name
        path.write_bytes(data)
        return path

    def applied(self, *arguments: str | Path) -> Tree:
        """Import, apply, and give every file with its mode."""
        done = self.run("import", "--upstream", "demo@1.0", *arguments)
        assert done.code == 0, done
        done = self.run("apply")
        assert done.code == 0, done
        return tree_of(self.folder / ".stack/workspaces/demo/1.0/tree")

    def refused(self, *arguments: str | Path) -> str:
        """Import that must not succeed; no patch is written, and what it said."""
        before = tree_of(self.folder / "patches")
        done = self.run("import", "--upstream", "demo@1.0", *arguments)
        assert done.code in (1, 2, 3), done
        after = tree_of(self.folder / "patches")
        after.pop("imported.toml", None)  # the list of what was set aside, and why
        assert after == before
        return done.out + done.err

    def changed(self, **files: bytes | None) -> Path:
        """The mail of an upstream commit with these changes."""
        return self.committed("Change", {name.replace("__", " "): f for name, f in files.items()})

    def committed(self, message: str, files: dict[str, bytes | None]) -> Path:
        self.upstream.commit(message, files)
        (mail,) = self.upstream.patches("HEAD~1", self.folder.parent / self.upstream.head())
        return mail

    def expected(self) -> Tree:
        """What upstream has now: the oracle."""
        return tree_of(self.upstream.folder)


def tree_of(folder: Path) -> Tree:
    """Every file of a work tree: kind and content."""
    found: Tree = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if name.split("/", maxsplit=1)[0] == ".git" or (path.is_dir() and not path.is_symlink()):
            continue
        if path.is_symlink():
            found[name] = "link", bytes(path.readlink())
        else:
            mode = "x" if path.stat().st_mode & stat.S_IXUSR else "-"
            found[name] = mode, path.read_bytes()
    return found


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RepoBuilder]:
    """The upstream and a project with an empty line of it; made once, with the seal of one test."""
    root = tmp_path_factory.mktemp("edge")
    upstream = RepoBuilder(root / "upstream")
    upstream.git("config", "user.name", "Ann")
    upstream.git("config", "user.email", "ann@example.com")
    upstream.commit("begin", dict(FILES))
    upstream.git("tag", "v1.0")
    folder = root / "project"
    folder.mkdir()
    stack = Stack(folder)
    stack.ok("init")
    stack.ok("upstream", "add", "demo", str(upstream.folder))
    stack.ok("line", "add", "demo@v1.0")
    return folder, upstream


@pytest.fixture
def case(template: tuple[Path, RepoBuilder], tmp_path: Path, server: Server) -> Case:
    return Case(*template, tmp_path / "project", server)


def mail(diff: bytes, subject: bytes = b"[PATCH] Case") -> bytes:
    """A mail with a diff as git would send it."""
    return (
        b"From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001\n"
        b"From: Ann <ann@example.com>\nDate: Fri, 2 Jan 2026 03:04:05 +0000\n"
        b"Subject: " + subject + b"\n\nBody.\n---\n" + diff
    )


def hunk(name: bytes, header: bytes, lines: bytes) -> bytes:
    """One section with one hunk."""
    return (
        b"diff --git a/%(n)s b/%(n)s\n--- a/%(n)s\n+++ b/%(n)s\n" % {b"n": name}
        + header + b"\n" + lines
    )


SEVENTH = b" line 6\n-line 7\n+seventh\n line 8\n"
SEVENTH_AT = b"@@ -6,3 +6,3 @@"
WITH_SEVENTH = TEXT.replace(b"line 7\n", b"seventh\n")


def test_carriage_returns_in_the_content_are_kept(case: Case) -> None:
    path = case.changed(crlf=CRLF.replace(b"line 7\r\n", b"seventh\r\n"))
    assert case.applied(path) == case.expected()


def test_a_patch_file_with_carriage_returns_everywhere(case: Case) -> None:
    path = case.changed(text=WITH_SEVENTH)
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert case.applied(path) == case.expected()


def test_line_endings_that_differ_are_named(case: Case) -> None:
    said = case.refused(case.mail(mail(hunk(b"crlf", SEVENTH_AT, SEVENTH))))
    assert "line endings" in said


@pytest.mark.parametrize(
    "data",
    [b"ONE\ntwo\nTHREE", b"one\ntwo\nthree\n", b"one\ntwo\nthree\nfour", b"one\ntwo"],
)
def test_files_without_a_final_newline(case: Case, data: bytes) -> None:
    assert case.applied(case.changed(bare=data)) == case.expected()


def test_a_mode_alone(case: Case) -> None:
    case.upstream.git("update-index", "--chmod=+x", "text")
    case.upstream.git("commit", "--quiet", "-m", "x")
    case.upstream.git("checkout", "--", "text")
    (path,) = case.upstream.patches("HEAD~1", case.folder.parent / "mails")
    assert case.applied(path)["text"] == ("x", TEXT)


def test_renames_and_copies(case: Case) -> None:
    """A whole rename; a rename with edit and mode; a copy whose source is edited as well."""
    repo = case.upstream
    repo.git("mv", "a", "moved")
    repo.git("mv", "sp ace", "new place")
    repo.write({"new place": WITH_SEVENTH, "copied": TEXT, "text": WITH_SEVENTH})
    (repo.folder / "new place").chmod(0o755)
    repo.git("add", "--all")
    repo.git("commit", "--quiet", "-m", "moves")
    data = repo.git(
        "format-patch", "--stdout", "--keep-subject", "-M", "-C", "--find-copies-harder", "-1"
    )
    assert b"rename from" in data
    assert b"copy from" in data
    assert case.applied(case.mail(data)) == case.expected()


def test_two_files_that_change_places(case: Case) -> None:
    diff = (
        b"diff --git a/a b/b\nsimilarity index 100%\nrename from a\nrename to b\n"
        b"diff --git a/b b/a\nsimilarity index 100%\nrename from b\nrename to a\n"
    )
    tree = case.applied(case.mail(mail(diff)))
    assert (tree["a"][1], tree["b"][1]) == (FILES["b"], FILES["a"])


def test_binary_content(case: Case) -> None:
    assert case.applied(case.changed(bin=BLOB[::-1], more=BLOB * 3)) == case.expected()


def test_binary_without_its_content_is_refused(case: Case) -> None:
    diff = b"diff --git a/bin b/bin\nindex 1234567..89abcde 100644\n"
    said = case.refused(case.mail(mail(diff + b"Binary files a/bin and b/bin differ\n")))
    assert "inary" in said


def test_empty_files_come_and_go(case: Case) -> None:
    path = case.committed("empty", {"empty": None, "void": b"", "deep/er/void": b""})
    assert case.applied(path) == case.expected()


def test_names_with_spaces_tabs_and_bytes(case: Case) -> None:
    other = "gr\udcfc\udcdfe"  # latin-1 on disk
    files = {"sp ace": WITH_SEVENTH, "tab\there": WITH_SEVENTH, other: TEXT, "ümlaut": TEXT}
    assert case.applied(case.committed("names", files)) == case.expected()


def test_content_that_is_not_utf_8(case: Case) -> None:
    assert case.applied(case.changed(latin="Gr\xfc\xdfe\n".encode("latin-1"))) == case.expected()


def test_a_hunk_that_goes_on_past_its_count(case: Case) -> None:
    data = mail(hunk(b"text", SEVENTH_AT, SEVENTH + b"+added\n"))
    before = tree_of(case.folder / "patches")
    done = case.run("import", "--upstream", "demo@1.0", case.mail(data))
    if done.code == 0:  # taken as the pile of a person who edits diffs: the line is not lost
        assert case.run("apply").code == 0
        tree = tree_of(case.folder / ".stack/workspaces/demo/1.0/tree")
        assert tree["text"][1] == WITH_SEVENTH.replace(b"line 8\n", b"line 8\nadded\n")
        assert "count" in done.out + done.err
    else:
        assert tree_of(case.folder / "patches") == before
        assert "one.patch" in done.out + done.err


def test_a_hunk_that_ends_before_its_count(case: Case) -> None:
    path = case.mail(mail(hunk(b"text", b"@@ -6,9 +6,9 @@", SEVENTH)))
    done = case.run("import", "--upstream", "demo@1.0", path)
    if done.code == 0:
        assert case.run("apply").code == 0
        tree = tree_of(case.folder / ".stack/workspaces/demo/1.0/tree")
        assert tree["text"][1] == WITH_SEVENTH
        assert "count" in done.out + done.err
    else:
        assert "one.patch" in done.out + done.err


def test_blank_context_lines_that_an_editor_stripped(case: Case) -> None:
    lines = b" one\n\n\n-two\n+TWO\n\n three\n"
    tree = case.applied(case.mail(mail(hunk(b"gap", b"@@ -1,6 +1,6 @@", lines))))
    assert tree["gap"][1] == FILES["gap"].replace(b"two", b"TWO")


def test_there_already_drifted_and_ambiguous_are_told_apart(case: Case) -> None:
    there = hunk(b"text", b"@@ -6,3 +6,3 @@", b" line 6\n-gone\n+line 7\n line 8\n")
    drifted = hunk(b"text", b"@@ -6,3 +6,3 @@", b" line six\n-line seven\n+7\n line eight\n")
    twice = hunk(b"blocks", b"@@ -300,3 +300,3 @@", b"   a\n-  b\n+  B\n   c\n")
    said = [case.refused(case.mail(mail(diff))) for diff in (there, drifted, twice)]
    assert len(set(said)) == 3, said


def test_one_of_equal_blocks_is_changed_where_the_patch_says(case: Case) -> None:
    third = BLOCKS.replace(b"  b\n", b"  B\n", 3).replace(b"  B\n", b"  b\n", 2)
    assert case.applied(case.changed(blocks=third))["blocks"][1] == third


def test_a_hunk_without_a_file(case: Case) -> None:
    case.refused(case.mail(SEVENTH_AT + b"\n" + SEVENTH))


def test_links(case: Case) -> None:
    repo = case.upstream
    (repo.folder / "link").symlink_to("text")
    (repo.folder / "a").unlink()
    (repo.folder / "a").symlink_to("b")
    repo.git("add", "--all")
    repo.git("commit", "--quiet", "-m", "links")
    (path,) = repo.patches("HEAD~1", case.folder.parent / "mails")
    assert case.applied(path) == case.expected()


def new_file(name: bytes, data: bytes, mode: bytes = b"100644") -> bytes:
    rows = data.split(b"\n")
    end = b"" if data.endswith(b"\n") else b"\n\\ No newline at end of file\n"
    body = b"\n".join(b"+" + row for row in (rows[:-1] if data.endswith(b"\n") else rows))
    count = len(rows) - data.endswith(b"\n")
    return (
        b"diff --git a/%(n)s b/%(n)s\nnew file mode %(m)s\n--- /dev/null\n+++ b/%(n)s\n"
        % {b"n": name, b"m": mode}
        + b"@@ -0,0 +1,%d @@\n" % count + body + (end or b"\n")
    )


@pytest.mark.parametrize(
    "diff",
    [
        new_file(b"../outside", b"x\n"),
        new_file(b"/etc/outside", b"x\n"),
        new_file(b".git/hooks/post-checkout", b"#!/bin/sh\n", b"100755"),
        new_file(b".GIT/hooks/post-checkout", b"#!/bin/sh\n", b"100755"),
        new_file(b"deep/.git/config", b"x\n"),
        new_file(b"out", b"/tmp", b"120000") + new_file(b"out/written", b"x\n"),
        new_file(b"git~1/config", b"x\n"),
    ],
    ids=["parent", "absolute", "hook", "hook-by-case", "nested", "through-a-link", "short-name"],
)
def test_nothing_is_written_outside_or_into_git(case: Case, diff: bytes) -> None:
    case.refused(case.mail(mail(diff)))
    assert not (case.folder.parent / "outside").exists()
    assert not Path("/tmp/written").exists()


def test_a_submodule_is_refused_and_so_is_a_combined_diff(case: Case) -> None:
    bump = (
        b"diff --git a/sub b/sub\nindex 1111111..2222222 160000\n--- a/sub\n+++ b/sub\n"
        b"@@ -1 +1 @@\n-Subproject commit " + b"1" * 40 + b"\n"
        b"+Subproject commit " + b"2" * 40 + b"\n"
    )
    combined = (
        b"diff --cc text\nindex 1,2..3\n--- a/text\n+++ b/text\n"
        b"@@@ -1,1 -1,1 +1,1 @@@\n  x\n"
    )
    for diff in (bump, combined):
        case.refused(case.mail(mail(diff)))


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-le"])
def test_utf_16_is_named(case: Case, codec: str) -> None:
    text = mail(hunk(b"text", SEVENTH_AT, SEVENTH)).decode().encode(codec)
    assert "UTF-16" in case.refused(case.mail(text))


def test_a_byte_order_mark_is_accepted(case: Case) -> None:
    data = b"\xef\xbb\xbf" + hunk(b"text", SEVENTH_AT, SEVENTH)
    assert case.applied(case.mail(data))["text"][1] == WITH_SEVENTH


@pytest.mark.parametrize("indent", [b"", b"  "])
def test_a_diff_in_the_message_stays_message(case: Case, indent: bytes) -> None:
    inside = b"".join(
        indent + line + b"\n"
        for line in hunk(b"a", b"@@ -1,2 +1,2 @@", b" a\n-a\n+z\n").splitlines()
    )
    text = mail(hunk(b"text", SEVENTH_AT, SEVENTH)).replace(b"Body.\n", b"Like so:\n\n" + inside)
    done = case.run("import", "--upstream", "demo@1.0", case.mail(text))
    if done.code == 0:
        assert case.run("apply").code == 0
        tree = tree_of(case.folder / ".stack/workspaces/demo/1.0/tree")
        assert (tree["a"][1], tree["text"][1]) == (FILES["a"], WITH_SEVENTH)
    else:  # where the message cannot be told from the patch, that is said
        assert indent == b""
        assert "one.patch" in done.out + done.err


def test_subject_tags_author_and_date_survive(case: Case) -> None:
    text = mail(hunk(b"text", SEVENTH_AT, SEVENTH), b"[Bugfix][XPU] A =?utf-8?q?gr=C3=BC=C3=9Fe?=")
    case.applied(case.mail(text))
    log = subprocess.run(
        ["git", "log", "-1", "--format=%s|%an|%ae|%at"], check=True, capture_output=True,
        cwd=case.folder / ".stack/workspaces/demo/1.0/tree",
    ).stdout.decode()  # fmt: skip
    assert log == "[Bugfix][XPU] A grüße|Ann|ann@example.com|1767323045\n"


@pytest.mark.parametrize("how", ["base64", "quoted-printable", "8bit"])
def test_transfer_encodings(case: Case, how: str) -> None:
    diff = hunk(b"text", SEVENTH_AT, SEVENTH.replace(b"seventh", "größer".encode()))
    head, _, body = mail(diff).partition(b"\n\n")
    if how == "base64":
        body = base64.encodebytes(body.replace(b"\n", b"\r\n"))
    elif how == "quoted-printable":
        import quopri

        body = quopri.encodestring(body)
    text = (
        head + b"\nMIME-Version: 1.0\nContent-Type: text/plain; charset=UTF-8\n"
        b"Content-Transfer-Encoding: " + how.encode() + b"\n\n" + body
    )
    tree = case.applied(case.mail(text))
    assert tree["text"][1] == TEXT.replace(b"line 7", "größer".encode())


def test_quilts_series_file(case: Case) -> None:
    folder = case.folder.parent / "quilt"
    folder.mkdir()
    plain = b"--- text\n+++ text\n@@ -6,3 +6,3 @@\n" + SEVENTH
    (folder / "zero.patch").write_bytes(plain)
    (folder / "back.patch").write_bytes(
        b"--- a/a\n+++ b/a\n@@ -1,3 +1,3 @@\n-z\n+a\n a\n a\n"
    )
    (folder / "series").write_text("# ours\n\nzero.patch -p0 # no strip\nback.patch -R\n")
    tree = case.applied(folder)
    assert tree["text"][1] == WITH_SEVENTH
    assert tree["a"][1] == b"z\n" + b"a\n" * 8


def test_a_series_file_that_names_what_is_not_there(case: Case) -> None:
    folder = case.folder.parent / "quilt"
    folder.mkdir()
    (folder / "series").write_text("missing.patch\n")
    assert "missing.patch" in case.refused(folder)


def test_two_subjects_that_make_one_name(case: Case) -> None:
    """None is lost, and a name of other letters is readable."""
    mails = [
        case.committed("Fix: it!", {"text": WITH_SEVENTH}),
        case.committed("Fix it", {"a": b"z\n" + b"a\n" * 8}),
    ]
    copies = [case.mail(path.read_bytes(), f"{n}.patch") for n, path in enumerate(mails)]
    assert case.applied(*copies) == case.expected()
    assert len(list((case.folder / "patches/demo/1.0").glob("*.patch"))) == 2


def test_the_whole_series_is_tried_without_writing(case: Case) -> None:
    first = case.committed("one", {"text": WITH_SEVENTH})
    second = case.committed("two", {"text": WITH_SEVENTH.replace(b"line 9\n", b"ninth\n")})
    copies = [case.mail(p.read_bytes(), f"{n}.patch") for n, p in enumerate((first, second))]
    done = case.run("import", "--upstream", "demo@1.0", *copies)
    assert done.code == 0
    before = tree_of(case.folder / ".stack/workspaces")
    assert case.run("apply", "--dry-run").code == 0
    assert tree_of(case.folder / ".stack/workspaces") == before
