"""The section of the page about the last import."""

from __future__ import annotations

from stack.report.html import Page, Taken, render

EMPTY = Page(profile="p", ladders=(), verdicts=(), trials=(), outcomes=(), machines=())


def test_every_input_is_shown_and_nothing_of_it_is_markup() -> None:
    rows = (
        Taken(file="01-<b>.patch", upstream="demo", result="placed", patches=("a", "b"), reason=""),
        Taken(file="02.b64", upstream="", result="damaged", patches=(),
              reason="damaged at line 3: <script>"),
    )
    text = render(Page(
        profile="p", ladders=(), verdicts=(), trials=(), outcomes=(), machines=(), inputs=rows,
    ))
    assert "<h2>Imported files</h2>" in text
    assert "01-&lt;b&gt;.patch" in text
    assert "a, b" in text
    assert "damaged at line 3: &lt;script&gt;" in text
    assert "Imported files" not in render(EMPTY)
