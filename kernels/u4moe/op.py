"""The torch operator ``u4moe::fused_experts``: checks a call and hands it to its device."""

from __future__ import annotations

import importlib.util

import torch
from torch import Tensor

from u4moe import layout

U4_ACTIVATION_DTYPES = layout.ACTIVATION_DTYPES
U4_ROUTE_WEIGHT_DTYPES = layout.ROUTE_DTYPES

_LIBRARY = torch.library.Library("u4moe", "DEF")
_LIBRARY.define(
    "fused_experts(Tensor hidden_states, Tensor w13, Tensor s13, Tensor w2, Tensor s2, "
    "Tensor topk_weights, Tensor topk_ids) -> Tensor"
)


def u4_unavailable(device: torch.device | str) -> str | None:
    """Why raw-u4 experts cannot run on this kind of device, or None where they can.

    On CPUs they always can: ``torch_experts`` stands in for an extension that was not compiled.
    """
    kind = torch.device(device).type
    if kind == "cpu":
        return None
    if kind not in ("cuda", "xpu"):
        return f"u4moe has no kernels for {kind} devices"
    backend = getattr(torch, kind, None)
    if backend is None or not backend.is_available():
        return f"torch sees no {kind} device"
    if importlib.util.find_spec("triton") is None:
        return f"u4moe needs Triton on {kind}, and it is not installed"
    return None


def _run_triton(
    hidden_states: Tensor,
    w13: Tensor,
    s13: Tensor,
    w2: Tensor,
    s2: Tensor,
    topk_weights: Tensor,
    topk_ids: Tensor,
) -> Tensor:
    shape = layout.check(hidden_states, w13, s13, w2, s2, topk_weights, topk_ids)
    try:
        from u4moe import triton_experts
    except ImportError as error:
        kind = hidden_states.device.type
        raise RuntimeError(f"u4moe needs Triton on {kind}: {error}") from error
    out = torch.empty_like(hidden_states)
    triton_experts.run(out, hidden_states, w13, s13, w2, s2, topk_weights, topk_ids, shape)
    return out


def _run_cpu(
    hidden_states: Tensor,
    w13: Tensor,
    s13: Tensor,
    w2: Tensor,
    s2: Tensor,
    topk_weights: Tensor,
    topk_ids: Tensor,
) -> Tensor:
    from u4moe import cpu_experts, torch_experts

    shape = layout.check(hidden_states, w13, s13, w2, s2, topk_weights, topk_ids)
    out = torch.empty_like(hidden_states)
    if (reason := cpu_experts.unavailable()) is not None:
        torch_experts.warn(reason)
    run = cpu_experts.run if reason is None else torch_experts.run
    run(out, hidden_states, w13, s13, w2, s2, topk_weights, topk_ids, shape)
    return out


def _fake(
    hidden_states: Tensor,
    w13: Tensor,
    s13: Tensor,
    w2: Tensor,
    s2: Tensor,
    topk_weights: Tensor,
    topk_ids: Tensor,
) -> Tensor:
    return torch.empty_like(hidden_states)


_LIBRARY.impl("fused_experts", _run_triton, "CUDA")
_LIBRARY.impl("fused_experts", _run_triton, "XPU")
_LIBRARY.impl("fused_experts", _run_cpu, "CPU")
torch.library.register_fake("u4moe::fused_experts", _fake, lib=_LIBRARY)


def moe_forward_tiny_nmajor_u4(
    hidden_states: Tensor,
    w13_qweight_u4: Tensor,
    w13_scales: Tensor,
    w2_qweight_u4: Tensor,
    w2_scales: Tensor,
    topk_weights: Tensor,
    topk_ids: Tensor,
) -> Tensor:
    """Routed experts ``[M, H]`` in the type of ``hidden_states``, from raw-u4 weights.

    The name and the order of the arguments are those of the SYCL package, so that a caller can
    take either; ``layout.check`` says what each argument must be. Sums and the values between
    the two projections are FP32, the result is rounded once. An id of -1 skips its slot,
    duplicates count twice, any number of tokens is correct.

    Raises TypeError for a wrong type, ValueError for a wrong shape, device or stride, and
    RuntimeError where the device's backend is not installed.
    """
    return torch.ops.u4moe.fused_experts(  # type: ignore[no-any-return]
        hidden_states, w13_qweight_u4, w13_scales, w2_qweight_u4, w2_scales, topk_weights, topk_ids
    )
