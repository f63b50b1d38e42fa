"""The preflight refuses what vLLM itself refuses, and nothing else: asked of the real engine."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from stack.flows.doctor.preflight_files import read
from stack.model.hardware import Hardware
from stack.model.preflight.arguments import read as read_arguments
from stack.model.preflight.case import Case
from stack.model.preflight.preflight import points
from tests.support.engine import REAL_ENVIRONMENT, ROOT, build_engine

pytestmark = [pytest.mark.engine, pytest.mark.upstream, pytest.mark.xdist_group("engine")]
ASK = """
import json, sys
from vllm.engine.arg_utils import EngineArgs
from vllm.utils.argparse_utils import FlexibleArgumentParser
model, cases = json.load(sys.stdin)
found = []
for words in cases:
    parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
    try:
        args = parser.parse_args(["--model", model, *words])
        EngineArgs.from_cli_args(args).create_engine_config()
        found.append(None)
    except Exception as wrong:
        found.append(str(wrong))
print("ANSWER" + json.dumps(found))
"""
CASES = [
    *(f"-tp {tp} -dcp {dcp}" for tp in (1, 2, 3, 4) for dcp in (1, 2, 3, 4)),
    "--no-enable-chunked-prefill --max-num-batched-tokens 128 --max-num-seqs 8",
    "--no-enable-chunked-prefill --max-num-batched-tokens 512 --no-enable-prefix-caching",
    "--no-enable-prefix-caching --max-num-batched-tokens 128 --max-num-seqs 8",
    "--max-num-batched-tokens 128 --max-num-seqs 256",
    "--max-model-len 8192", "--max-model-len 4k", "--max-model-len=4K",
    "--enable-expert-parallel", "--block-size 32",
]


@pytest.mark.timeout(900)
def test_vllm_refuses_the_same(tmp_path: Path) -> None:
    engine = build_engine()
    model = ROOT / ".stack/models/minimax-m2-softmax"
    cases = [["--max-model-len", "512", *case.split()] for case in CASES]
    done = subprocess.run(
        [engine.python, "-P", "-c", ASK], input=json.dumps([str(model), cases]), text=True,
        cwd=tmp_path, capture_output=True, check=False,
        env={**REAL_ENVIRONMENT, "HF_HUB_OFFLINE": "1", "VLLM_PLUGINS": ""},
    )
    (answer,) = [line for line in done.stdout.splitlines() if line.startswith("ANSWER")]
    held = read(model)
    theirs, ours = {}, {}
    for words, case, refusal in zip(
        cases, CASES, json.loads(answer.removeprefix("ANSWER")), strict=True
    ):
        theirs[case] = refusal is not None
        found = list(points(Case(
            shape=held.shape, tensors=held.tensors, asked=read_arguments(words, {}),
            hardware=Hardware(), release=(0, 29, 0),
        )))
        ours[case] = any(
            one.result == "refused" and one.what not in ("tensors", "groups") for one in found
        )
    assert ours == theirs
    assert sum(theirs.values()) >= 8
