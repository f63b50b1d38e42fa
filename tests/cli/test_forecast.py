"""`stack forecast`: the matrix of patches and revisions; nothing is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import numbered
from tests.support.carrying import Moving
from tests.support.cli import Stack

BASE = numbered(40)
ONE = BASE.replace(b"line 5\n", b"mine\n")
TWO = ONE.replace(b"line 20\n", b"twenty\n")


@pytest.fixture
def case(tmp_path: Path) -> Moving:
    """Three releases: v1 (the pin), v2 has `two` already, at v3 `one` conflicts too."""
    made = Moving(
        tmp_path / "m",
        {"f": BASE, "g": b"g\n"},
        [("one", {"f": ONE}), ("two", {"f": TWO}), ("three", {"h": b"h\n"})],
        [
            ("Twenty (#20)", {"f": BASE.replace(b"line 20\n", b"twenty\n")}),
            ("g", {"g": b"gg\n"}),
        ],
    )
    made.repo.commit("Five (#30)", {"f": TWO.replace(b"mine\n", b"theirs\n")})
    made.repo.git("tag", "v3")
    return made


def everything(stack: Stack) -> dict[str, bytes]:
    return {
        str(path.relative_to(stack.folder)): path.read_bytes()
        for path in stack.folder.rglob("*")
        if path.is_file() and "patches" in path.parts
    }


def test_one_letter_a_patch_and_revision(case: Moving) -> None:
    stack = case.project()
    before = everything(stack)
    done = stack.ok("forecast", "--onto", "demo@v1", "demo@v2", "demo@v3")
    rows = [row.split() for row in done.out.splitlines()]
    assert rows[0] == ["patch", "v1", "v2", "v3"]
    assert rows[2:5] == [
        ["one", "+", "+", "!"],
        ["two", "+", "=", "="],
        ["three", "+", "+", "+"],
    ]
    assert "v3  one: f: both sides changed 1 place" in done.out
    assert "1 conflict regions, 1 distinct, 0 answered from memory; nothing was written" in done.err
    assert everything(stack) == before
    assert not (stack.folder / ".stack/rebase").exists()
    assert not (stack.folder / ".stack/workspaces").exists()


def test_json_has_the_same_cells(case: Moving) -> None:
    stack = case.project()
    data = stack.ok("forecast", "--onto", "demo@v3", "demo@v2", "--json").json["data"]
    assert data["patches"] == ["one", "two", "three"]
    later, sooner = data["columns"]
    assert [cell["outcome"] for cell in later["cells"]] == ["conflict", "upstreamed", "clean"]
    assert [cell["outcome"] for cell in sooner["cells"]] == ["clean", "upstreamed", "clean"]
    assert (later["regions"], later["distinct"], data["distinct"]) == (1, 1, 1)
    assert later["pin"]["commit"] == case.git.run("rev-parse", "v3").text


def test_why_names_commits_and_pull_requests(case: Moving) -> None:
    stack = case.project()
    data = stack.ok("forecast", "--why", "--onto", "demo@v3", "--json").json["data"]
    one, two, three = data["columns"][0]["cells"]
    assert [(row["what"], row["pull"]) for row in one["origins"]] == [("culprit", 30)]
    assert one["origins"][0]["last_good"] == case.commits[1]
    assert [(row["what"], row["pull"]) for row in two["origins"]] == [("upstreamed", 20)]
    assert three["origins"] == []
    shown = stack.ok("forecast", "--why", "--onto", "demo@v3").out
    assert "one: since " in shown
    assert "Five (#30)" in shown
    assert "two: upstream has it since" in shown


def test_a_revision_that_nobody_has_is_told_beside_the_others(case: Moving) -> None:
    stack = case.project()
    done = stack.ok("forecast", "--onto", "demo@v2", "demo@v9")
    assert done.out.splitlines()[0].split() == ["patch", "v2"]
    assert "v9: no source of demo knows `v9`" in done.err


@pytest.mark.parametrize("arguments", [["demo"], ["demo@v2", "other@v2"], []])
def test_what_to_look_at_has_to_be_said(case: Moving, arguments: list[str]) -> None:
    stack = case.project()
    first = ["--onto", *arguments] if arguments else []
    assert stack("forecast", *first).code == 2
