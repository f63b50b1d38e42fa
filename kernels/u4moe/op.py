"""The torch operator ``u4moe::fused_experts``: checks a call and hands it to its device."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import torch
from torch import Tensor

from u4moe import layout
from u4moe.layout import Call, Shape

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


def _backend(kind: str) -> Callable[[Tensor, Call, Shape], None]:
    """What writes the result on this kind of device; RuntimeError where it is not installed."""
    if kind == "cpu":
        from u4moe import cpu_experts, torch_experts

        if (reason := cpu_experts.unavailable()) is None:
            return cpu_experts.run
        torch_experts.warn(reason)
        return torch_experts.run
    try:
        from u4moe import triton_experts
    except ImportError as error:
        raise RuntimeError(f"u4moe needs Triton on {kind}: {error}") from error
    return triton_experts.run


def _run(*arguments: Tensor) -> Tensor:
    call = Call(*arguments)
    shape = layout.check(call)
    out = torch.empty_like(call.hidden_states)
    _backend(out.device.type)(out, call, shape)
    return out


def _fake(hidden_states: Tensor, *_: Tensor) -> Tensor:
    return torch.empty_like(hidden_states)


for _device in ("CUDA", "XPU", "CPU"):
    _LIBRARY.impl("fused_experts", _run, _device)
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
