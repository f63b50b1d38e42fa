"""The page of `stack report --html`: numbers, escaping, and how it looks in a real browser."""

from __future__ import annotations

import math
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from stack.model.measure.trial import Figures, Machine, Trial, VerdictRecord
from stack.report import svg
from stack.store.ledger import Ledger
from tests.support.browser import CHROMIUM, Browser
from tests.support.cli import Stack

TOML = """schema = 1
[upstream.demo]
path = "."
[profile.p]
lines = ["demo/1"]
[bench.speed]
command = ["x"]
metric = "m"
unit = "tok/s"
minimum-effect = 0.02
"""
SERIES = """schema = 1
upstream = "demo"
[pin]
label = "1"
tree = "22575317a8fd395910679d7988b16acfedbddf76"
"""
HOSTILE = "</pre></script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&{{ 7 * 7 }}"
PATCH = f"""From {"0" * 40} Mon Sep 17 00:00:00 2001
From: Ann Author <ann@example.com>
Date: Mon, 30 Nov 2026 08:00:00 +0000
Subject: [Core] One {HOSTILE}

See https://example.com/ about it.

Why: because {HOSTILE}
---
diff --git a/f b/f
index 1111111..2222222 100644
--- a/f
+++ b/f
@@ -1,2 +1,2 @@
-old {HOSTILE}
--- not a header
+new {HOSTILE}
+++ neither \u202e hidden
"""
VOID = {"meta", "input", "rect", "line", "circle"}


class Parsed(HTMLParser):
    """The elements of a page; every element has to be closed where it belongs."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def values(self) -> list[str]:
        return [a["data-value"] or "" for _, a in self.tags if "data-value" in a]


def verdict(patch: str, word: str, time: str, **changes: object) -> VerdictRecord:
    record = VerdictRecord(
        id=f"{patch}-{time}", run="r", time=f"2026-11-{time}T08:00:00+00:00", profile="p",
        line="demo/1", patch=patch, state="active", outcome="clean", claim=None, mode="marginal",
        bench="speed", bench_digest="d", verdict="SAME", holds=True, method="m", before="base",
        after=patch, unit="tok/s", note="a note", trials=(f"t-{patch}",), machine="m1",
    )
    return msgspec.structs.replace(record, verdict=word, **changes)


def trial(patch: str, **changes: object) -> Trial:
    return msgspec.structs.replace(
        Trial(
            id=f"t-{patch}", key="k", run="r", time="2026-11-30T08:00:00+00:00", profile="p",
            bench="speed", bench_digest="d", prefix=patch, trees={}, side="after", role="pair",
            env={}, argv=("x",), cache="c", cold=False, machine="m1", outcome="ok", exit_code=0,
            seconds=1.25, log=f"logs/{patch}.log",
        ),
        **changes,
    )


@pytest.fixture
def ledger(stack: Stack) -> Ledger:
    (stack.folder / "stack.toml").write_text(TOML)
    folder = stack.folder / "patches/demo/1"
    folder.mkdir(parents=True)
    names = ("one", "two", "three")
    (folder / "series.toml").write_text(
        SERIES + "".join(f'[[patch]]\nname = "{name}"\n' for name in names)
    )
    for name in names:
        (folder / f"{name}.patch").write_text(PATCH)
    (folder / "three.patch").write_bytes(b"no mail <b>\n")
    ledger = Ledger(stack.folder / ".stack/ledger")
    facts = {"cpu": f"A {HOSTILE}", "gpus": ["card"], "environment": {"X": "1"}}
    ledger.append(Machine(id="m1", time="2026-11-30T08:00:00+00:00", facts=facts))
    values = {"before_value": 30.125, "after_value": 31.6625, "pairs": 4}
    ledger.append(verdict("one", "SLOWER", "28", ratio=0.9612345, low=0.95, high=0.97, **values))
    ledger.append(verdict("one", "FASTER", "29", ratio=1.0512345, low=1.04, high=1.06, **values))
    ledger.append(verdict("two", "UNCLEAR", "30", ratio=1.0101, low=0.98, high=1.04, **values))
    ledger.append(verdict("three", "BROKEN", "30", cause=HOSTILE, note=HOSTILE, holds=False))
    figures = Figures(metric="m", unit="tok/s", value=31.66251)
    ledger.append(trial("one", figures=figures))
    ledger.append(trial("three", outcome="blocked:x", cause=HOSTILE, cause_line=7, hint="look"))
    return ledger


def test_the_numbers_are_the_ledgers(stack: Stack, ledger: Ledger) -> None:
    page = Parsed(stack.ok("report", "--html").out)
    values = page.values()
    for number in (0.9612345, 1.0512345, 0.95, 1.06, 1.0101, 30.125, 31.6625, 31.66251, 1.25):
        assert str(number) in values
    text = "".join(page.texts)
    assert "+5.1 %" in text
    assert "[+4.0 %, +6.0 %]" in text
    assert "the product of 2 effects" in text
    assert "+6.2 %" in text  # 1.0512345 x 1.0101
    assert "30.12 → 31.66 tok/s" in text
    assert "Has to be no worse, but is BROKEN." in text
    assert "logs/three.log:7" in text
    rungs = [a["data-patch"] for tag, a in page.tags if tag == "li"]
    assert rungs == ["one", "two", "three"]
    rows = [a["id"] for tag, a in page.tags if tag == "tr" and "id" in a]
    assert [row for row in rows if row.startswith("verdict-")] == [
        "verdict-one-28", "verdict-one-29", "verdict-two-30", "verdict-three-30",
    ]


def test_text_of_logs_and_patches_stays_text(stack: Stack, ledger: Ledger) -> None:
    out = stack.ok("report", "--html").out
    page = Parsed(out)
    tags = [tag for tag, _ in page.tags]
    assert tags.count("script") == 1
    assert "img" not in tags
    assert "b" not in tags
    assert not [a for _, attrs in page.tags for a in attrs if a.startswith("on")]
    text = "".join(page.texts)
    assert text.count(HOSTILE) >= 8
    assert "no mail <b>" in text
    assert "\u202e" not in text
    assert "\\u202e hidden" in text


def test_it_names_no_other_address(stack: Stack, ledger: Ledger) -> None:
    out = stack.ok("report", "--html").out
    page = Parsed(out)
    for tag, attributes in page.tags:
        assert tag not in ("link", "iframe", "object", "embed", "base"), tag
        for name in ("src", "href", "action", "srcset", "xlink:href"):
            assert name not in attributes
    style = out[out.index("<style>") : out.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    assert out.count("https://") == 2  # both stand in the messages of patches
    assert "default-src 'none'" in out


def test_lines_of_a_diff_are_what_they_are(stack: Stack, ledger: Ledger) -> None:
    out = stack.ok("report", "--html").out
    assert '<span class="head">diff --git a/f b/f\nindex 1111111..2222222 100644\n' in out
    assert '<span class="hunk">@@ -1,2 +1,2 @@\n</span><span class="removed">-old ' in out
    assert "\n--- not a header\n</span>" in out
    assert "\n+++ neither " in out


def test_it_is_written_where_one_says(stack: Stack, ledger: Ledger) -> None:
    printed = stack.ok("report", "--html").out
    done = stack.ok("report", "--html", "-o", "page.html")
    assert (done.out, done.err) == ("", "wrote page.html\n")
    assert (stack.folder / "page.html").read_text() == printed
    stack.ok("report", "--csv", "-o", "page.csv")
    assert (stack.folder / "page.csv").read_text() == stack.ok("report", "--csv").out
    patches = stack.ok("report", "--html", "-o", "again.html", "--json").json["data"]["patches"]
    assert len(patches) == 3
    assert (stack.folder / "again.html").read_text() == printed
    assert stack("report", "-o", "x").code == 2
    assert stack("report", "--html", "--csv").code == 2


@pytest.fixture
def browser(tmp_path: Path) -> Browser:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: the page is not looked at in a browser")
    return Browser(tmp_path / "chromium")


CROWDED = """(() => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), boxes = [];
  while (texts.nextNode()) {
    const node = texts.currentNode;
    if (!node.data.trim() || !node.parentElement.checkVisibility()) continue;
    if (node.parentElement.closest("svg title, script, .wide")) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const box of range.getClientRects()) boxes.push([box, node.data.trim().slice(0, 40)]);
  }
  const bad = [];
  boxes.forEach(([a, one], at) => boxes.slice(at + 1).forEach(([b, other]) => {
    const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (wide > 1 && high > 4) bad.push(one + " | " + other);
  }));
  return bad;
})()"""


@pytest.mark.parametrize("width", [360, 1200])
def test_it_is_readable_in_a_browser(
    stack: Stack, ledger: Ledger, browser: Browser, width: int
) -> None:
    page = stack.folder / "page.html"
    stack.ok("report", "--html", "-o", page)
    with browser:
        browser.open(page, width=width)
        assert browser.js("document.documentElement.scrollWidth") <= width
        assert browser.js(CROWDED) == []
        back = "getComputedStyle(document.body).backgroundColor"
        colors = []
        for scheme in ("light", "dark"):
            features = [{"name": "prefers-color-scheme", "value": scheme}]
            browser.call("Emulation.setEmulatedMedia", features=features)
            colors.append(browser.js(back))
        assert colors == ["rgb(255, 255, 255)", "rgb(20, 23, 26)"]
        assert browser.errors == []
        assert browser.requests == [page.as_uri()]


def test_sort_and_filter_work(stack: Stack, ledger: Ledger, browser: Browser) -> None:
    page = stack.folder / "page.html"
    stack.ok("report", "--html", "-o", page)
    rows = "[...document.querySelectorAll('#verdicts tbody tr')]"

    def first(column: int) -> list[str]:
        browser.js(f"document.querySelectorAll('#verdicts th button')[{column}].click()")
        found: list[str] = browser.js(f"{rows}.map((row) => row.id.slice(8))")
        return found

    with browser:
        browser.open(page, width=1200)
        assert first(4) == ["one-28", "two-30", "one-29", "three-30"]
        assert first(4) == ["one-29", "two-30", "one-28", "three-30"]
        assert first(0)[0] == "one-28"
        type_ = (
            "(text) => { const box = document.getElementById('filter'); box.value = text;"
            " box.dispatchEvent(new Event('input')); }"
        )
        shown = f"{rows}.filter((row) => !row.hidden).map((row) => row.id.slice(8))"
        browser.js(f"({type_})('two unclear')")
        assert browser.js(shown) == ["two-30"]
        assert browser.js("document.querySelectorAll('.rung:not([hidden])').length") == 1
        browser.js(f"({type_})('')")
        assert len(browser.js(shown)) == 4
        assert browser.errors == []


def test_a_wide_interval_does_not_hide_the_others() -> None:
    tight = svg.span([1.02, 0.99], [1.03, 0.98, None])
    assert math.exp(tight) == pytest.approx(1.03 * 1.02)
    wide = svg.span([1.02], [0.25, 4.0])
    assert math.exp(wide) == pytest.approx(1.25 * 1.02)
    bar = svg.bar(1.02, 0.25, 4.0, scale=wide, minimum=0.01)
    assert (bar.low, bar.high) == (0.0, svg.WIDTH)
    assert svg.MIDDLE < bar.at < svg.WIDTH
    assert svg.span([], []) > 0
