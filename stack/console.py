"""The only writer to stdout and stderr: data on the one, messages and progress on the other."""

from __future__ import annotations

import os
import secrets
import select
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from stack.errors import StackError
from stack.flows.events import Event, Progress, Said
from stack.model.visible import visible, visible_json, visible_line

if TYPE_CHECKING:
    from rich.console import Console as RichConsole

Color = Literal["auto", "always", "never"]
_STYLES = {
    "error": "1;31",
    "warning": "1;33",
    "hint": "1;36",
    "good": "32",
    "bad": "31",
    "dim": "2",
}
# Stands for ESC [ in what we paint, until it is written: two letters for private use, drawn anew
# in each run, so that no text from elsewhere can hold them. A raw ESC in a text is never ours.
_MARK = "".join(chr(0xF0000 + secrets.randbelow(0xFFFE)) for _ in range(2))


class Console:
    """Text for people: same words with and without colour, progress only on a terminal."""

    def __init__(self, color: Color = "auto", *, quiet: bool = False) -> None:
        self.color = color
        self.quiet = quiet
        self._live = False

    def out(self, text: str = "") -> None:
        """A line of data."""
        self._clear()
        sys.stdout.write(_ready(text) + "\n")

    def raw(self, data: bytes) -> None:
        """Bytes of data: untouched, but on a terminal, which they must not steer."""
        self._clear()
        if sys.stdout.isatty():
            sys.stdout.write(visible(data.decode("utf-8", "surrogateescape")))
            return
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def flush(self) -> None:
        """Bring all data out; `OSError` where that cannot be done."""
        sys.stdout.flush()

    def unread(self) -> bool:
        """Whether nobody reads stdout any more."""
        poll = select.poll()
        poll.register(1, select.POLLERR)
        return bool(poll.poll(0))

    def say(self, text: str) -> None:
        """A message for the person; never data."""
        if not self.quiet:
            self._clear()
            sys.stderr.write(_ready(text) + "\n")

    def warn(self, text: str) -> None:
        self._clear()
        said = _ready(f"{self._paint('warning:', 'warning', sys.stderr)} {text}")
        sys.stderr.write(said + "\n")

    def error(self, error: StackError) -> None:
        """One line that says what and where, what belongs to it, then the next step."""
        self._clear()
        lines = [f"{self._paint('error:', 'error', sys.stderr)} {visible_line(error.message)}"]
        lines += [f"  {line}" for said in error.context for line in visible(said).split("\n")]
        if error.hint:
            lines.append(f"{self._paint('hint:', 'hint', sys.stderr)} {visible_line(error.hint)}")
        sys.stderr.write(_ready("\n".join(lines)) + "\n")

    def json(self, document: object) -> None:
        """The one JSON document of a run."""
        self._clear()
        text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
        sys.stdout.write(visible_json(text) + "\n")

    def table(
        self, columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = ()
    ) -> None:
        """A table on stdout; on a pipe it is as wide as it needs to be."""
        rows = [[_ready(cell).replace("\n", "\\n") for cell in row] for row in rows]
        if not sys.stdout.isatty() and not self._colored(sys.stdout):
            for line in _plain(columns, rows, right):
                self.out(line)
            return
        from rich import box
        from rich.table import Table
        from rich.text import Text

        self._clear()
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
        for column in columns:
            table.add_column(
                column, justify="right" if column in right else "left", overflow="fold"
            )
        for row in rows:
            table.add_row(*(Text.from_ansi(cell) for cell in row))
        self._rich().print(table)

    @contextmanager
    def live(self) -> Iterator[Callable[[Sequence[str]], None]]:
        """A screen of its own for pages of lines that replace each other, cut to its size."""
        from rich.console import Console as RichConsole
        from rich.live import Live
        from rich.text import Text

        self._clear()
        # Without colours too: a page that is drawn again needs a terminal, not colours.
        rich = RichConsole(
            file=sys.stdout, force_terminal=True, no_color=not self._colored(sys.stdout),
            highlight=False, emoji=False, markup=False,
        )
        with Live(console=rich, screen=True, auto_refresh=False) as live:

            def draw(lines: Sequence[str]) -> None:
                shown = visible("\n".join(lines[: rich.size.height]))
                page = Text(shown, no_wrap=True, overflow="ellipsis")
                live.update(page, refresh=True)

            yield draw

    def confirm(self, about: StackError, question: str) -> bool:
        """Show `about` and ask a person; False where nobody is there to answer."""
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            return False
        self.error(about)
        sys.stderr.write(f"{visible_line(question)} [y/N] ")
        sys.stderr.flush()
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    def good(self, text: str) -> str:
        return self._paint(text, "good", sys.stdout)

    def bad(self, text: str) -> str:
        return self._paint(text, "bad", sys.stdout)

    def dim(self, text: str) -> str:
        return self._paint(text, "dim", sys.stdout)

    def emit(self, event: Event) -> None:
        """Show an event of a flow."""
        if isinstance(event, Said):
            if event.warning:
                self.warn(event.text)
            else:
                self.say(event.text)
        else:
            self._progress(event)

    def _progress(self, event: Progress) -> None:
        if self.quiet or not sys.stderr.isatty() or os.environ.get("CI"):
            return
        share = ""
        if event.done is not None and event.total:
            share = f" {event.done:.0f}/{event.total:.0f}"
        width = max(20, _columns() - 1)
        line = visible_line(f"{event.label}{share} {event.detail}")[:width]
        sys.stderr.write(f"\r\x1b[2K{line}")
        sys.stderr.flush()
        self._live = True

    def _clear(self) -> None:
        if self._live:
            sys.stderr.write("\r\x1b[2K")
            self._live = False

    def _paint(self, text: str, style: str, stream: Any) -> str:
        if not self._colored(stream):
            return text
        return f"{_MARK}{_STYLES[style]}m{text}{_MARK}0m"

    def _colored(self, stream: Any) -> bool:
        if self.color != "auto":
            return self.color == "always"
        if os.environ.get("NO_COLOR"):
            return False
        return bool(os.environ.get("FORCE_COLOR")) or stream.isatty()

    def _rich(self) -> RichConsole:
        from rich.console import Console as RichConsole

        colored = self._colored(sys.stdout)
        width = _columns() if sys.stdout.isatty() else 240
        return RichConsole(
            file=sys.stdout, width=width, force_terminal=colored, no_color=not colored,
            highlight=False, emoji=False, markup=False,
        )


def _ready(text: str) -> str:
    """A text as it may be written: nothing in it steers a terminal, but what we painted."""
    return visible(text).replace(_MARK, "\x1b[")


def _plain(
    columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str]
) -> Iterator[str]:
    """The lines of a table as rich draws it on a wide screen, which costs a hundred times less."""
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.rjust(width) if name in right else cell.ljust(width)
            for cell, width, name in zip(cells, widths, columns, strict=True)
        ]
        return "   ".join(padded).rstrip()

    yield line(columns)
    yield "─" * (sum(widths) + 3 * (len(widths) - 1))
    yield from map(line, rows)


def _columns() -> int:
    try:
        return os.get_terminal_size(2).columns
    except OSError:
        return int(os.environ.get("COLUMNS", "80"))


def error_document(error: StackError) -> Mapping[str, Any]:
    """An error as an entry of the `--json` document."""
    return {
        "code": error.code, "message": error.message, "context": list(error.context),
        "hint": error.hint,
    }
