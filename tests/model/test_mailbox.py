"""Mailboxes are cut where mails begin, and nowhere else."""

from __future__ import annotations

import pytest

from stack.model.mail.mailbox import split_mailbox

START = b"From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001\n"
MAIL = START + b"From: A <a@b>\nSubject: x\n\ntext\n\ndiff --git a/f b/f\n+x\n"


@pytest.mark.parametrize("between", [b"", b"\n", b"-- \n2.39.5\n\n", b"-- \n2.39.5\n"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_mails_of_format_patch(between: bytes, end: bytes) -> None:
    parts = [(MAIL + between).replace(b"\n", end) for _ in range(3)]
    lines = parts[0].count(b"\n")
    assert split_mailbox(b"".join(parts)) == [(1 + n * lines, parts[n]) for n in range(3)]


def test_other_mailers() -> None:
    first = b"From ann@example.com Fri Jan  2 03:04:05 2026\nSubject: a\n\ntext\n\n"
    second = b"From bob Fri Jan  2 03:04:06 2026\nSubject: b\n\nmore\n"
    assert split_mailbox(first + second) == [(1, first), (6, second)]


@pytest.mark.parametrize(
    "text",
    [
        b"no start line\n\n" + MAIL,
        MAIL.replace(b"text\n", b"text\nFrom here on it is text 2026\n"),
        MAIL.replace(b"text\n", b"text\nFrom bob Fri Jan  2 03:04:06 2026\nmore\n"),
        MAIL.replace(b"text\n", b"text\n\n From bob Fri Jan  2 03:04:06 2026\n"),
        MAIL.replace(b"+x\n", b" " + START),
        b"",
    ],
)
def test_what_is_one_mail_stays_one(text: bytes) -> None:
    assert split_mailbox(text) == [(1, text)]
