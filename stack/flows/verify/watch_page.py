"""The page of `stack watch`."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec


class Rung(msgspec.Struct, frozen=True, kw_only=True):
    """A patch or a setting: its verdict in this run, None while there is none."""

    name: str
    verdict: str | None = None
    note: str = ""


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """What one look shows. `now` is the trial that runs, `seconds` since it began.

    `left` is a guess in seconds, `last` are finished trials, `log` the end of the current log.
    """

    what: str
    process: int
    rungs: tuple[Rung, ...] = ()
    now: str | None = None
    seconds: float | None = None
    done: int = 0
    planned: int = 0
    left: float | None = None
    last: tuple[str, ...] = ()
    log: tuple[str, ...] = ()


def lines(page: Page) -> Iterator[str]:
    """A page as people read it, the most important first."""
    yield f"{page.what}, process {page.process}"
    if page.now is not None:
        left = "" if page.left is None else f", about {_span(page.left)} left"
        yield f"trial {page.done} of {page.planned}{left}"
        yield f"  {page.now}, {page.seconds or 0:.0f} s"
    if page.rungs:
        yield ""
        width = max(len(rung.name) for rung in page.rungs)
        for rung in page.rungs:
            verdict = (rung.verdict or "-").ljust(9)
            yield f"  {rung.name.ljust(width)}  {verdict}  {rung.note}".rstrip()
    for block in (page.last, page.log):
        if block:
            yield ""
            yield from (f"  {line}" for line in block)


def _span(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
