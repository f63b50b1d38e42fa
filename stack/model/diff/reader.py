"""The lines of a diff with the number of the current one, for messages that name file and line."""

from __future__ import annotations

from stack.errors import BadPatch


class Reader:
    """The lines of a diff with the number of the current one."""

    def __init__(self, lines: list[bytes], name: str, first: int) -> None:
        self.lines, self.name, self.first, self.at = lines, name, first, 0

    def peek(self) -> bytes | None:
        return self.lines[self.at] if self.at < len(self.lines) else None

    def take(self) -> bytes:
        if self.at >= len(self.lines):
            raise self.bad("the patch ends in the middle of a file: it is truncated")
        self.at += 1
        return self.lines[self.at - 1]

    def bad(self, why: str, *, hint: str | None = None, back: int = 0) -> BadPatch:
        """An error at the current line, or at one `back` lines before it."""
        return BadPatch(f"{self.name}:{self.first + self.at - back}: {why}", hint=hint)


def show(text: bytes) -> str:
    return ascii(text.strip().decode("utf-8", "replace")[:80])[1:-1]
