"""The all-reduce probe between real processes, in the engine's Python."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "probe_allreduce.py"
PYTHON = os.environ.get("STACK_ENGINE_PYTHON", "")

pytestmark = pytest.mark.skipif(
    not PYTHON, reason="needs torch: set STACK_ENGINE_PYTHON to the engine's Python"
)


def probe(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PYTHON, "-P", str(SCRIPT), "--backend", "gloo", "--warmup", "2", *arguments],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def test_two_ranks_measure_the_three_payloads() -> None:
    done = probe("--processes", "2", "--repeats", "5", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["outcome"], result["backend"], result["ranks"]) == ("ok", "gloo", 2)
    sizes = [(r["name"], r["elements"], r["dtype"], r["bytes"]) for r in result["results"]]
    assert sizes == [
        ("minimax_hidden_fp16", 3072, "float16", 6144),
        ("minimax_hidden_fp32", 3072, "float32", 12288),
        ("small_20kb_fp32", 5120, "float32", 20480),
    ]
    for one in result["results"]:
        assert 0 < one["median_ms"] < 10_000
        assert 0 < one["mean_ms"] < 10_000
        assert 0 < one["burst_mean_ms"] < 10_000


def test_without_json_it_prints_one_line_for_each_payload() -> None:
    done = probe("--processes", "1", "--repeats", "3")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split(",")[0] for line in lines] == [
        "minimax_hidden_fp16",
        "minimax_hidden_fp32",
        "small_20kb_fp32",
    ]


def test_a_probe_that_hangs_is_ended_and_cannot_tell() -> None:
    done = probe("--processes", "2", "--timeout", "0.5", "--json")
    assert done.returncode == 125
    assert json.loads(done.stdout)["outcome"] == "blocked"
    assert "no end after 0.5 s" in done.stderr


def test_a_rank_that_fails_ends_the_others() -> None:
    done = probe("--processes", "2", "--json", GLOO_SOCKET_IFNAME="no-such-interface")
    assert done.returncode == 125
    assert "a rank ended with exit code" in json.loads(done.stdout)["cause"]
