"""The rules of `lint` that need no source, with git as the judge of whitespace."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from stack.model.diff.parse import parse_diff
from stack.model.line import lint
from stack.model.line.line import Member
from stack.model.mail.mail import parse_mail
from tests.support.repo import RepoBuilder


def subject_of(path: Path) -> lint.Subject:
    mail = parse_mail(path.read_bytes(), path.name)
    files = parse_diff(mail.diff, path.name, first=mail.diff_line)
    return lint.Subject(file=path.name, member=Member(name="p"), mail=mail, files=files)


@pytest.mark.parametrize("seed", range(3))
def test_whitespace_is_what_git_finds(upstream: RepoBuilder, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    rows = ["".join(chance.choices(" \tx\r", k=chance.randint(0, 6))) for _ in range(120)]
    upstream.commit("rows", {"rows.txt": "\n".join([*rows, "end\n"]).encode()})
    (path,) = upstream.patches("v1.0", tmp_path / "mails")
    said = upstream.git("diff", "--check", "v1.0", "HEAD", check=False).decode()
    wanted = {int(number) for number in re.findall(r"^rows\.txt:(\d+): ", said, re.MULTILINE)}
    raw = path.read_bytes().split(b"\n")
    first = raw.index(b"@@ -0,0 +1,121 @@") + 1
    found = {one.line - first for one in lint.whitespace(subject_of(path))}
    assert found == wanted
    assert len(wanted) > 20


def test_a_blank_line_at_the_end_of_a_new_file(upstream: RepoBuilder, tmp_path: Path) -> None:
    upstream.commit("rows", {"rows.txt": b"x\n\n"})
    (path,) = upstream.patches("v1.0", tmp_path / "mails")
    (found,) = lint.whitespace(subject_of(path))
    assert path.read_bytes().split(b"\n")[found.line - 1] == b"+"


def test_a_file_of_carriage_returns_may_get_more_of_them(
    upstream: RepoBuilder, tmp_path: Path
) -> None:
    upstream.commit("dos", {"dos.txt": b"a\r\nb\r\n"})
    base = upstream.head()
    upstream.commit("more", {"dos.txt": b"a\r\nb\r\nc\r\n"})
    (path,) = upstream.patches(base, tmp_path / "mails")
    assert list(lint.whitespace(subject_of(path))) == []


@pytest.mark.parametrize(
    "status",
    [
        "Pending", "Pending [after the release]", "Submitted [https://example.com/1]",
        "Backport [0123abc]", "Denied", "Denied [they said no]", "Inappropriate [hardware we own]",
        "Inactive-Upstream [no commit since 2020]", "Pending\nwith a second line",
    ],
)
def test_openembedded_words_are_taken(status: str, upstream: RepoBuilder, tmp_path: Path) -> None:
    text = status.replace("\n", "\n ")
    upstream.commit(
        f"x\n\nWhy: reason\nUpstream-Status: {text}\nPatch-Id: 00\n", {"x.txt": b"x\n"}
    )
    (path,) = upstream.patches("v1.0", tmp_path / "mails")
    assert list(lint.header(subject_of(path))) == []
