"""`stack resolve`: open regions are listed, shown and answered; remembered ones tended."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import numbered
from tests.support.carrying import Moving
from tests.support.cli import Stack

BASE = numbered(40)


def edit(word: bytes) -> bytes:
    return BASE.replace(b"line 5\n", word + b" 5\n").replace(b"line 30\n", word + b" 30\n")


@pytest.fixture
def stopped(tmp_path: Path) -> Stack:
    """A rebase that waits for two regions of `f` and one of `g`, which asks what `f` asked."""
    small = numbered(12)
    case = Moving(
        tmp_path / "m",
        {"f": BASE, "g": small},
        [("mine", {"f": edit(b"mine"), "g": small.replace(b"line 5\n", b"mine 5\n")})],
        [("theirs", {"f": edit(b"theirs"), "g": small.replace(b"line 5\n", b"theirs 5\n")})],
    )
    stack = case.project()
    assert stack("rebase", "--onto", "demo@v2").code == 3
    return stack


def test_open_regions_are_listed_and_shown(stopped: Stack) -> None:
    listed = stopped.ok("resolve", "--json").json["data"]["open"]
    assert [(one["path"], one["line"]) for one in listed] == [("f", 5), ("f", 36), ("g", 5)]
    assert listed[0]["key"] == listed[2]["key"] != listed[1]["key"]
    shown = stopped.ok("resolve", "--show", listed[1]["key"][:12]).out
    assert "--- target\ntheirs 30\n--- patch\nmine 30\n" in shown


def test_one_key_answers_every_place_that_asks_the_same(stopped: Stack) -> None:
    tree = stopped.folder / ".stack/rebase/tree"
    key = stopped.ok("resolve", "--json").json["data"]["open"][0]["key"]
    done = stopped.ok("resolve", key[:10], "--take", "both", "--json").json["data"]
    assert len(done["taken"]) == 2
    assert b"line 4\ntheirs 5\nmine 5\nline 6\n" in (tree / "f").read_bytes()
    assert b"line 4\ntheirs 5\nmine 5\nline 6\n" in (tree / "g").read_bytes()
    stopped.ok("resolve", "f", "--take", "target")
    stopped.ok("rebase", "--continue")
    known = stopped.ok("resolve", "--list", "--json").json["data"]["answers"]
    assert len(known) == 2


def test_remembered_answers_are_listed_shown_and_forgotten(stopped: Stack) -> None:
    stopped.ok("resolve", "--take", "patch")
    stopped.ok("rebase", "--continue")
    rows = stopped.ok("resolve", "--list", "--json").json["data"]["answers"]
    assert {row["patch"] for row in rows} == {"mine"}
    key = rows[0]["key"]
    shown = stopped.ok("resolve", "--show", key[:12]).out
    assert "--- answer\nmine " in shown
    stopped.ok("resolve", "--forget", key)
    assert len(stopped.ok("resolve", "--list", "--json").json["data"]["answers"]) == 1
    assert not (stopped.folder / f"patches/demo/resolutions/{key}.json").exists()
    wrong = stopped("resolve", "--forget", key)
    assert wrong.code == 2
    assert "1 answers are remembered" in wrong.err


def test_a_damaged_answer_is_named_and_can_be_forgotten(stopped: Stack) -> None:
    stopped.ok("resolve", "--take", "patch")
    stopped.ok("rebase", "--continue")
    damaged = min((stopped.folder / "patches/demo/resolutions").glob("*.json"))
    damaged.write_bytes(damaged.read_bytes()[:40])
    output = stopped("forecast", "--upstream", "demo@1", "--onto", "demo@v2")
    assert output.code == 2
    assert f"{damaged.name}:1: damaged resolution" in output.err
    stopped.ok("resolve", "--forget", damaged.stem)
    done = stopped.ok("forecast", "--upstream", "demo@1", "--onto", "demo@v2")
    assert "1 answered from memory" in done.err


def test_without_a_rebase_there_is_nothing_open(tmp_path: Path) -> None:
    stack = Moving(tmp_path / "m", {"f": BASE}, [("x", {"f": edit(b"x")})], []).project()
    output = stack("resolve")
    assert output.code == 2
    assert "no rebase is under way" in output.err
