"""Mail patches: what git's own reader says of them is what we say."""

from __future__ import annotations

import base64
import quopri
import subprocess
from email.utils import formatdate
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stack.errors import BadPatch
from stack.model.mail.mail import Mail, parse_mail, render_message, split_message
from stack.model.objects import Commit, Person
from stack.repo.client import Git
from stack.repo.format import format_commits
from stack.repo.odb import ObjectStore
from tests.support.repo import RepoBuilder

DIFF = b"diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n"
HEAD = (
    b"From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001\n"
    b"From: Ann Author <ann@example.com>\n"
    b"Date: Fri, 2 Jan 2026 03:04:05 +0100\n"
)


def mail(
    subject: bytes = b"Say b", body: bytes = b"", extra: bytes = b"", diff: bytes = DIFF
) -> bytes:
    return HEAD + extra + b"Subject: " + subject + b"\n\n" + body + b"---\n\n" + diff


def mailinfo(raw: bytes, tmp: Path) -> tuple[dict[str, str], bytes, bytes]:
    """Headers, message and diff as `git am --keep-non-patch` takes them."""
    message, diff = tmp / "message", tmp / "diff"
    argv = ["git", "mailinfo", "-b", str(message), str(diff)]
    done = subprocess.run(argv, input=raw, capture_output=True, check=True)
    rows = (line.partition(": ") for line in done.stdout.decode().splitlines())
    return {key: value for key, _, value in rows}, message.read_bytes(), diff.read_bytes()


def agrees(raw: bytes, tmp: Path) -> Mail:
    """Ours and git's reading are the same; ours."""
    ours = parse_mail(raw, "x.patch")
    headers, message, diff = mailinfo(raw, tmp)
    assert ours.author.name.decode() == headers["Author"]
    assert ours.author.email.decode() == headers["Email"]
    assert ours.subject == headers["Subject"]
    text = ours.message.partition(b"\n")[2].strip(b"\n")
    assert text == message.strip(b"\n")
    assert ours.diff.strip() == diff[diff.index(b"diff -") :].strip()
    return ours


@pytest.mark.parametrize(
    "subject",
    [
        b"Say b",
        b"[PATCH] Say b",
        b"[PATCH v3 02/10] Say b",
        b"[Bugfix][XPU] Say b",
        b"[PATCH] [Bugfix][XPU] Say b",
        b"[XPU] [PATCH 1/2] Say b",
        b"[Dispatch] Say b",
        b"[patch] Say b",
        b"Re: [PATCH] Say b",
        b"RE: re: Say b",
        b"aw: Say b",
        b'Revert "[PATCH] x"',
        b"[unclosed Say b",
        b"a folded\n subject that goes on",
        b"a folded\n\tsubject with a tab",
        b"=?UTF-8?q?Gr=C3=BC=C3=9Fe?=",
        b"=?UTF-8?b?R3LDvMOfZQ==?= and more",
        b"=?ISO-8859-1?Q?Gr=FC=DFe_an_alle?=",
        b"=?UTF-8?q?=5BXPU=5D=20Gr=C3=BC=C3=9Fe?=\n =?UTF-8?q?=20an=20alle?=",
        "[XPU] raw Gr\u00fc\u00dfe".encode(),
    ],
)
def test_subjects(subject: bytes, tmp_path: Path) -> None:
    agrees(mail(subject), tmp_path)


@pytest.mark.parametrize(
    "who",
    [
        b"Ann Author <ann@example.com>",
        b"ann@example.com",
        b"<ann@example.com>",
        b'"Author, Ann" <ann@example.com>',
        b'"Ann \\"A\\" Author" <ann@example.com>',
        b"=?UTF-8?q?J=C3=B6rg=20M=C3=BCller?= <joerg@example.com>",
        b"=?UTF-8?q?M=C3=BCller=2C=20J=C3=B6rg?= <joerg@example.com>",
        b"=?ISO-8859-1?Q?J=F6rg?= M <joerg@example.com>",
        "J\u00f6rg <joerg@example.com>".encode(),
        b"Ann (Team X) Author <ann@example.com>",
        b"ann@example.com (Ann Author)",
    ],
)
def test_authors(who: bytes, tmp_path: Path) -> None:
    raw = mail().replace(b"From: Ann Author <ann@example.com>", b"From: " + who)
    agrees(raw, tmp_path)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"Plain text.\n",
        b"Two\n\nparagraphs.\n",
        b"Many\n\n\n\nempty lines.\n",
        b"From: Other One <other@example.com>\n\nIn-body author.\n",
        b"From: Other One <other@example.com>\nSubject: [XPU] In-body subject\n\nText.\n",
        b"Text with --- inside.\n--- \n",
        b"Text.\n---foo is not a break\n",
        b"Text.\n\n  indented:\n  diff --git a/x b/x\n",
        b"See\n\nhttps://example.com/a?b=c\n",
        b"Text.\n\nWhy: one paragraph\n that goes on\nPatch-Id: abc\n",
        b"Text.\n\nWhy: a tab\n\tgoes on\nPatch-Id: abc\n",
        b"Text.\n\nWhy:\n it starts below\nPatch-Id: abc\n",
        b"Text.\n\nFixes:#12\nPatch-Id: abc\n",
        b"Text.\n\nWhy:   spaces\nPatch-Id: abc\n",
        b"note: one line that only looks like a trailer\n",
    ],
)
def test_bodies(body: bytes, tmp_path: Path) -> None:
    agrees(mail(body=body), tmp_path)


def test_trailers_are_read_and_folded() -> None:
    found = parse_mail(mail(body=b"Text.\n\nWhy: one\n two\nPatch-Id: abc\n"), "x.patch")
    assert found.body == "Text."
    assert found.trailers == (("Why", "one\ntwo"), ("Patch-Id", "abc"))
    assert found.trailer("patch-id") == "abc"
    assert found.trailer("nothing") is None


@pytest.mark.parametrize(
    ("encoding", "coded"),
    [
        (b"quoted-printable", quopri.encodestring),
        (b"base64", base64.encodebytes),
        (b"8bit", lambda text: text),
    ],
)
def test_transfer_encodings(encoding: bytes, coded: object, tmp_path: Path) -> None:
    text = "Gr\u00fc\u00dfe = nichts\n---\n\n".encode() + DIFF
    head = (
        HEAD + b"Subject: Say b\nMIME-Version: 1.0\nContent-Type: text/plain; charset=UTF-8\n"
        b"Content-Transfer-Encoding: " + encoding + b"\n\n"
    )
    found = agrees(head + coded(text), tmp_path)  # type: ignore[operator]
    assert found.body == "Gr\u00fc\u00dfe = nichts"


def test_a_latin_1_body_becomes_utf_8(tmp_path: Path) -> None:
    extra = b"Content-Type: text/plain; charset=ISO-8859-1\nContent-Transfer-Encoding: 8bit\n"
    assert agrees(mail(body=b"Gr\xfc\xdfe\n", extra=extra), tmp_path).body == "Gr\u00fc\u00dfe"


def test_a_mail_that_was_turned_to_crlf_as_a_whole_reads_like_the_original(tmp_path: Path) -> None:
    raw = mail(body=b"Text.\n\nPatch-Id: abc\n")
    ours = parse_mail(raw.replace(b"\n", b"\r\n"), "x.patch")
    plain = parse_mail(raw, "x.patch")
    assert (ours.message, ours.diff, ours.author) == (plain.message, plain.diff, plain.author)


def test_carriage_returns_of_the_patched_file_are_kept() -> None:
    diff = DIFF.replace(b"-a\n+b\n", b"-a\r\n+b\r\n")
    assert parse_mail(mail(diff=diff), "x.patch").diff == diff


@pytest.mark.parametrize(
    "charset", [b"idna", b"punycode", b"undefined", b"rot13", b"hex", b"none", b"unicode_escape"]
)
def test_an_odd_charset_is_no_crash(charset: bytes) -> None:
    extra = b"Content-Type: text/plain; charset=" + charset + b"\n"
    assert parse_mail(mail(body=b"Gr\xfc\xdfe \xff\n", extra=extra), "x.patch").body


def test_the_diff_line_is_the_files_own() -> None:
    raw = mail(body=b"One.\nTwo.\n")
    found = parse_mail(raw, "x.patch")
    assert raw.split(b"\n")[found.diff_line - 1] == b"diff --git a/f b/f"
    assert found.raw is raw


@pytest.mark.parametrize(
    ("date", "stamp"),
    [
        (b"Fri, 2 Jan 2026 03:04:05 +0100", b"1767319445 +0100"),
        (b"Fri, 2 Jan 2026 03:04:05 -0330", b"1767335645 -0330"),
        (b"Fri, 2 Jan 2026 03:04:05 +0000", b"1767323045 +0000"),
        (b"Fri, 2 Jan 2026 03:04:05 -0000", b"1767323045 +0000"),
        (b"2 Jan 2026 03:04:05 +0200", b"1767315845 +0200"),
    ],
)
def test_dates(
    date: bytes, stamp: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = mail().replace(b"Fri, 2 Jan 2026 03:04:05 +0100", date)
    for zone in ("UTC", "Asia/Tokyo"):
        monkeypatch.setenv("TZ", zone)
        import time

        time.tzset()
        assert parse_mail(raw, "x.patch").author.date == stamp
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "x.patch:1: not a patch in mail format: no `From:` header"),
        (b"hello\nworld\n", "x.patch:1: not a patch in mail format: no `From:` header"),
        (DIFF, "x.patch:1: not a patch in mail format: no `From:` header"),
        (HEAD + b"\n" + DIFF, "x.patch:1: not a patch in mail format: no `Subject:` header"),
        (HEAD + b"Subject: x\n\nno diff\n", "x.patch:7: the mail ends without a diff: it is"),
        (mail().replace(b"2 Jan", b"x Foo"), "x.patch:1: no date, or one that cannot"),
        (mail().replace(b"<ann@example.com>", b""), "x.patch:1: no e-mail address in `From: Ann"),
    ],
)
def test_what_is_no_mail_patch_is_refused(raw: bytes, message: str) -> None:
    with pytest.raises(BadPatch) as wrong:
        parse_mail(raw, "x.patch")
    assert wrong.value.message.startswith(message)


@settings(max_examples=300)
@given(st.data())
def test_no_damage_to_a_mail_is_anything_but_a_bad_patch(data: st.DataObject) -> None:
    extra = b"Content-Type: text/plain; charset=UTF-8\nContent-Transfer-Encoding: base64\n"
    extra = data.draw(st.sampled_from([b"", extra]))
    raw = bytearray(mail(b"=?UTF-8?q?Gr=C3=BC=C3=9Fe?=", b"Text.\n\nWhy: x\n", extra))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw)))
        raw[at : at + data.draw(st.integers(0, 8))] = data.draw(st.binary(max_size=6))
    said = "x.patch:"
    try:
        parse_mail(bytes(raw), "x.patch")
    except BadPatch as wrong:
        said = wrong.message
    assert said.startswith("x.patch:")


printable = st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp", "Co", "Cn"))
word = st.text(printable, min_size=1, max_size=12).map(str.strip).filter(bool)
sentence = st.lists(word, min_size=1, max_size=14).map(" ".join)
paragraph = st.lists(sentence, min_size=1, max_size=3).map("\n".join)
trailer = st.tuples(st.sampled_from(["Why", "Patch-Id", "Fixes"]), sentence)


@settings(max_examples=120)
@given(
    subject=sentence, name=word, paragraphs=st.lists(paragraph, max_size=3),
    trailers=st.lists(trailer, max_size=2), zone=st.sampled_from([b"+0000", b"-0330", b"+1245"]),
)
def test_a_commit_comes_back_from_its_mail(
    commits: ObjectStore, subject: str, name: str, paragraphs: list[str],
    trailers: list[tuple[str, str]], zone: bytes,
) -> None:
    """`parse(format(commit)) == commit`, whatever the words are, or the commit is not mailable."""
    from stack.errors import StateError
    from stack.repo.format import refuse_unmailable

    name = "".join(c for c in name if c not in "<>\n").strip(" .,:;\"'\\") or "Ann"
    subject = " ".join(subject.split())
    message = render_message(subject, "\n\n".join(paragraphs), tuple(trailers))
    try:
        refuse_unmailable(message, "0" * 40)
    except StateError:
        return
    who = Person(name.encode(), b"ann@example.com", b"1767323045 " + zone)
    base = commits.git.run("rev-parse", "base").text
    tree = commits.git.run("rev-parse", "base~1^{tree}").text
    commit = Commit(tree=tree, parents=(base,), author=who, committer=who, message=message)
    made = commits.git.run("hash-object", "-w", "-t", "commit", "--stdin", stdin=commit.render())
    (raw,) = format_commits(commits.git, base, made.text)
    found = parse_mail(raw, "x.patch")
    assert found.message == message
    assert found.author == who
    assert render_message(*split_message(message)) == message


@pytest.fixture(scope="module")
def commits(tmp_path_factory: pytest.TempPathFactory) -> object:
    folder = tmp_path_factory.mktemp("commits") / "repo"
    import os

    names = ("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL")
    with pytest.MonkeyPatch.context() as patch:
        for each in names:
            patch.setenv(each, "a@b.c")
        patch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
        repo = RepoBuilder(folder)
        repo.commit("one", {"f": b"a\n"})
        repo.commit("two", {"f": b"b\n"})
        repo.git("tag", "base")
    with ObjectStore(Git(folder / ".git")) as odb:
        yield odb


def test_a_date_of_another_writer_is_the_same_moment() -> None:
    raw = mail().replace(b"Fri, 2 Jan 2026 03:04:05 +0100", formatdate(1767323045).encode())
    assert parse_mail(raw, "x.patch").author.date == b"1767323045 +0000"
