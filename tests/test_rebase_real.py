"""Forecasts of the shipped line on real vLLM: release archives, and its history where there is one.

The archives come from the cache (`STACK_CACHE_DIR`) or PyPI. With `STACK_VLLM_GIT` set to a
repository whose main reaches July 2026 the culprits are asked for and proved.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.support.cli import Stack

pytestmark = pytest.mark.upstream
ROOT = Path(__file__).parents[1]
CACHE = os.environ.get("STACK_CACHE_DIR") or str(Path.home() / ".cache" / "stack")
HISTORY = os.environ.get("STACK_VLLM_GIT")
MAIN = "1dcbbd9caca3ddabd99a22747e1a889304cbeab5"  # 2026-07-19
PARKED = ("graph-comm-noop", "fp16-router", "qk-contig")


@pytest.fixture
def project(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Stack:
    """A copy of this project's own line 0.20.1, without remembered answers."""
    monkeypatch.setenv("STACK_CACHE_DIR", CACHE)
    shutil.copy(ROOT / "stack.toml", stack.folder)
    shutil.copytree(ROOT / "patches/vllm/0.20.1", stack.folder / "patches/vllm/0.20.1")
    return stack


def archive(version: str) -> None:
    """Skip where an archive is neither in the cache nor to be had."""
    from stack.errors import SourceError
    from stack.repo import sdist

    try:
        sdist.fetch("vllm", version, None, Path(CACHE) / "sdists", lambda *_: None)
    except SourceError as wrong:
        pytest.skip(str(wrong))


def test_forecast_between_real_releases(project: Stack) -> None:
    for version in ("0.20.1", "0.29.0"):
        archive(version)
    names = ["--with", "graph-comm-noop", "--with", "fp16-router", "--with", "qk-contig"]
    done = project.ok(
        "forecast",
        "--json",
        "--upstream",
        "vllm@0.20.1",
        "--onto",
        "vllm@0.20.1",
        "vllm@0.29.0",
        "--why",
        *names,
    )
    data = done.json["data"]
    same, later = data["columns"]
    assert {cell["outcome"] for cell in same["cells"]} == {"clean"}
    cells = dict(zip(data["patches"], later["cells"], strict=True))
    for name in ("inc-xpu-moe", "u4-decode-gating", *PARKED):
        assert cells[name]["outcome"] == "conflict", (name, cells[name])
    since = cells["qk-contig"]["origins"][0]
    assert (since["what"], since["subject"], since["last_good"]) == ("release", "0.29.0", "0.20.1")
    gone = cells["inc-xpu-moe"]["trouble"][0]
    assert gone.startswith("vllm/model_executor/layers/quantization/inc.py: the file is gone there")
    (moved,) = (text for text in cells["qk-contig"]["trouble"] if "now" in text)
    assert moved.endswith("stand in vllm/model_executor/layers/minimax_rms_norm/rms_norm_tp.py now")
    assert data["distinct"] == len({key for cell in later["cells"] for key in cell["regions"]})
    assert not list(project.folder.glob("patches/vllm/0.29.0"))


@pytest.mark.skipif(not HISTORY, reason="STACK_VLLM_GIT names no history of vLLM's main")
def test_culprits_merge_just_before_and_no_longer_just_after(
    project: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert HISTORY is not None
    monkeypatch.setenv("STACK_VLLM_GIT", HISTORY)
    archive("0.20.1")
    line = ["--upstream", "vllm@0.20.1", *(part for name in PARKED for part in ("--with", name))]
    asked = project.ok("forecast", "--json", "--why", *line, "--onto", f"vllm@{MAIN}").json["data"]
    cells = dict(zip(asked["patches"], asked["columns"][0]["cells"], strict=True))
    for name in PARKED:
        (culprit,) = (row for row in cells[name]["origins"] if row["what"] == "culprit")
        assert culprit["pull"]
        tried = project.ok(
            "forecast",
            "--json",
            *line,
            "--onto",
            f"vllm@{culprit['last_good']}",
            f"vllm@{culprit['commit']}",
        ).json["data"]
        before, after = (
            column["cells"][tried["patches"].index(name)] for column in tried["columns"]
        )
        assert before["outcome"] in ("clean", "modified"), (name, culprit, before)
        assert after["outcome"] == "conflict", (name, culprit, after)
