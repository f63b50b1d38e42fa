"""vLLM's own W4A16 expert kernels on CUDA, loaded from files that the caller names.

The folder holds, from the ``vllm==0.20.1`` wheel or source: ``fused_moe.py`` (its Triton kernel
``fused_moe_kernel_gptq_awq``), ``_moe_C.abi3.so`` (``moe_wna16_gemm`` and the Marlin operator) and
``scalar_type.py`` (Marlin's name for the weight type). What is missing is left out. Expert
alignment is done beforehand; a step is gate+up, SiLU*mul, down with route weight, sum.
"""

# ruff: noqa: SLF001 - the library that holds the operators is named _moe_C.

from __future__ import annotations

import ast
import importlib.util
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from u4moe_bench.problem import GROUP, HIDDEN, TOPK, Call

Step = Callable[[], Tensor]
WANTED = (
    "write_zeros_to_output",
    "fused_moe_kernel_gptq_awq",
    "_ensure_block_size_k_divisible",
    "get_moe_wna16_block_config",
)


@triton.jit
def _silu_mul(src, dst, inter, BLOCK: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    col = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = col < inter
    gate = tl.load(src + row * 2 * inter + col, mask, 0.0).to(tl.float32)
    up = tl.load(src + row * 2 * inter + inter + col, mask, 0.0)
    act = (gate / (1.0 + tl.exp(-gate))).to(up.dtype) * up
    tl.store(dst + row * inter + col, act, mask)


def silu_mul(gate_up: Tensor, act: Tensor) -> None:
    """One launch, as the engine's own activation kernel is."""
    rows, inter = act.shape
    _silu_mul[(triton.cdiv(inter, 1024), rows)](gate_up, act, inter, BLOCK=1024)


def align(ids: Tensor, block: int) -> tuple[Tensor, Tensor, Tensor]:
    """Slots sorted by expert and padded to blocks: slots, expert of each block, their number."""
    flat = ids.flatten().tolist()
    slots: list[int] = []
    experts: list[int] = []
    for expert in sorted(set(flat)):
        mine = [slot for slot, chosen in enumerate(flat) if chosen == expert]
        mine += [len(flat)] * (-len(mine) % block)
        slots += mine
        experts += [expert] * (len(mine) // block)
    tensor = [torch.tensor(v, dtype=torch.int32, device=ids.device) for v in (slots, experts)]
    return tensor[0], tensor[1], torch.tensor([len(slots)], dtype=torch.int32, device=ids.device)


def load_module(path: Path, name: str) -> ModuleType:
    """A module from a file, registered under ``name`` so that its classes can be built."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise OSError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def load_kernels(source: Path) -> ModuleType:
    """The kernel and its rules for block sizes alone: their file imports the whole engine."""
    text = source.read_text()
    lines = text.splitlines()
    parts = []
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and node.name in WANTED:
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            parts.append("\n".join(lines[first - 1 : node.end_lineno]))
    if len(parts) != len(WANTED):
        raise ValueError(f"{source} lacks one of: {', '.join(WANTED)}")
    alone = Path(tempfile.mkdtemp(prefix="vllm-kernel-")) / "kernel.py"
    head = "import triton\nimport triton.language as tl\n"
    alone.write_text("\n\n\n".join([head, *parts]) + "\n")
    return load_module(alone, "vllm_kernel")


def _blocks(
    rules: ModuleType, cuda: bool, a: Tensor, b: Tensor, topk: int, m: int
) -> tuple[int, int]:
    """N and K block sizes by the engine's own rule."""
    chosen = rules.get_moe_wna16_block_config(
        config={},
        use_moe_wna16_cuda=cuda,
        num_valid_tokens=a.shape[0] * topk,
        size_k=a.shape[1],
        size_n=b.shape[1],
        num_experts=b.shape[1],
        group_size=GROUP,
        real_top_k=topk,
        block_size_m=m,
    )
    return chosen["BLOCK_SIZE_N"], chosen["BLOCK_SIZE_K"]


def triton_step(rules: ModuleType, call: Call) -> Step:
    """The Triton path with the block sizes that the engine picks for so few tokens."""
    tokens, inter = call.x.shape[0], call.weights.w2.shape[2] * 2
    block_m = 16
    kernel: Any = rules.fused_moe_kernel_gptq_awq
    slots, experts, padded = align(call.ids, block_m)
    pairs = tokens * TOPK
    cache1 = call.x.new_empty(tokens, TOPK, 2 * inter)
    cache2 = call.x.new_empty(pairs, inter)
    cache3 = call.x.new_empty(tokens, TOPK, HIDDEN)
    out = torch.empty_like(call.x)
    compute = tl.float16 if call.x.dtype == torch.float16 else tl.bfloat16

    def gemm(a: Tensor, b: Tensor, scale: Tensor, c: Tensor, topk: int, route: bool) -> None:
        length = min(slots.numel(), a.shape[0] * topk * block_m)
        blocks = _blocks(rules, False, a, b, topk, block_m)
        grid = (triton.cdiv(length, block_m) * triton.cdiv(b.shape[1], blocks[0]),)
        kernel[grid](
            a, b, c, scale, None, call.route, slots, experts, padded,
            b.shape[1], a.shape[1], length, pairs,
            a.stride(0), a.stride(1), b.stride(0), b.stride(2), b.stride(1),
            c.stride(1), c.stride(2), scale.stride(0), scale.stride(2), scale.stride(1), 0, 0, 0,
            block_k_diviable=a.shape[1] % blocks[1] == 0, group_size=GROUP,
            MUL_ROUTED_WEIGHT=route, top_k=topk, compute_type=compute, has_zp=False,
            use_int4_w4a16=True, use_int8_w8a16=False, BLOCK_SIZE_M=block_m,
            BLOCK_SIZE_N=blocks[0], BLOCK_SIZE_K=blocks[1], GROUP_SIZE_M=1, SPLIT_K=1,
        )  # fmt: skip

    def step() -> Tensor:
        w = call.weights
        gemm(call.x, w.w13, w.s13, cache1, TOPK, False)
        silu_mul(cache1.view(pairs, -1), cache2)
        gemm(cache2, w.w2, w.s2, cache3, 1, True)
        return _sum(cache3, out)

    return step


def _sum(parts: Tensor, out: Tensor) -> Tensor:
    if hasattr(torch.ops._moe_C, "moe_sum"):
        torch.ops._moe_C.moe_sum(parts, out)
        return out
    return torch.sum(parts, dim=1, out=out)


def wna16_step(rules: ModuleType, call: Call) -> Step:
    """The CUDA path: ``moe_wna16_gemm`` twice."""
    tokens, inter = call.x.shape[0], call.weights.w2.shape[2] * 2
    block_m = min(16, tokens)
    slots, experts, padded = align(call.ids, block_m)
    pairs = tokens * TOPK
    cache1 = call.x.new_empty(tokens, TOPK, 2 * inter)
    cache2 = call.x.new_empty(pairs, inter)
    cache3 = call.x.new_empty(tokens, TOPK, HIDDEN)
    out = torch.empty_like(call.x)
    blocks1 = _blocks(rules, True, call.x, call.weights.w13, TOPK, block_m)
    blocks2 = _blocks(rules, True, cache2, call.weights.w2, 1, block_m)

    def step() -> Tensor:
        w = call.weights
        gemm = torch.ops._moe_C.moe_wna16_gemm
        tail = (slots, experts, padded)
        gemm(call.x, cache1, w.w13, w.s13, None, None, *tail, TOPK, block_m, *blocks1, 4)
        silu_mul(cache1.view(pairs, -1), cache2)
        gemm(cache2, cache3, w.w2, w.s2, None, call.route, *tail, 1, block_m, *blocks2, 4)
        return _sum(cache3, out)

    return step


def marlin_step(call: Call, weight_type: int) -> Step:
    """Marlin's operator on the same bytes: they are not repacked, so only its time counts."""
    tokens, inter = call.x.shape[0], call.weights.w2.shape[2] * 2
    block_m = 8
    slots, experts, padded = align(call.ids, block_m)
    pairs, w = tokens * TOPK, call.weights
    count = w.w13.shape[0]
    packed1 = w.w13.view(torch.int32).view(count, HIDDEN // 16, 4 * inter)
    packed2 = w.w2.view(torch.int32).view(count, inter // 16, 2 * HIDDEN)
    scale1 = w.s13.view(count, HIDDEN // GROUP, 2 * inter)
    scale2 = w.s2.view(count, inter // GROUP, HIDDEN)
    cache1 = call.x.new_empty(pairs, 2 * inter)
    cache2 = call.x.new_empty(pairs, inter)
    cache3 = call.x.new_empty(pairs, HIDDEN)
    out = torch.empty_like(call.x)
    units = torch.cuda.get_device_properties(call.x.device).multi_processor_count
    workspace = torch.zeros(units * 4, dtype=torch.int32, device=call.x.device)

    def gemm(
        a: Tensor, c: Tensor, b: Tensor, s: Tensor, topk: int, route: bool, m: int, n: int, k: int
    ) -> None:
        torch.ops._moe_C.moe_wna16_marlin_gemm(
            a, c, b, None, s, None, None, None, None, None, workspace, slots, experts, padded,
            call.route, block_m, topk, route, weight_type, m, n, k, True, False, True, False,
            -1, -1, -1,
        )  # fmt: skip

    def step() -> Tensor:
        gemm(call.x, cache1, packed1, scale1, TOPK, False, tokens, 2 * inter, HIDDEN)
        silu_mul(cache1, cache2)
        gemm(cache2, cache3, packed2, scale2, 1, True, pairs, HIDDEN, inter)
        return _sum(cache3.view(tokens, TOPK, HIDDEN), out)

    return step


def find(folder: Path | None) -> tuple[dict[str, Callable[[Call], Step]], dict[str, str]]:
    """Makers of a step for each peer that loads, and the reason for each that does not."""
    makers: dict[str, Callable[[Call], Step]] = {}
    absent: dict[str, str] = {}
    names = ("vllm_triton", "vllm_cuda", "vllm_marlin")
    if folder is None:
        return makers, dict.fromkeys(names, "no folder given (--peers)")
    try:
        rules = load_kernels(folder / "fused_moe.py")
    except (OSError, SyntaxError, ValueError) as error:
        return makers, dict.fromkeys(names, str(error))
    makers["vllm_triton"] = lambda call: triton_step(rules, call)
    try:
        torch.ops.load_library(str(folder / "_moe_C.abi3.so"))
    except OSError as error:
        absent["vllm_cuda"] = absent["vllm_marlin"] = str(error)
        return makers, absent
    makers["vllm_cuda"] = lambda call: wna16_step(rules, call)
    try:
        types = load_module(folder / "scalar_type.py", "vllm_scalar_type")
        weight_type = types.scalar_types.uint4b8.id
        makers["vllm_marlin"] = lambda call: marlin_step(call, weight_type)
    except (OSError, AttributeError) as error:
        absent["vllm_marlin"] = str(error)
    return makers, absent
