"""Cases for `cpu-sigmoid-routing`: the CPU experts route as the GPU's router does.

They run inside the engine's Python with the patch's layer first on PYTHONPATH. STACK_PATCHES
names the patches of that layer; without this one sigmoid scoring has to stop at upstream's
assertion.

References, none of them ours: `fused_topk_bias`, the function of the GPU path, on the branch that
it has in plain torch (its usual branch is a CUDA kernel), and the CPU's own `grouped_topk` with
one group, which is the same routing.
"""

from __future__ import annotations

import os

import pytest
import torch
from vllm._aiter_ops import rocm_aiter_ops
from vllm.model_executor.layers.fused_moe.experts.cpu_moe import grouped_topk, select_experts
from vllm.model_executor.layers.fused_moe.router.fused_topk_bias_router import fused_topk_bias

PATCHED = "cpu-sigmoid-routing" in os.environ.get("STACK_PATCHES", "").split(",")
needs_patch = pytest.mark.skipif(not PATCHED, reason="stops at an assertion without the patch")
Routing = tuple[torch.Tensor, torch.Tensor]


def inputs(tokens: int, experts: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return router logits `[tokens, experts]` and a bias `[experts]` that changes choices."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(tokens, experts, generator=generator)
    return logits, torch.randn(experts, generator=generator) * 0.3


def route(logits: torch.Tensor, top_k: int, scoring_func: str = "sigmoid", **kwargs) -> Routing:
    """Call the CPU experts' selection without groups."""
    kwargs.setdefault("renormalize", True)
    return select_experts(
        hidden_states=logits.new_empty(logits.shape[0], 8),
        router_logits=logits,
        top_k=top_k,
        use_grouped_topk=False,
        scoring_func=scoring_func,
        **kwargs,
    )


def by_expert(routing: Routing, experts: int) -> torch.Tensor:
    """Return weights `[tokens, experts]`, 0 where an expert is not taken: order-free."""
    weights, ids = routing
    return torch.zeros(len(ids), experts).scatter_(1, ids.long(), weights)


def assert_same(found: Routing, expected: Routing, experts: int) -> None:
    """Demand equal choices and weights equal to the last bit but one (sums are order-bound)."""
    assert found[0].dtype == torch.float32
    assert found[1].dtype == torch.int32
    torch.testing.assert_close(
        by_expert(found, experts), by_expert(expected, experts), rtol=2.4e-7, atol=0
    )


def gpu_path(
    logits: torch.Tensor, bias: torch.Tensor | None, top_k: int, renormalize: bool, scale: float
) -> Routing:
    """Call `fused_topk_bias` as FusedTopKBiasRouter does."""
    return fused_topk_bias(
        hidden_states=logits.new_empty(logits.shape[0], 8),
        gating_output=logits,
        scoring_func="sigmoid",
        e_score_correction_bias=bias,
        topk=top_k,
        renormalize=renormalize,
        routed_scaling_factor=scale,
    )


@needs_patch
@pytest.mark.parametrize("tokens", [1, 4, 333])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("renormalize", [True, False])
@pytest.mark.parametrize("scale", [1.0, 2.5])
def test_equals_the_gpu_path(
    monkeypatch: pytest.MonkeyPatch, tokens: int, biased: bool, renormalize: bool, scale: float
) -> None:
    # Selects the plain torch branch: 256 experts are more groups there than 7 experts taken.
    monkeypatch.setattr(rocm_aiter_ops, "is_fused_moe_enabled", lambda: True)
    logits, bias = inputs(tokens, 256)
    bias = bias if biased else None
    expected = gpu_path(logits, bias, 7, renormalize, scale)
    found = route(
        logits,
        7,
        renormalize=renormalize,
        routed_scaling_factor=scale,
        e_score_correction_bias=bias,
    )
    assert_same(found, expected, 256)


@needs_patch
@pytest.mark.parametrize(("experts", "top_k"), [(16, 4), (256, 8)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_equals_one_group(experts: int, top_k: int, dtype: torch.dtype) -> None:
    logits, bias = inputs(200, experts)
    logits = logits.to(dtype)
    expected = grouped_topk(
        hidden_states=logits,
        gating_output=logits,
        topk=top_k,
        renormalize=True,
        num_expert_group=1,
        topk_group=1,
        scoring_func="sigmoid",
        e_score_correction_bias=bias,
    )
    assert_same(route(logits, top_k, e_score_correction_bias=bias), expected, experts)


@needs_patch
def test_bias_chooses_but_does_not_weigh() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0, -1.0]])
    bias = torch.tensor([0.0, 0.0, 0.0, 5.0])
    weights, ids = route(logits, 2, renormalize=False, e_score_correction_bias=bias)
    assert set(ids[0].tolist()) == {0, 3}
    expected = torch.sigmoid(logits[0, ids[0].long()])
    assert torch.equal(weights[0], expected)


@needs_patch
def test_scores_that_underflow_weigh_nothing() -> None:
    weights, ids = route(torch.full((3, 16), -200.0), 4)
    assert torch.equal(weights, torch.zeros(3, 4))
    assert all(len(set(row)) == 4 for row in ids.tolist())


@needs_patch
def test_tensors_suit_the_kernel() -> None:
    """The kernel reads both as dense buffers, whatever their strides say."""
    logits, bias = inputs(5, 16)
    for part in route(logits, 4, e_score_correction_bias=bias):
        assert part.is_contiguous()


@pytest.mark.skipif(PATCHED, reason="is about upstream without the patch")
def test_upstream_stops() -> None:
    logits, bias = inputs(2, 16)
    with pytest.raises(AssertionError):
        route(logits, 4, e_score_correction_bias=bias)


@pytest.mark.parametrize("renormalize", [True, False])
def test_softmax_is_as_before(renormalize: bool) -> None:
    logits, _ = inputs(50, 16)
    weights, ids = route(logits, 4, "softmax", renormalize=renormalize)
    scores = torch.softmax(logits, dim=-1)
    top, expected_ids = scores.topk(4, dim=-1)
    if renormalize:
        top = top / top.sum(dim=-1, keepdim=True)
    expected = by_expert((top, expected_ids), 16)
    torch.testing.assert_close(by_expert((weights, ids), 16), expected, rtol=1e-5, atol=1e-7)


def test_other_scoring_still_stops() -> None:
    logits, _ = inputs(2, 16)
    with pytest.raises(AssertionError):
        route(logits, 4, "sqrtsoftplus")
