"""Contiguous Q and K before MiniMax's joint norm: the same numbers, and upstream's when off."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType

import pytest
import torch
from cpu_engine import engine
from upstream_code import module_without, trace
from vllm import envs

SWITCH = "VLLM_MINIMAX_QK_CONTIG"
# Where the class stands in the line under test.
HOME = {
    "vllm/0.20.1": "vllm.model_executor.layers.mamba.linear_attn",
    "vllm/0.29.0": "vllm.model_executor.layers.minimax_rms_norm.rms_norm_tp",
}[os.environ["STACK_LINE"]]
Norm = importlib.import_module(HOME).MiniMaxText01RMSNormTP
Q, K = 256, 128


@pytest.fixture(autouse=True)
def _engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(SWITCH, raising=False)
    with engine():
        yield


@pytest.fixture(scope="session")
def unpatched(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ModuleType]:
    root = tmp_path_factory.mktemp("unpatched")
    return partial(module_without, root, "qk-contig", marker="contiguous_qk")


def norms() -> tuple[torch.nn.Module, torch.nn.Module]:
    torch.manual_seed(0)
    pair = Norm(Q, eps=1e-6), Norm(K, eps=1e-6)
    for norm in pair:
        norm.weight.data.normal_(1, 0.1)
    return pair


def slices(dtype: torch.dtype, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Q and K as the model gets them: slices of one [tokens, Q + 2K] tensor."""
    torch.manual_seed(1)
    q, k, _ = torch.randn(tokens, Q + 2 * K).to(dtype).split([Q, K, K], dim=-1)
    return q, k


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("tokens", [1, 2, 5])
def test_the_copies_change_no_bit(
    dtype: torch.dtype, tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    off = Norm.forward_qk(*norms(), *slices(dtype, tokens))
    monkeypatch.setenv(SWITCH, "1")
    on = Norm.forward_qk(*norms(), *slices(dtype, tokens))
    for ours, theirs in zip(on, off, strict=True):
        assert ours.dtype == dtype
        assert torch.equal(ours, theirs)


def test_on_both_slices_are_copied_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "1")
    graph = trace(Norm.forward_qk, *norms(), *slices(torch.float16, 3))
    assert graph.count(".contiguous()") == 2
    assert graph.index(".contiguous()") < graph.index(".to(torch.float32)")


def test_off_the_graph_is_upstreams(
    unpatched: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    register = "vllm.model_executor.custom_op.CustomOp.register"
    monkeypatch.setattr(register, lambda name: lambda kind: kind)  # the name is taken
    theirs = unpatched(HOME).MiniMaxText01RMSNormTP
    pair, (q, k) = norms(), slices(torch.float16, 3)
    assert trace(Norm.forward_qk, *pair, q, k) == trace(theirs.forward_qk, *pair, q, k)
    for ours, expected in zip(
        Norm.forward_qk(*pair, q, k), theirs.forward_qk(*pair, q, k), strict=True
    ):
        assert torch.equal(ours, expected)


def test_the_switch_is_registered_and_off_by_default() -> None:
    assert envs.VLLM_MINIMAX_QK_CONTIG is False
    assert SWITCH in envs.compile_factors()
    assert norms()[0].contiguous_qk is False
