"""A monolith is cut into parts whose sum is the monolith."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.support.piles import Pile

FOLDERS = ("pkg/layers", "pkg/layers/moe", "pkg/models", "pkg/v1/worker", "csrc")


def source(number: int, rows: int, mark: str = "") -> bytes:
    """A file of classes with two methods each; a `mark` changes every second method."""
    out = []
    for at in range(rows):
        out.append(f"class Item{number}_{at}:\n    def first(self):\n        return {at}\n\n")
        body = "".join(f"        value = step({at}, {n}{mark})\n" for n in range(5))
        out.append(f"    def second(self):\n{body}        return value\n\n\n")
    return "".join(out).encode()




def build(folder: Path) -> Pile:
    """A line with one patch of 15,000 changed lines over 100 files, and one above it."""
    base = {f"{FOLDERS[n % 5]}/f{n}.py": source(n, 15) for n in range(98)}
    base |= {"pkg/gone.py": b"x = 1\n", "README": b"demo\n"}
    pile = Pile(folder, base)
    changed: dict[str, bytes | None] = {
        f"{FOLDERS[n % 5]}/f{n}.py": source(n, 15, ", 'ours'") for n in range(98)
    }
    changed |= {"pkg/gone.py": None, "pkg/new.py": b"y = 2\n" * 300}
    pile.snap("01-big.patch", changed)
    text = (pile.inputs / "01-big.patch").read_bytes()
    assert sum(row[:1] in (b"+", b"-") for row in text.splitlines()) > 15_000
    pile.step("02-above.patch", {"README": b"demo, ours\n"})
    assert set(pile.results().values()) == {"placed"}
    return pile


def members(pile: Pile) -> list[str]:
    text = (pile.stack.folder / "patches/demo/1.0/series.toml").read_text()
    return [patch["name"] for patch in tomllib.loads(text)["patch"]]


def test_the_sum_of_the_parts_is_the_whole_however_it_is_cut(tmp_path: Path) -> None:
    pile = build(tmp_path)
    whole = pile.applied()
    assert whole == pile.tree()
    above = (pile.stack.folder / "patches/demo/1.0/02-above.patch").read_bytes()

    dry = pile.stack.ok("split", "01-big", "--dry-run", "--json").json["data"]
    assert members(pile) == ["01-big", "02-above"]
    assert 2 <= len(dry["parts"]) <= 12
    done = pile.stack.ok("split", "01-big", "--json").json["data"]
    parts = [part["name"] for part in done["parts"]]
    assert members(pile) == [*parts, "02-above"]
    assert parts == [part["name"] for part in dry["parts"]]
    assert pile.applied() == whole
    assert (pile.stack.folder / "patches/demo/1.0/02-above.patch").read_bytes() == above
    assert pile.stack("export", "--check").code == 0

    pile.stack.ok("split", "01-big", "--by", "file")  # put together, and cut in another way
    assert len(members(pile)) == 101
    assert pile.applied() == whole

    pile.stack.ok("undo")
    assert members(pile) == [*parts, "02-above"]


def test_a_plan_is_written_edited_and_run_again(tmp_path: Path) -> None:
    base = {"pkg/a.py": source(1, 3), "pkg/b.py": source(2, 3), "docs/x.md": b"x\n"}
    pile = Pile(tmp_path, base)
    pile.snap("big.patch", {
        "pkg/a.py": source(1, 3, ", 7"), "pkg/b.py": source(2, 3, ", 7"), "docs/x.md": b"y\n",
    })
    assert set(pile.results().values()) == {"placed"}
    whole = pile.applied()
    plan = pile.stack.folder / "plan.toml"
    pile.stack.ok("split", "big", "--plan", "plan.toml")
    assert members(pile) == ["big"]
    assert {part["name"] for part in tomllib.loads(plan.read_text())["part"]} == {
        "big-docs", "big-pkg"
    }

    head = 'schema = 1\npatch = "big"\n'
    one = '[[part]]\nname = "second-item"\nsubject = "[Core] The second item"\n'
    one += 'take = ["pkg/a.py:Item1_1", "pkg/b.py#2"]\n'
    plan.write_text(head + one)
    output = pile.stack("split", "big", "--plan", "plan.toml")
    assert output.code == 2
    assert "no part of the plan takes 5 of 7 pieces" in output.err
    assert members(pile) == ["big"]

    plan.write_text(head + one + '[[part]]\nname = "rest"\ntake = ["*"]\n')
    pile.stack.ok("split", "big", "--plan", "plan.toml")
    assert members(pile) == ["second-item", "rest"]
    text = (pile.stack.folder / "patches/demo/1.0/second-item.patch").read_text()
    assert "Subject: [Core] The second item\n" in text
    assert text.count("+        value") == 10
    assert "Split-From: big\n" in text
    assert pile.applied() == whole

    pile.stack.ok("split", "big", "--by", "symbol")
    assert len(members(pile)) == 7
    assert pile.applied() == whole

    plan.write_text(head + '[[part]]\nname = "docs"\ntake = ["docs/"]\n'
                    '[[part]]\nname = "code"\ntake = ["pkg/"]\n')
    pile.stack.ok("split", "big", "--plan", "plan.toml")
    assert members(pile) == ["docs", "code"]
    assert pile.applied() == whole


def test_what_no_plan_can_mean_is_said(tmp_path: Path) -> None:
    pile = Pile(tmp_path, {"pkg/a.py": source(1, 3), "pkg/b.py": b"x\n"})
    pile.snap("big.patch", {"pkg/a.py": source(1, 3, ", 7"), "pkg/b.py": b"y\n"})
    pile.results()
    plan = pile.stack.folder / "plan.toml"
    one = '[[part]]\nname = "a"\ntake = ["*"]\n'
    other = '[[part]]\nname = "b"\ntake = ["pkg/c.py"]\n'
    for text, why in (
        (f'patch = "other"\n{one}', "a plan for `other`"),
        (f'patch = "big"\n{one}{other}', "part `b` of the plan takes nothing"),
        (f'patch = "big"\n{one.replace("take", "takes")}', "plan.toml:"),
    ):
        plan.write_text("schema = 1\n" + text)
        output = pile.stack("split", "big", "--plan", "plan.toml")
        assert output.code == 2, output
        assert why in output.err
    assert pile.stack("split", "bigg").code == 2
    assert members(pile) == ["big"]
