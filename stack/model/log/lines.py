"""One line of an engine's log without its prefixes, and the Python tracebacks among such lines."""

from __future__ import annotations

import re
from typing import NamedTuple

_ANSI = re.compile(rb"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[@-Z\\-_]|[\x00-\x08\x0b\x0c\x0e-\x1f]")
_PREFIX = re.compile(
    rb"(?:\((?P<process>[\w .:/-]+ pid=\d+)(?:, ip=[\w.:]+)?\) ?)?"
    rb"(?:(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?"
    rb" \[[^\]\s]*\] ?)?"
    rb"(?:\[(?P<rank>rank\d+)\]: ?)?"
)
_BURIED = re.compile(
    rb"\([\w .:/-]+ pid=\d+\) |(?:WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d"
    rb"|\[rank\d+\]: "
)
_TRACEBACK = b"Traceback (most recent call last)"
_EXCEPTION = re.compile(rb"(?:[A-Z]\w*|[A-Za-z_]\w*(?:\.\w+)+)(?:: .*|:)?")
_CARETS = re.compile(rb"[\s^~]*")
_HANDLED = (b"DEBUG", b"INFO", b"WARNING")

_MOST_TRACES = 256
_LONGEST_TRACE = 4000


class Text(NamedTuple):
    """A log line taken apart; `body` keeps its indentation."""

    process: bytes
    level: bytes
    body: bytes


def clean(line: bytes) -> Text:
    """Take ANSI codes, overwritten progress bars, and vLLM's and torch's prefixes off a line."""
    if b"\r" in line:
        line = line.rstrip(b"\r")
        line = line[line.rfind(b"\r") + 1 :]
    line = _ANSI.sub(b"", line)
    match = _PREFIX.match(line)
    assert match is not None, "every part of the prefix is optional"
    if not match.end() and (buried := _BURIED.search(line)):
        # A progress bar ends without a newline, and the next message is written behind it.
        match = _PREFIX.match(line, buried.start())
        assert match is not None
    process = (match["process"] or b"") + (match["rank"] or b"")
    return Text(process, match["level"] or b"", line[match.end() :])


class _Trace:
    """A traceback of one process that has begun and not ended."""

    def __init__(self, number: int) -> None:
        self.begun = number
        self.source = b""


class Traces:
    """Follows the tracebacks of several processes whose lines are mixed."""

    def __init__(self) -> None:
        self._open: dict[bytes, _Trace] = {}
        self._seen = 0

    @property
    def open(self) -> bool:
        """Whether a traceback has begun and its exception has not been seen."""
        return bool(self._open)

    def quotes(self, text: Text) -> bool:
        """Whether this line is source text inside a traceback."""
        return text.process in self._open and text.body[:1].isspace()

    def line(self, number: int, text: Text) -> bytes | None:
        """Take the next line; returns the exception that ends an unhandled traceback.

        An exception without a message is given the source line that raised it.
        """
        if _TRACEBACK in text.body:
            if self._seen < _MOST_TRACES:
                self._seen += 1
                self._open[text.process] = _Trace(number)
            return None
        trace = self._open.get(text.process)
        if trace is None or not text.body.strip():
            self._drop(number)
            return None
        body = text.body.rstrip()
        if body[:1].isspace():
            if not _CARETS.fullmatch(body) and not body.lstrip().startswith(b'File "'):
                trace.source = body.strip()
        elif _EXCEPTION.fullmatch(body):
            del self._open[text.process]
            if text.level not in _HANDLED:
                return body if b": " in body or not trace.source else body + b": " + trace.source
        self._drop(number)
        return None

    def _drop(self, number: int) -> None:
        for process in [p for p, t in self._open.items() if number - t.begun > _LONGEST_TRACE]:
            del self._open[process]
