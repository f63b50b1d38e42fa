"""The benchmark's own judgement: errors are told, and a wrong kernel does not pass."""

from __future__ import annotations

import argparse
import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

import torch

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "bench_u4moe.py"
OPTIONS = argparse.Namespace(
    device="cpu", dtype="bfloat16", kernels=["u4moe"], inter=[128], tokens=[1, 3], experts=8
)


@pytest.fixture
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_u4moe", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_check_tells_every_error(bench: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.check(OPTIONS, torch.bfloat16)
    found = json.loads(capsys.readouterr().out)
    assert found["within"] is True
    assert list(found["errors"]) == ["u4moe, inter 128, M 1", "u4moe, inter 128, M 3"]
    assert all(0 < error < found["tolerance"] for error in found["errors"].values())


def test_a_wrong_kernel_does_not_pass(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = bench.ours
    monkeypatch.setattr(bench, "ours", lambda call: lambda: right(call)() * 1.01)
    assert not bench.check(OPTIONS, torch.bfloat16)
    assert json.loads(capsys.readouterr().out)["within"] is False
