"""A picture of the times in logs: one panel a log, one bar a part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined

WIDTH, LABEL, VALUE, ROW, HEAD = 760, 230, 130, 22, 58
_MOST_BARS, _LONGEST = 16, 34


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """A part with its time in milliseconds; `length` in units of the picture."""

    label: str
    ms: float
    share: float | None
    length: float


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown of one log; `top` is where it begins."""

    title: str
    outcome: str
    what: str
    top: int
    bars: tuple[Bar, ...]


def draw(documents: Sequence[Mapping[str, Any]]) -> str:
    """An SVG of the logs that `documents` describe, as `diagnose --json` gives them.

    A panel shows where the time of a token goes, else the sums of a timing table, else medians.
    """
    panels, top = [], 0
    for document in documents:
        what, parts = _parts(document)
        longest = max((ms for _, ms, _ in parts), default=0.0)
        space = WIDTH - LABEL - VALUE
        bars = tuple(
            Bar(label=_short(label), ms=ms, share=share,
                length=round(space * ms / longest, 2) if longest else 0.0)
            for label, ms, share in parts
        )
        title = _short(Path(document["path"]).name, 2 * _LONGEST)
        panels.append(
            Panel(title=title, outcome=document["class"], what=what, top=top, bars=bars)
        )
        top += HEAD + ROW * len(bars)
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )
    template = environment.get_template("log.svg.j2")
    return template.render(panels=panels, width=WIDTH, height=top, label=LABEL, row=ROW, head=HEAD)


def _parts(document: Mapping[str, Any]) -> tuple[str, list[tuple[str, float, float | None]]]:
    for what, parts in _choices(document):
        if parts:
            return what, sorted(parts, key=lambda part: -part[1])[:_MOST_BARS]
    return "the log holds no times", []


def _choices(
    document: Mapping[str, Any],
) -> Iterator[tuple[str, list[tuple[str, float, float | None]]]]:
    if budget := document["budget"]:
        parts = [(part["name"], part["ms"], part["share"]) for part in budget["parts"]]
        token = budget["ms_per_token"]
        yield "one token" + (f", {token:.1f} ms" if token is not None else ""), parts
    sums = [(row["label"], row["total_ms"], None) for row in document["timings"]]
    yield "sums, ms", [part for part in sums if part[1] is not None]
    yield "a layer, ms", [(row["label"], row["avg_ms"], None) for row in document["eager_timings"]]
    medians = {**document["steps"], **document["kernel_waits"]}
    yield "medians, ms", [
        (name, row["median"], None) for name, row in medians.items() if row["median"] is not None
    ]


def _short(text: str, longest: int = _LONGEST) -> str:
    """Text that fits, without what XML cannot hold or nobody can see."""
    plain = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return plain if len(plain) <= longest else plain[: longest - 1] + "…"
