"""`stack doctor --profile P --model DIR`: a checkpoint of 200 layers that nobody has to load."""

from __future__ import annotations

import json
import struct
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import Stack

ROOT = Path(__file__).parents[2]
LAYERS, EXPERTS = 200, 256
CONFIG = {
    "hidden_size": 3072, "intermediate_size": 1536, "num_hidden_layers": LAYERS,
    "num_attention_heads": 48, "num_key_value_heads": 8, "head_dim": 128,
    "num_local_experts": EXPERTS, "max_position_embeddings": 196608, "use_mtp": True,
    "num_mtp_modules": 3, "quantization_config": {"bits": 4, "group_size": 128},
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """`config.json` and an index of 461,200 tensors in 200 empty shards."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    weights = {}
    for layer in range(LAYERS):
        shard = f"model-{layer + 1:05}-of-{LAYERS:05}.safetensors"
        (folder / shard).touch()
        at = f"model.layers.{layer}"
        weights |= {f"{at}.{name}.weight": shard for name in ("input_layernorm", "self_attn.qkv")}
        weights |= {
            f"{at}.block_sparse_moe.experts.{expert}.{matrix}.{part}": shard
            for expert in range(EXPERTS) for matrix in ("w1", "w2", "w3")
            for part in ("qweight", "scales", "qzeros")
        }
    index = {"metadata": {"total_size": 110 * 10**9}, "weight_map": weights}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


@pytest.fixture
def b70(stack: Stack) -> Stack:
    (stack.folder / "stack.toml").write_text((ROOT / "stack.toml").read_text())
    for name in ("patches", "scripts"):
        (stack.folder / name).symlink_to(ROOT / name)
    return stack


def checks(stack: Stack, *arguments: str | Path, code: int = 1) -> dict[str, dict[str, Any]]:
    output = stack("doctor", "--profile", "xpu-b70", *arguments, "--json")
    assert output.code == code, output
    return {one["what"]: one for one in output.json["data"]["checks"]}


def change(folder: Path, **values: object) -> None:
    said = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**said, **values}))


def test_a_large_index_is_looked_at_quickly(b70: Stack, model: Path) -> None:
    began = time.monotonic()
    found = checks(b70, "--model", model)
    assert time.monotonic() - began < 30
    assert found["tensors"]["text"] == f"{LAYERS * (2 + EXPERTS * 9):,} in 200 layers"
    assert found["mtp"]["result"] == "note"
    assert "model.layers.200/201/202" in found["mtp"]["text"]
    assert found["tensor-parallel"]["text"] == "48 heads, 8 KV heads, 256 experts on 4 ranks"
    assert found["groups"]["result"] == "ok"
    # the arguments are those that the wrapper would give the engine
    assert found["kv-cache"]["text"].startswith("2048 tokens need 0.39 GiB a rank (2 x 200 layers")


def test_each_bench_is_asked_and_the_reason_names_it(b70: Stack, model: Path) -> None:
    config = b70.folder / "stack.toml"
    more = '\n[bench.{}]\ncommand = ["x"]\nmetric = "m"\nunit = "u"\nenv = {{ {} }}\n'
    config.write_text(
        config.read_text() + more.format("dcp", 'DECODE_CONTEXT_PARALLEL_SIZE = "2"')
        + more.format("tp3", 'TP = "3"')
    )
    found = checks(b70, "--model", model, "--bench", "dcp", "--bench", "tp3")
    assert found["decode-context-parallel"] == {
        "what": "decode-context-parallel", "result": "refused",
        "text": "dcp: tensor parallel size 4 must be greater than total num kv heads 8 (vLLM: "
        "config/model.py: verify_with_parallel_config)",
        "hint": "--decode-context-parallel-size 1",
    }
    assert found["mtp"]["text"].startswith("config.json advertises"), "the same for both"
    out = b70("doctor", "--profile", "xpu-b70", "--model", model, "--bench", "dcp").out
    assert "\nrefused decode-context-parallel  tensor parallel size 4 must be greater" in out


def test_without_an_index_the_headers_of_the_shards_are_read(b70: Stack, model: Path) -> None:
    (model / "model.safetensors.index.json").unlink()
    for path in model.glob("*.safetensors"):
        path.unlink()
    change(model, num_hidden_layers=2)
    names = {
        f"model.layers.{at}.norm.weight": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
        for at in range(2)
    }
    header = json.dumps({"__metadata__": {"format": "pt"}, **names}).encode()
    (model / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
    assert checks(b70, "--model", model)["tensors"]["text"] == "2 in 2 layers"
    (model / "model.safetensors").write_bytes(b"\xff" * 8)
    assert "no safetensors header of" in checks(b70, "--model", model)["b70-512-256"]["text"]


def test_what_cannot_be_asked_is_said(b70: Stack, model: Path) -> None:
    assert "no bench `b71`" in checks(b70, "--model", model, "--bench", "b71")["b71"]["text"]
    wrong = b70("doctor", "--bench", "b70-512-256")
    assert (wrong.code, "hint: --profile NAME" in wrong.err) == (2, True)
    (model / "config.json").write_text("{")
    assert "config.json" in checks(b70, "--model", model)["b70-512-256"]["text"]
