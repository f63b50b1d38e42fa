"""`stack range-diff`: what a rebase made of the patches."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import numbered
from tests.support.carrying import Moving

BASE = numbered(40)
HALF = BASE.replace(b"line 5\n", b"five\n")
WHOLE = HALF.replace(b"line 30\n", b"thirty\n")


def test_a_carried_line_differs_only_where_the_merge_changed_a_patch(tmp_path: Path) -> None:
    case = Moving(
        tmp_path / "m",
        {"f": BASE, "g": BASE},
        [
            ("both places", {"f": WHOLE}),
            ("other file", {"g": HALF}),
            ("gone there", {"h": b"h\n"}),
        ],
        [("five", {"f": HALF}), ("h", {"h": b"h\n"})],
    )
    stack = case.project()
    done = stack.ok("rebase", "--onto", "demo@v2")
    assert "changed by the merge: both-places; stack range-diff" in done.err
    data = stack.ok("range-diff", "demo/1", "demo/2", "--json").json["data"]
    assert [(pair["status"], pair["old"], pair["new"]) for pair in data["pairs"]] == [
        ("changed", "both-places", "both-places"),
        ("same", "other-file", "other-file"),
        ("removed", "gone-there", None),
    ]
    assert "-+five" in data["pairs"][0]["diff"]
    one = stack.ok("range-diff", "demo/1:both-places", "demo/2:both-places")
    assert one.out.startswith("! both-places  both places\n")
    assert "other-file" not in one.out
    brief = stack.ok("range-diff", "demo/1", "demo/2", "--stat")
    assert brief.out.splitlines()[1:] == ["= other-file  other file", "< gone-there  gone there"]
    assert "1 changed, 1 same, 1 removed" in brief.err


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    stack = Moving(tmp_path / "m", {"f": BASE}, [("five", {"f": HALF})], []).project()
    output = stack("range-diff", "demo/1:fiv", "demo/1")
    assert output.code == 2
    assert "demo/1 has no patch `fiv`" in output.err
    assert "five" in output.err
    assert stack("range-diff", "demo/1", "demo/9").code == 2
