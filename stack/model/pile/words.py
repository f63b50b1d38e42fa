"""The message of a patch that comes from a pile, and what its labels suggest."""

from __future__ import annotations

import re

from stack.model.line.line import PatchKind, Reason

_CUT = re.compile(r"^(?=diff -|Index: |---|From [0-9a-f]{7})", re.MULTILINE)
_STAMP = re.compile(r"^(?:\d{8}(?:[-_T]?\d{4,6})?|\d{4}-\d\d-\d\d|\d+)[-_.T ]+")
_HEAD = re.compile(r"^#+\s*")
_LABELS: tuple[tuple[str, PatchKind | None, Reason | None], ...] = (
    (r"negative|regress(?:ion|es)|slower|reverted|failed|dead[-_ ]?end", None, "negative"),
    (r"neutral|no[-_ ]gain|no[-_ ]effect|noise", None, "neutral"),
    (r"experiment(?:al)?|wip|probe|try|draft", "experiment", None),
)
_LONGEST = 90


def subject_of(stem: str, words: str) -> str:
    """One line for a patch: the first of its words that is short and no file name, else its name.

    `stem` is the file's name without suffixes.
    """
    first = next((_HEAD.sub("", row.strip()) for row in words.splitlines() if row.strip()), "")
    plain = 8 <= len(first) <= _LONGEST and " " in first and not re.match(r"[\w-]+: *\S+$", first)
    if plain and first[0].isalnum():
        return first.rstrip(".:")
    name = _STAMP.sub("", stem)
    text = " ".join(re.findall(r"[^\s_-]+", name)) or stem
    return text[:1].upper() + text[1:]


def body_of(file: str, how: str, words: str, flags: tuple[str, ...]) -> str:
    """Where a patch comes from, how it was placed, and its own words, safe inside a mail."""
    said = f"Imported from {file}" + (f" ({how})" if how else "") + "."
    parts = [said]
    if flags:
        parts.append("The diff had " + "; ".join(flags) + ".")
    clean = "".join(letter for letter in words if letter.isprintable() or letter in "\n\t")
    clean = _CUT.sub(" ", clean).strip("\n")
    if clean.strip():
        parts.append(clean.rstrip())
    return "\n\n".join(part for part in parts if part)


def labels(*texts: str) -> list[tuple[str, PatchKind | None, Reason | None]]:
    """The labels in names and words: the word itself, and the kind or reason that it suggests."""
    found = []
    for pattern, kind, reason in _LABELS:
        for text in texts:
            if match := re.search(rf"(?<![a-z])(?:{pattern})(?![a-z])", text.lower()):
                found.append((match[0], kind, reason))
                break
    return found


def suggestion(label: str, kind: PatchKind | None, reason: Reason | None, alive: int, of: int
               ) -> str:
    """What a label suggests, and what speaks against it: labels are no sign of life."""
    what = f"park as {reason}" if reason else f"kind {kind}"
    lives = f"{alive} of its {of} added lines stand at the end" if of else "it adds no lines"
    return f"labelled `{label}`: {what}? {lives}"
