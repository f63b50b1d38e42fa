"""Which literal texts every match of a regular expression contains."""

from __future__ import annotations

import re

SHORTEST = 3
"""A literal below this many bytes is too common to search for."""

Alternatives = list[list[bytes]]
"""For each alternative of an expression the runs of literal bytes that its matches contain."""

_OPTIONAL = re.compile(rb"[?*]|\{0?,\d*\}|\{0\}")
_REPEAT = re.compile(rb"\{\d*,?\d*\}")
_PLAIN_GROUP = re.compile(rb"\((?:\?:|\?P<\w+>|(?!\?))")
_FLAGS = re.compile(rb"\(\?[aiLmsux]+[-:)]")


def required(pattern: bytes) -> Alternatives:
    """Every match of `pattern` contains all runs of at least one of the alternatives.

    An alternative is empty where nothing of `SHORTEST` bytes is certain. What the small parser does
    not understand makes it less certain, never wrong.
    """
    if _FLAGS.match(pattern):
        return [[]]
    return _Parser(pattern).alternation()


class _Parser:
    def __init__(self, pattern: bytes) -> None:
        self._text = pattern
        self._at = 0

    def alternation(self) -> Alternatives:
        """Read to the closing bracket or the end."""
        found = self._branch()
        while self._peek() == b"|":
            self._at += 1
            found += self._branch()
        return found

    def _peek(self) -> bytes:
        return self._text[self._at : self._at + 1]

    def _branch(self) -> Alternatives:
        """One alternative: its own runs, or those of a group in it when they are longer."""
        options: list[Alternatives] = []
        runs: list[bytes] = []
        run = bytearray()
        while (char := self._peek()) not in (b"", b"|", b")"):
            if char == b"\\" and not self._text[self._at + 1 : self._at + 2].isalnum():
                run += self._text[self._at + 1 : self._at + 2]
                self._at += 2
                continue
            if optional := _OPTIONAL.match(self._text, self._at):
                del run[-1:]
                self._at = optional.end()
            elif char in b"\\[(.^$+{":
                if char == b"(" and (inner := self._group()):
                    options.append(inner)
                elif char != b"(":
                    self._skip(char)
            else:
                run += char
                self._at += 1
                continue
            runs.append(bytes(run))
            run.clear()
        runs.append(bytes(run))
        options.append([[r for r in runs if len(r) >= SHORTEST]])
        return max(reversed(options), key=_certainty)

    def _group(self) -> Alternatives | None:
        """The alternatives of a group that must match; None for all others."""
        plain = _PLAIN_GROUP.match(self._text, self._at)
        if not plain:
            self._at = self._closing()
            return None
        self._at = plain.end()
        inner = self.alternation()
        self._at += 1
        return None if _OPTIONAL.match(self._text, self._at) else inner

    def _closing(self) -> int:
        """The index behind the group that opens here."""
        depth = 0
        while True:
            char = self._peek()
            depth += (char == b"(") - (char == b")")
            if char in b"\\[":
                self._skip(char)
            else:
                self._at += 1
            if depth <= 0:
                return self._at

    def _skip(self, char: bytes) -> None:
        """Step over an escape, a character class, a repeat count, or one character."""
        if char == b"[":
            at = self._at + 1
            at += self._text[at : at + 1] == b"^"
            while True:
                at += 2 if self._text[at : at + 1] == b"\\" else 1
                if self._text[at : at + 1] in (b"]", b""):
                    self._at = at + 1
                    return
        if char == b"\\":
            escaped = self._text[self._at + 1 : self._at + 2]
            self._at += 4 if escaped == b"x" else 2
            while escaped.isdigit() and self._peek().isdigit():
                self._at += 1
            return
        repeat = _REPEAT.match(self._text, self._at)
        self._at = repeat.end() if repeat else self._at + 1


def _certainty(alternatives: Alternatives) -> int:
    return min(max((len(run) for run in runs), default=0) for runs in alternatives)
