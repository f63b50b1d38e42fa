"""vLLM's INT4 experts on a CPU: those that its own selection takes, and its AMX kernel."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable

import torch
from torch import Tensor

from u4moe_bench.problem import GROUP, HIDDEN, TOPK, Call, Weights

Step = Callable[[], Tensor]


def _words(packed: Tensor) -> Tensor:
    """GPTQ's int32 ``[E, K/8, N]`` of bytes ``[E, N, K/2]``."""
    return packed.view(torch.int32).transpose(1, 2).contiguous()


def no_amx() -> str | None:
    """Why vLLM's AMX kernel cannot run here, or None."""
    if not torch.cpu._is_amx_tile_supported():  # noqa: SLF001 - what vLLM itself asks
        return "this CPU has no AMX tiles"
    if importlib.util.find_spec("vllm") is None:
        return "vLLM is not installed here"
    return None


@functools.lru_cache(maxsize=1)
def _packed(w: Weights) -> tuple[Tensor, ...]:
    """A layer as the AMX kernel wants it; only the last one asked for is kept."""
    from vllm.model_executor.layers.fused_moe.experts import cpu_moe

    return tuple(
        cpu_moe.prepare_int4_moe_layer_for_cpu(
            _words(w.w13),
            _words(w.w2),
            w.s13.transpose(1, 2).contiguous(),
            w.s2.transpose(1, 2).contiguous(),
        )
    )


def amx_step(call: Call) -> Step:
    """The AMX kernel behind ``CPUExpertsInt4``, on routes as given; weights repacked beforehand."""
    from vllm._custom_ops import CPUQuantMethod, fused_experts_cpu

    w13, w2, s13, s2, z13, z2 = _packed(call.weights)
    rest = (None, None, None, None, None, True)  # blocks, biases, alpha, limit, packed

    def step() -> Tensor:
        return fused_experts_cpu(
            call.x, w13, w2, call.route, call.ids, False, CPUQuantMethod.INT4_W4A8,
            s13, s2, z13, z2, *rest,
        )  # fmt: skip

    return step


def chosen_step(call: Call) -> Step:
    """The experts that vLLM selects for this layer in MiniMax-M2: sigmoid routing with a bias.

    Logits are made from the call's routing, so that the same experts are taken. Raises what vLLM
    raises where it has none.
    """
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.model_executor.layers.fused_moe import config
    from vllm.model_executor.layers.fused_moe.activation import MoEActivation
    from vllm.model_executor.layers.fused_moe.oracle import int_wna16
    from vllm.model_executor.layers.quantization.auto_gptq import AutoGPTQConfig
    from vllm.model_executor.layers.quantization.utils.quant_utils import kInt4Static

    w = call.weights
    experts = w.w13.shape[0]
    layer = torch.nn.Module()
    layer.layer_name = "experts"
    moe = config.FusedMoEConfig(
        num_experts=experts,
        experts_per_token=TOPK,
        hidden_dim=HIDDEN,
        intermediate_size=2 * w.w2.shape[2],
        num_local_experts=experts,
        num_logical_experts=experts,
        activation=MoEActivation.SILU,
        device="cpu",
        routing_method=config.RoutingMethodType.MiniMax2,
        in_dtype=call.x.dtype,
        moe_parallel_config=config.FusedMoEParallelConfig.make_no_parallel(),
    )
    quant = AutoGPTQConfig(4, GROUP, False, True, False, {}, {})
    with set_current_vllm_config(VllmConfig()):
        backend, cls = int_wna16.select_wna16_moe_backend(moe, kInt4Static, quant, False, True)
        converted = int_wna16.convert_to_wna16_moe_kernel_format(
            backend, layer, quant, None, _words(w.w13), _words(w.w2),
            w.s13.transpose(1, 2).contiguous(), w.s2.transpose(1, 2).contiguous(),
        )  # fmt: skip
        assert converted is not None
        w13, w2, s13, s2, *_ = converted
        made = config.gptq_marlin_moe_quant_config(s13, s2, weight_bits=4, group_size=GROUP)
        kernel = int_wna16.make_wna16_moe_kernel(made, moe, cls, backend)
    assert kernel.is_monolithic
    # Sigmoid scores in proportion to the route weights; all others as good as zero.
    scores = call.route / call.route.amax(dim=-1, keepdim=True) * 0.9
    logits = torch.full((call.x.shape[0], experts), -50.0)
    logits.scatter_(1, call.ids.long(), torch.logit(scores))
    bias = torch.zeros(experts)

    def step() -> Tensor:
        return kernel.apply_monolithic(
            call.x, w13, w2, logits, activation=MoEActivation.SILU, global_num_experts=experts,
            expert_map=None, apply_router_weight_on_input=False, e_score_correction_bias=bias,
        )  # fmt: skip

    return step
