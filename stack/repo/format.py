"""Commits as canonical patch mails: one way to write each, so that equal content is equal bytes."""

from __future__ import annotations

import re
import tempfile
import unicodedata
from pathlib import Path

from stack.errors import StateError
from stack.repo.client import Git

_FLAGS = (
    "--keep-subject", "--no-stat", "--no-signature", "--zero-commit", "--full-index", "--binary",
    "--no-color", "--no-ext-diff", "--no-textconv", "--src-prefix=a/", "--dst-prefix=b/",
    "--diff-algorithm=myers", "--find-renames=50%", "--no-indent-heuristic", "--no-attach",
    "--no-thread", "--no-to", "--no-cc", "--numbered-files", "--quiet", "--topo-order",
)
_BREAKS = re.compile(
    rb"^(?:diff -.*|Index: .*|---(?:[ \t]*$| \S.*)|From [0-9a-f]{40} Mon Sep 17 .*)", re.MULTILINE
)
# What a mail reader takes for headers of its own where a message's text begins with it.
_HEADER = re.compile(
    rb"\A(?:[^\S\n]*\S[^\n]*\n)+(?:[^\S\n]*\n)+"  # a subject of one line or more
    rb"((?:from|subject|date):\s.*|\[PATCH\]\s.*|>From\s.*)", re.IGNORECASE,
)


def format_commits(
    git: Git, base: str, head: str, *, context: int = 3, renames: bool = True
) -> list[bytes]:
    """The commits after `base` up to `head`, each as a mail, oldest first; one git process.

    `context` is the number of context lines of each hunk. Without `renames` a renamed file is one
    that goes and one that comes, as programs other than git read it.
    """
    plain = () if renames else ("--no-renames",)
    with tempfile.TemporaryDirectory(prefix="stack-format-") as folder:
        git.run(
            "format-patch", *_FLAGS, *plain, f"--unified={context}", f"--output-directory={folder}",
            f"{base}..{head}",
        )
        names = sorted((path for path in Path(folder).iterdir()), key=lambda path: int(path.name))
        return [path.read_bytes() for path in names]


def refuse_unmailable(message: bytes, where: str) -> None:
    """Raise `StateError` where a message holds a line at which a mail reader would cut it.

    `where` is whose message it is, in the words of an error.
    """
    if found := _BREAKS.search(message):
        line = found[0].decode("utf-8", "replace").strip()
        raise StateError(
            f"{where}: the message has a line `{line}`, where a mail's text ends",
            hint="indent that line or reword it, then run it again",
        )
    if found := _HEADER.match(message):
        line = found[1].decode("utf-8", "replace").strip()
        raise StateError(
            f"{where}: the message's text begins with `{line}`, which a mail reader takes for a "
            "header",
            hint="put a sentence before that line, then run it again",
        )


def slug(subject: str) -> str:
    """A patch name for a subject: its tags left out, lower case, hyphens, at most 60 letters."""
    text = re.sub(r"\A(?:\s*\[[^]]*\])+", "", subject).strip() or subject
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    words = re.findall(r"[a-z0-9]+", plain)
    name = "-".join(words)[:60].rstrip("-")
    return name or "patch"


def unique(name: str, taken: set[str]) -> str:
    """`name`, or with the first free number behind it."""
    if name not in taken:
        return name
    number = 2
    while f"{name}-{number}" in taken:
        number += 1
    return f"{name}-{number}"
