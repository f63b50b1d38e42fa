"""`stack screen` from the command line to the ledger, with an engine whose speed is its knobs'."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from stack.host import survivors
from tests.support.cli import Output, Stack
from tests.support.processes import until
from tests.support.repo import RepoBuilder
from tests.support.toy_engine import Toy

ENGINE = """
import json, os, sys, time
if "--dtype" in sys.argv:
    raise RuntimeError("no such dtype")
what = os.environ.get("TOY_BATCH", "")
if sys.argv[1] == "gate":
    print(json.dumps({"sha256": "feed" if what != "8" else "beef"}))
    raise SystemExit
time.sleep(float(os.environ.get("TOY_SECONDS", "0")))
rate = 100.0 * {"8": 1.2, "16": 1.5, "1": 0.5}.get(what, 1.0) + os.getpid() % 3 / 100
json.dump({"rate": rate}, open(sys.argv[1], "w"))
"""
BENCH = """
[bench.knobs]
command = ["{{ python }}", "{{ root }}/knobs.py", "{{ out }}/result.json"]
metric = "rate"
unit = "tok/s"
minimum-effect = 0.02
limit = 30.0
stall = 20.0
[bench.knobs.gate]
command = ["{{ python }}", "{{ root }}/knobs.py", "gate"]
field = "sha256"
"""
SCREEN = """
[screen.batch]
bench = "knobs"
exclude = [{ TOY_BATCH = "16", "--block-size" = 64 }]
[screen.batch.knob]
TOY_BATCH = ["8", "1", "16"]
"--block-size" = [32]
"--dtype" = ["fp8"]
"""


class Lab:
    def __init__(self, toy: Toy) -> None:
        self.toy, self.stack = toy, toy.stack
        (self.stack.folder / "knobs.py").write_text(ENGINE)
        self.config = self.stack.folder / "stack.toml"
        self.config.write_text(self.config.read_text() + BENCH + SCREEN)

    def set(self, line: str) -> None:
        """Add a line to the screen."""
        text = self.config.read_text()
        self.config.write_text(text.replace("[screen.batch]\n", f"[screen.batch]\n{line}\n"))

    def screen(self, *arguments: str) -> Output:
        return self.stack("screen", "batch", *arguments)

    def trials(self) -> list[dict[str, Any]]:
        return [one for one in self.toy.trials() if one["bench"] == "knobs"]


@pytest.fixture
def lab(toy: Toy) -> Lab:
    return Lab(toy)


def test_the_best_setting_is_found_and_each_other_gets_a_verdict(lab: Lab) -> None:
    done = lab.screen("--json")
    assert done.code == 0, done
    data = done.json["data"]
    rows = {row["label"]: row for row in data["candidates"]}
    assert [(name, row["verdict"], row["against"]) for name, row in rows.items()] == [
        ("TOY_BATCH=8", "FASTER", "control"), ("TOY_BATCH=1", "SLOWER", "TOY_BATCH=8"),
        ("TOY_BATCH=16", "FASTER", "TOY_BATCH=8"), ("--block-size 32", "SAME", "TOY_BATCH=16"),
        ("--dtype fp8", "BROKEN", "TOY_BATCH=16"),
    ]
    assert data["best"] == {
        "label": "TOY_BATCH=16", "env": {"TOY_BATCH": "16"}, "arguments": [],
    }
    eight, one, _, block, dtype = rows.values()
    assert eight["ratio"] == pytest.approx(1.2, rel=1e-3)
    assert eight["tokens_differ"] is True
    assert "its greedy tokens differ" in eight["note"]
    assert one["note"].startswith("given up after 2 pairs, more than 10% behind: -58.3")
    assert (one["pairs"], len({trial["pair"] for trial in one["trials"]} - {None})) == (2, 2)
    assert block["tokens_differ"] is False
    after = [trial for trial in block["trials"] if trial["prefix"] == "--block-size 32"]
    assert {tuple(trial["argv"][-2:]) for trial in after} == {("--block-size", "32")}
    assert all(trial["env"]["TOY_BATCH"] == "16" for trial in block["trials"])
    assert "no such dtype" in dtype["cause"]
    order = [trial["prefix"] for trial in eight["trials"] if trial["role"] == "pair"]
    assert order[0] != order[1] == order[2] != order[3], "they alternate, A B B A"
    # The same question is not asked twice, and the patches' own report is not touched by it.
    count = len(lab.trials())
    records = (lab.toy.state / "ledger/verdicts.jsonl").read_bytes()
    again = lab.screen("--json")
    assert [row["verdict"] for row in again.json["data"]["candidates"]] == [
        row["verdict"] for row in rows.values()
    ]
    assert len(lab.trials()) == count
    assert again.json["data"]["runs"] == 0
    assert (lab.toy.state / "ledger/verdicts.jsonl").read_bytes() == records
    assert "no verdict for profile" in lab.stack("report").err
    table = lab.screen()
    assert "best: TOY_BATCH=16" in table.err


def test_a_budget_ends_it_and_the_next_run_goes_on(lab: Lab) -> None:
    first = lab.screen("--runs", "9", "--json")
    assert first.code == 0, first
    assert first.json["status"] == "partial"
    data = first.json["data"]
    assert [row["label"] for row in data["candidates"]] == ["TOY_BATCH=8"]
    assert data["left"] == ["TOY_BATCH=1", "TOY_BATCH=16", "--block-size 32", "--dtype fp8"]
    kept = lab.trials()
    second = lab.screen("--json").json["data"]
    assert lab.trials()[: len(kept)] == kept
    assert second["left"] == []
    assert second["runs"] == len(lab.trials()) - len(kept)
    late = lab.screen("--minutes", "0.001", "--fresh", "--json").json["data"]
    assert [row["label"] for row in late["candidates"]] == ["TOY_BATCH=8"]


def test_an_interrupt_keeps_what_was_measured_and_leaves_nothing_running(lab: Lab) -> None:
    lab.stack.ok("build")
    lab.set('control.TOY_SECONDS = "1"')
    process = lab.stack.start("screen", "batch")
    mark = f"STACK_PROJECT={lab.stack.folder.resolve()}\0".encode()
    until(lambda: len(lab.trials()) >= 3 and survivors.marked(mark))
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 130
    assert survivors.marked(mark) == []
    kept = lab.trials()
    done = lab.screen("--runs", "1", "--json").json["data"]
    assert lab.trials()[: len(kept)] == kept
    assert done["candidates"][0]["verdict"] == "FASTER"


def test_exact_asks_for_the_same_tokens(lab: Lab) -> None:
    lab.set("exact = true")
    row = lab.screen("--runs", "1", "--json").json["data"]["candidates"][0]
    assert (row["label"], row["verdict"]) == ("TOY_BATCH=8", "BROKEN")


def test_files_dry_runs_and_what_is_wrong(lab: Lab) -> None:
    dry = lab.screen("--dry-run")
    assert dry.code == 0, dry
    assert dry.out.splitlines() == [
        "TOY_BATCH=8", "TOY_BATCH=1", "TOY_BATCH=16", "--block-size 32", "--dtype fp8",
    ]
    assert "5 of 5 settings would be tried on tiny: at most 50 trials of knobs" in dry.err
    assert not (lab.toy.state / "venvs").exists()
    file = lab.stack.folder / "own.toml"
    file.write_text(
        'schema = 1\n[screen.grid]\nbench = "knobs"\ncombine = "all"\nlink = [["A", "B"]]\n'
        'exclude = [{ A = 1, C = true }]\n[screen.grid.knob]\nA = [1, 2]\nB = [3, 4]\nC = [true]\n'
    )
    grid = lab.stack.ok("screen", "own.toml", "--dry-run", "--json").json["data"]["candidates"]
    assert [one["label"] for one in grid] == ["C=1", "A=1 B=3", "A=2 B=4", "A=2 B=4 C=1"]
    assert lab.stack("screen", "batsh", "--dry-run").code == 2
    assert "did you mean `batch`" in lab.stack("screen", "batsh").err
    for old, new, text in (
        ('[["A", "B"]]', '[["A", "D"]]', "own.toml: screen.grid.link: no knob `D`"),
        ("B = [3, 4]", "B = [3]", "A, B have 1 and 2 values"),
        ('bench = "knobs"', 'bench = "nobs"', "no bench `nobs`"),
        ("C = [true]", "C = []", "own.toml:"),
        ("A = [1, 2]", "A = [1, 2]\nZ = [[1]]", "own.toml:"),
    ):
        whole = file.read_text()
        file.write_text(whole.replace(old, new))
        wrong = lab.stack("screen", "own.toml", "--dry-run")
        assert (wrong.code, text in wrong.err) == (2, True), wrong
        file.write_text(whole)


def test_what_vllm_would_refuse_is_never_started(lab: Lab) -> None:
    model = lab.stack.folder / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps({
        "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 8,
        "head_dim": 64, "hidden_size": 512,
    }))
    text = lab.config.read_text().replace('"{{ out }}/result.json"]', '"{{ out }}/result.json", '
                                          '"--model", "{{ root }}/model"]')
    text = text.replace('"--dtype" = ["fp8"]', '"--decode-context-parallel-size" = [2]\n')
    lab.config.write_text(text.replace('TOY_BATCH = ["8", "1", "16"]', 'TOY_BATCH = ["8"]'))
    dry = lab.screen("--dry-run")
    assert "--decode-context-parallel-size 2  refused  decode-context-parallel: 2 does" in dry.out
    done = lab.screen("--json").json["data"]
    row = done["candidates"][-1]
    assert (row["verdict"], row["trials"]) == ("BLOCKED", [])
    assert row["note"].startswith("never started: decode-context-parallel: 2 does not divide")
