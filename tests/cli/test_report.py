"""`stack report` prints what the ledger's last verdicts say, in four formats."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import msgspec
import pytest

from stack.model.measure.trial import Machine, VerdictRecord
from stack.store.ledger import Ledger
from tests.support.cli import Stack

TOML = """schema = 1
[defaults]
profile = "p"
[upstream.demo]
path = "."
[profile.p]
lines = ["demo/1"]
[profile.other]
lines = ["demo/1"]
"""
SERIES = """schema = 1
upstream = "demo"
[pin]
label = "1"
tree = "22575317a8fd395910679d7988b16acfedbddf76"
"""


def verdict(patch: str, word: str, **changes: object) -> VerdictRecord:
    record = VerdictRecord(
        id=f"{patch}-{word}", run="r", time="2026-11-30T08:00:00+00:00", profile="p",
        line="demo/1", patch=patch, state="active", outcome="clean", claim=None, mode="marginal",
        bench="b", bench_digest="d", verdict="SAME", holds=True, method="m", before="base",
        after=patch, unit="tok/s", note="a | b", trials=("t1", "t2"), machine="m1",
    )
    return msgspec.structs.replace(record, verdict=word, **changes)


@pytest.fixture
def ledger(stack: Stack) -> Ledger:
    (stack.folder / "stack.toml").write_text(TOML)
    folder = stack.folder / "patches/demo/1"
    folder.mkdir(parents=True)
    entries = "".join(f'[[patch]]\nname = "{name}"\n' for name in ("one", "two"))
    (folder / "series.toml").write_text(SERIES + entries)
    for name in ("one", "two"):
        (folder / f"{name}.patch").write_bytes(b"")
    ledger = Ledger(stack.folder / ".stack/ledger")
    facts = {"cpu": "A Processor", "cpus": 2, "gpus": ["card"]}
    ledger.append(Machine(id="m1", time="2026-11-30T08:00:00+00:00", facts=facts))
    ledger.append(verdict("two", "UNCLEAR", ratio=1.01, low=0.98, high=1.04, pairs=3))
    ledger.append(verdict("one", "BROKEN"))
    ledger.append(verdict("one", "FASTER", ratio=1.0512345, low=1.04, high=1.06, pairs=3))
    ledger.append(verdict("gone", "FASTER"))
    ledger.append(verdict("one", "SLOWER", profile="other"))
    return ledger


def test_the_table_shows_the_last_verdicts_in_the_order_of_the_line(
    stack: Stack, ledger: Ledger
) -> None:
    lines = stack.ok("report").out.splitlines()
    assert lines[0].split() == ["patch", "state", "outcome", "verdict", "ratio", "pairs", "note"]
    assert [line.split()[0] for line in lines[2:]] == ["one", "two"]
    assert "1.051 [1.040, 1.060]" in lines[2]
    assert "FASTER" in lines[2]


def test_markdown_is_a_table_that_a_cell_cannot_break(stack: Stack, ledger: Ledger) -> None:
    lines = stack.ok("report", "--md").out.splitlines()
    assert len({line.count("|") - line.count("\\|") for line in lines[:4]}) == 1
    assert "a \\| b" in lines[2]
    machine = "A Processor with 2 processors, card"
    assert lines[-1] == f"Measured by `stack verify --profile p`, 2026-11-30, on {machine}."


def test_csv_and_json_carry_the_unrounded_numbers(stack: Stack, ledger: Ledger) -> None:
    rows = list(csv.DictReader(io.StringIO(stack.ok("report", "--csv").out)))
    assert [(row["patch"], row["verdict"], row["ratio"]) for row in rows] == [
        ("one", "FASTER", "1.0512345"), ("two", "UNCLEAR", "1.01"),
    ]
    patches = stack.ok("report", "--json").json["data"]["patches"]
    assert patches[0]["ratio"] == 1.0512345
    assert patches[0]["interval"] == [1.04, 1.06]
    assert patches[0]["trials"] == []


def test_a_torn_line_is_told_and_left_out(stack: Stack, ledger: Ledger) -> None:
    path = ledger.folder / "verdicts.jsonl"
    path.write_bytes(path.read_bytes() + b'{"record":"verdict","sch')
    done = stack.ok("report")
    assert "verdicts.jsonl:6: a record that was not written to its end is left out" in done.err


def test_without_a_verdict_it_says_what_to_do(stack: Stack, ledger: Ledger, tmp_path: Path) -> None:
    (ledger.folder / "verdicts.jsonl").unlink()
    none = stack("report")
    assert none.code == 2
    assert "holds no verdict for profile `p`" in none.err
    assert "hint: stack verify --profile p" in none.err
    assert stack("report", "--md", "--csv").code == 2
