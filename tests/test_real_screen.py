"""A real sweep of two knobs on vLLM's CPU engine."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.engine import REAL_ENVIRONMENT, ROOT, alone, build_engine

pytestmark = [pytest.mark.engine, pytest.mark.upstream, pytest.mark.xdist_group("engine")]


@pytest.mark.timeout(1800)
def test_two_knobs_of_the_real_engine_get_verdicts() -> None:
    build_engine()
    with alone("engine"):
        done = subprocess.run(
            [sys.executable, "-m", "stack", "screen", "cpu-smoke", "--json"], cwd=ROOT,
            env=REAL_ENVIRONMENT, capture_output=True, check=False,
        )
    document = json.loads(done.stdout)
    assert done.returncode == document["exit_code"] == 0, document
    data = document["data"]
    assert data["left"] == []
    block, single = data["candidates"]
    assert (block["label"], single["label"]) == ("--block-size 32", "--max-num-seqs 1")
    for row, words in ((block, ["--block-size", "32"]), (single, ["--max-num-seqs", "1"])):
        own = [trial for trial in row["trials"] if trial["prefix"] == row["label"]]
        # On a busy machine a gate may hang once; it has a second try.
        assert {trial["role"] for trial in own if trial["outcome"] == "ok"} == {
            "gate", "warm-up", "pair",
        }, own
        assert all(trial["argv"][-2:] == words for trial in own)
        assert all("vllm/0.29.0" in trial["trees"] for trial in own)
        assert row["verdict"] in ("SAME", "UNCLEAR", "FASTER", "SLOWER")
        assert row["before"] > 0
        assert row["after"] > 0
    assert block["tokens_differ"] is False
    assert single["ratio"] < 0.9, "eight requests at once against one"
