"""The real engine, set up wrongly in four ways: each is told by its class and its own words."""

from __future__ import annotations

from pathlib import Path

import pytest

from stack.bench import runner
from stack.bench.logs import catalogue
from stack.flows.builds import environment
from stack.flows.builds.layers import PROBE
from tests.support.engine import REAL_ENVIRONMENT, ROOT, alone, build_engine

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("engine")]
MODEL = str(ROOT / ".stack/models/minimax-m2-softmax")
USUAL = ("--dtype", "float32", "--enforce-eager", "--max-num-seqs", "4")
KNOBS = {
    "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
    "VLLM_PLUGINS": "", "TORCHDYNAMO_DISABLE": "1",
}


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("arguments", "multiprocessing", "outcome", "said"),
    [
        (("--model", MODEL, "--no-such-option"), "0", "blocked:config_rejected", "no-such-option"),
        (("--model", "/nowhere/at-all"), "0", "blocked:model_missing", "/nowhere/at-all"),
        (
            ("--model", MODEL, "--max-model-len", "512", "--kv-cache-memory-bytes", "100K"), "1",
            "blocked:kv_memory", "cache blocks",
        ),
        (
            ("--model", MODEL, "--max-model-len", "512", "--gpu-memory-utilization", "0.9999"), "1",
            "blocked:host_memory", "memory utilization",
        ),
    ],
)
def test_a_wrong_setting_is_told_by_its_class(
    tmp_path: Path, arguments: tuple[str, ...], multiprocessing: str, outcome: str, said: str
) -> None:
    engine = build_engine()
    site = environment.site_packages(engine.python.parents[1])
    driver = PROBE.with_name("greedy_tokens.py")
    job = runner.Job(
        id=f"wrong-{outcome}", argv=(str(engine.python), "-P", str(driver), *arguments, *USUAL),
        knobs={**KNOBS, "VLLM_ENABLE_V1_MULTIPROCESSING": multiprocessing}, layers=(),
        site_packages=site, python=engine.python, probe=PROBE, files={}, patched=(),
        folder=tmp_path / "trial", caches=tmp_path / "caches", pyc=tmp_path / "pyc", limit=600.0,
        stall=300.0, field="sha256",
    )
    with alone("engine"):
        ran = runner.run(job, catalogue(), lambda seconds, size: None, REAL_ENVIRONMENT)
    log = (tmp_path / "trial/log.txt").read_text()
    assert ran.outcome == outcome, log[-3000:]
    assert said in f"{ran.cause}"
    assert ran.hint
    assert ran.survivors == 0 or multiprocessing == "1"
    assert ran.tokens is None
