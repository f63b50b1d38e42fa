"""Cases for `cpu-u4-experts`: INT4 experts run on any CPU where upstream raises, and only there.

They run inside the engine's Python with the patch's layer first on PYTHONPATH; `u4moe` comes from
this repository's `kernels/`, in plain torch unless its extension is built beside it. Results are
held against FP32 torch on weights unpacked here, from GPTQ's own layout.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from compressed_tensors.quantization import QuantizationArgs
from vllm.model_executor.layers.fused_moe.activation import MoEActivation
from vllm.model_executor.layers.fused_moe.config import (
    FusedMoEConfig,
    FusedMoEParallelConfig,
    RoutingMethodType,
    gptq_marlin_moe_quant_config,
)
from vllm.model_executor.layers.fused_moe.experts import cpu_u4_moe
from vllm.model_executor.layers.fused_moe.experts.cpu_moe import CPUExpertsInt4, select_experts
from vllm.model_executor.layers.fused_moe.experts.cpu_u4_moe import CPUExpertsU4
from vllm.model_executor.layers.fused_moe.oracle import int_wna16
from vllm.model_executor.layers.fused_moe.oracle.int_wna16 import WNA16MoEBackend
from vllm.model_executor.layers.quantization.auto_awq import AutoAWQConfig
from vllm.model_executor.layers.quantization.auto_gptq import AutoGPTQConfig
from vllm.model_executor.layers.quantization.utils.quant_utils import (
    kInt4Static,
    kInt4Static32,
    kInt8Static,
)

E, H, INTER, TOP_K, GROUP = 8, 256, 128, 3, 64
SIGMOID = RoutingMethodType.MiniMax2


@pytest.fixture(autouse=True)
def _u4moe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "kernels"))


@pytest.fixture
def no_amx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)


def moe_config(routing: RoutingMethodType = SIGMOID, **changes) -> FusedMoEConfig:
    values = {
        "num_experts": E,
        "experts_per_token": TOP_K,
        "hidden_dim": H,
        "intermediate_size": INTER,
        "num_local_experts": E,
        "num_logical_experts": E,
        "activation": MoEActivation.SILU,
        "device": "cpu",
        "routing_method": routing,
        "in_dtype": torch.bfloat16,
        "moe_parallel_config": FusedMoEParallelConfig.make_no_parallel(),
    }
    return FusedMoEConfig(**(values | changes))


def gptq(group: int = GROUP, desc_act: bool = False) -> AutoGPTQConfig:
    return AutoGPTQConfig(4, group, desc_act, True, False, {}, {})


def select(config: FusedMoEConfig, quant: object = None, key=kInt4Static, zp: bool = False):
    """Ask the oracle as the GPTQ method does."""
    return int_wna16.select_wna16_moe_backend(config, key, quant or gptq(), zp, True)


def weights(seed: int = 0) -> dict[str, torch.Tensor]:
    """GPTQ tensors as vLLM loads them: words along K first, scales `[E, K / group, N]`."""
    generator = torch.Generator().manual_seed(seed)

    def words(k: int, n: int) -> torch.Tensor:
        wide = torch.randint(-(2**31), 2**31, (E, k // 8, n), generator=generator)
        return wide.to(torch.int32)

    def scales(k: int, n: int) -> torch.Tensor:
        uniform = torch.rand((E, k // GROUP, n), generator=generator)
        return (uniform * 0.01 + 0.005).to(torch.bfloat16)

    return {
        "w13": words(H, 2 * INTER),
        "w2": words(INTER, H),
        "w13_scale": scales(H, 2 * INTER),
        "w2_scale": scales(INTER, H),
    }


def dense(words: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """FP32 `[E, N, K]`: nibble i of word k is weight 8 k + i, 8 stands for zero."""
    nibbles = torch.stack([(words >> 4 * i) & 15 for i in range(8)], dim=2).flatten(1, 2)
    spread = scales.float().repeat_interleave(GROUP, dim=1)
    return ((nibbles.float() - 8) * spread).transpose(1, 2)


def convert(given: dict[str, torch.Tensor], quant: object = None, **more):
    layer = SimpleNamespace(layer_name="model.layers.0.mlp.experts")
    return int_wna16.convert_to_wna16_moe_kernel_format(
        WNA16MoEBackend.CPU_U4, layer, quant or gptq(), None, **given, **more
    )


def experts(config: FusedMoEConfig) -> tuple[CPUExpertsU4, torch.Tensor, torch.Tensor]:
    """The experts on converted weights, made as the GPTQ method makes them."""
    w13, w2, s13, s2, *_ = convert(weights())
    quant = gptq_marlin_moe_quant_config(s13, s2, weight_bits=4, group_size=GROUP)
    kernel = int_wna16.make_wna16_moe_kernel(
        quant, config, CPUExpertsU4, WNA16MoEBackend.CPU_U4, routing_tables=None
    )
    return kernel.fused_experts, w13, w2


def run(config: FusedMoEConfig, x: torch.Tensor, logits: torch.Tensor, **more) -> torch.Tensor:
    found, w13, w2 = experts(config)
    more = {"expert_map": None, "apply_router_weight_on_input": False} | more
    return found.apply(
        x, w13, w2, logits, MoEActivation.SILU, global_num_experts=E, a1q_scale=None, **more
    )


def expected(x: torch.Tensor, routes: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """FP32 `[M, H]` of every token's experts; ids of -1 count nothing."""
    given = weights()
    w13, w2 = dense(given["w13"], given["w13_scale"]), dense(given["w2"], given["w2_scale"])
    out = torch.zeros(x.shape)
    for token, slot in (ids >= 0).nonzero().tolist():
        expert = ids[token, slot]
        gate, up = (w13[expert] @ x[token].float()).chunk(2)
        act = torch.nn.functional.silu(gate) * up
        out[token] += routes[token, slot] * (w2[expert] @ act)
    return out


def routed(logits: torch.Tensor, **more) -> tuple[torch.Tensor, torch.Tensor]:
    more = {"scoring_func": "sigmoid", "renormalize": True, "use_grouped_topk": False} | more
    return select_experts(hidden_states=logits, router_logits=logits, top_k=TOP_K, **more)


def inputs(tokens: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(tokens)
    x = torch.randn(tokens, H, generator=generator).to(torch.bfloat16)
    logits = torch.randn(tokens, E, generator=generator)
    return x, logits, torch.randn(E, generator=generator) * 0.3


def close(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Within BF16's rounding of the result, as norms."""
    assert found.dtype == torch.bfloat16
    return bool((found.float() - wanted).norm() <= 5e-3 * wanted.norm())


@pytest.mark.parametrize("amx", [False, True])
def test_takes_minimax_where_upstream_has_nothing(
    amx: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    assert select(moe_config()) == (WNA16MoEBackend.CPU_U4, CPUExpertsU4)


def test_upstreams_experts_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    softmax = moe_config(RoutingMethodType.RenormalizeNaive)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    assert select(softmax) == (WNA16MoEBackend.CPU, CPUExpertsInt4)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    assert select(softmax) == (WNA16MoEBackend.CPU_U4, CPUExpertsU4)


def test_compressed_tensors_in_groups_of_32(no_amx: None) -> None:
    args = QuantizationArgs(num_bits=4, group_size=32, strategy="group", symmetric=True)
    assert select(moe_config(), args, kInt4Static32)[0] == WNA16MoEBackend.CPU_U4


AWQ = object.__new__(AutoAWQConfig)
ACTORDER = QuantizationArgs(num_bits=4, group_size=GROUP, strategy="group", actorder="group")


@pytest.mark.parametrize(
    ("config", "call", "why"),
    [
        ({}, {"zp": True}, "zero points"),
        ({}, {"quant": AWQ}, "layout of AutoAWQConfig"),
        ({}, {"quant": gptq(desc_act=True)}, "activation ordering"),
        ({}, {"quant": ACTORDER}, "activation ordering"),
        ({}, {"quant": gptq(-1)}, "group size -1"),
        ({"intermediate_size": 96}, {}, "group size 64"),
        ({}, {"key": kInt8Static}, "quantization scheme"),
        ({"activation": MoEActivation.GELU}, {}, "activation"),
        ({"routing": RoutingMethodType.Llama4}, {}, "routing method"),
        ({"in_dtype": torch.float32}, {}, "float32 activations"),
        ({"has_bias": True}, {}, "biases"),
        ({"swiglu_limit": 7.0}, {}, "clamp"),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)
def test_what_it_cannot_do_ends_as_upstream_does(
    config: dict, call: dict, why: str, no_amx: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(
        cpu_u4_moe.logger, "warning_once", lambda text, *args: told.append(text % args)
    )
    with pytest.raises(NotImplementedError, match="No WNA16 MoE backend"):
        select(moe_config(**config), **call)
    assert len(told) == 1 and why in told[0]


def test_without_the_package_the_log_says_so(no_amx: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "u4moe", None)
    told: list[str] = []
    monkeypatch.setattr(
        cpu_u4_moe.logger, "warning_once", lambda text, *args: told.append(text % args)
    )
    with pytest.raises(NotImplementedError, match="No WNA16 MoE backend"):
        select(moe_config())
    assert "u4moe package cannot be imported" in told[0]


def test_repacks_words_to_rows() -> None:
    given = weights()
    w13, w2, s13, s2, *rest = convert(given)
    assert (w13.shape, w13.dtype) == ((E, 2 * INTER, H // 2), torch.uint8)
    assert (w2.shape, s13.shape, s2.shape) == (
        (E, H, INTER // 2),
        (E, 2 * INTER, H // GROUP),
        (E, H, INTER // GROUP),
    )
    word = int(given["w13"][2, 5, 7]) & 0xFFFFFFFF
    assert w13[2, 7, 20:24].tolist() == [word >> 8 * at & 255 for at in range(4)]
    assert torch.equal(s2[3, 9], given["w2_scale"][3, :, 9])
    assert len(rest) == 10 and all(part is None for part in rest[4:])


def test_rows_of_moe_wna16_stay_as_they_are() -> None:
    w13, w2, s13, s2, *_ = convert(weights())
    again = convert({"w13": w13, "w2": w2, "w13_scale": s13, "w2_scale": s2})
    assert all(a is b for a, b in zip(again, (w13, w2, s13, s2), strict=False))


def test_a_checkpoint_with_biases_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="biases"):
        convert(weights(), w13_bias=torch.ones(E, 2 * INTER))


@pytest.mark.parametrize("tokens", [1, 4, 70])
def test_sigmoid_with_bias(tokens: int) -> None:
    x, logits, bias = inputs(tokens)
    found = run(moe_config(), x, logits, e_score_correction_bias=bias)
    assert close(found, expected(x, *routed(logits, e_score_correction_bias=bias)))


@pytest.mark.parametrize(
    ("routing", "scoring", "renormalize"),
    [
        (RoutingMethodType.Default, "softmax", False),
        (RoutingMethodType.Renormalize, "softmax", True),
        (RoutingMethodType.RenormalizeNaive, "softmax", True),
        (RoutingMethodType.Sigmoid, "sigmoid", False),
        (RoutingMethodType.SigmoidRenorm, "sigmoid", True),
    ],
)
def test_other_routing(routing: RoutingMethodType, scoring: str, renormalize: bool) -> None:
    x, logits, _ = inputs(5)
    found = run(moe_config(routing), x, logits)
    how = {"scoring_func": scoring, "renormalize": renormalize}
    assert close(found, expected(x, *routed(logits, **how)))


def test_groups_of_experts() -> None:
    x, logits, bias = inputs(6)
    how = {
        "num_expert_group": 4,
        "topk_group": 2,
        "e_score_correction_bias": bias,
        "routed_scaling_factor": 2.5,
    }
    found = run(moe_config(RoutingMethodType.DeepSeekV3), x, logits, **how)
    assert close(found, expected(x, *routed(logits, use_grouped_topk=True, **how)))


def test_experts_of_other_ranks_count_nothing() -> None:
    x, logits, _ = inputs(6)
    expert_map = torch.tensor([-1, 0, 1, -1, 2, 3, -1, -1], dtype=torch.int32)
    found = run(moe_config(), x, logits, expert_map=expert_map)
    routes, ids = routed(logits)
    assert close(found, expected(x, routes, expert_map[ids.long()]))


def test_router_weight_on_the_input() -> None:
    x, logits, _ = inputs(6)
    kept = x.clone()
    config = moe_config(RoutingMethodType.Sigmoid, experts_per_token=1)
    found = run(config, x, logits, apply_router_weight_on_input=True)
    scores, ids = logits.sigmoid().max(dim=-1, keepdim=True)
    scaled = x * scores.to(x.dtype)
    assert close(found, expected(scaled, torch.ones_like(scores), ids))
    assert torch.equal(x, kept)
