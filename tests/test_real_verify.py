"""The main job's end on the real engine: every patch of the CPU line is measured and judged."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.engine import REAL_ENVIRONMENT, ROOT, alone, build_engine

pytestmark = [pytest.mark.engine, pytest.mark.upstream, pytest.mark.xdist_group("engine")]


@pytest.mark.timeout(1800)
def test_the_crash_is_the_cause_and_each_patch_that_unblocks_is_told() -> None:
    build_engine()
    with alone("engine"):
        done = subprocess.run(
            [
                sys.executable, "-m", "stack", "verify", "--profile", "cpu-smoke", "--pairs", "1",
                "cpu-fp32-gate", "cpu-sigmoid-routing", "--json",
            ],
            cwd=ROOT, env=REAL_ENVIRONMENT, capture_output=True, check=False,
        )
    document = json.loads(done.stdout)
    assert done.returncode == document["exit_code"] == 0, document
    patches = {row["name"]: row for row in document["data"]["patches"]}
    assert {row["verdict"] for row in patches.values()} == {"UNBLOCKED"}

    gate = patches["cpu-fp32-gate"]
    assert {row["outcome"] for row in gate["trials"] if row["side"] == "before"} <= {
        "blocked:native_crash", "stalled:no_progress",
    }
    assert "native crash" in gate["note"]
    measured = [row for row in gate["trials"] if row["side"] == "after" and row["role"] != "gate"]
    assert all(row["figures"]["value"] > 0 for row in measured)
    assert measured

    routing = patches["cpu-sigmoid-routing"]
    assert "softmax" in routing["note"]  # the assertion in the prefix before it
    upstream = [row for row in routing["trials"] if row["side"] == "upstream"]
    assert [row["outcome"] for row in upstream] in (
        ["blocked:native_crash"], ["stalled:no_progress"],
    )
