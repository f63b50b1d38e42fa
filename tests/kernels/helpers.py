"""Random problems and the backends that this machine can run them on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from u4moe import cpu_experts, layout, reference, torch_experts
from u4moe.tuning import Choice, Tile

# What FP16 and BF16 results may differ from the FP32 reference, as norms.
TOLERANCE = {torch.float16: 6e-4, torch.bfloat16: 5e-3}


@dataclass(frozen=True)
class Problem:
    """The arguments of one call, in the operator's order."""

    x: Tensor
    w13: Tensor
    s13: Tensor
    w2: Tensor
    s2: Tensor
    route: Tensor
    ids: Tensor

    def arguments(self) -> layout.Call:
        """All of them."""
        return layout.Call(self.x, self.w13, self.s13, self.w2, self.s2, self.route, self.ids)


def problem(
    tokens: int,
    hidden: int,
    inter: int,
    experts: int = 5,
    topk: int = 3,
    group: int = 128,
    dtype: torch.dtype = torch.float16,
    seed: int = 0,
) -> Problem:
    """Random weights of all byte values, and ids with repeats but no -1."""
    g = torch.Generator().manual_seed(seed)

    def packed(rows: int, k: int) -> Tensor:
        return torch.randint(256, (experts, rows, k // 2), dtype=torch.uint8, generator=g)

    def scales(rows: int, k: int) -> Tensor:
        return (torch.rand((experts, rows, k // group), generator=g) * 0.02 + 0.005).to(dtype)

    return Problem(
        torch.randn((tokens, hidden), generator=g).to(dtype),
        packed(2 * inter, hidden),
        scales(2 * inter, hidden),
        packed(hidden, inter),
        scales(hidden, inter),
        torch.rand((tokens, topk), generator=g),
        torch.randint(experts, (tokens, topk), generator=g),
    )


Run = Callable[[Tensor, Problem], None]


def _cpu(name: str) -> Run:
    def run(out: Tensor, p: Problem) -> None:
        cpu_experts.isa(name)
        try:
            cpu_experts.run(out, p.arguments(), layout.check(p.arguments()))
        finally:
            cpu_experts.isa("auto")

    return run


# Triton's interpreter takes milliseconds a program and does not mind large ones.
INTERPRETER_TILES = Choice(Tile(2, 32, 128, False), Tile(2, 32, 256, False))


def run_triton(out: Tensor, p: Problem, choice: Choice | None = None) -> None:
    """On the GPU with the table's tiles, in the interpreter with large ones, or with ``choice``."""
    from u4moe import triton_experts

    on_gpu = torch.cuda.is_available()
    moved = layout.Call(*(t.to("cuda" if on_gpu else "cpu") for t in p.arguments()))
    result = out.to(moved.hidden_states.device)
    if choice is None and not on_gpu:
        choice = INTERPRETER_TILES
    triton_experts.run(result, moved, layout.check(moved), choice)
    out.copy_(result)


def run_torch(out: Tensor, p: Problem) -> None:
    """Plain torch, where nothing is compiled."""
    torch_experts.run(out, p.arguments(), layout.check(p.arguments()))


def backends() -> dict[str, Run]:
    """What runs here: plain torch, Triton (GPU or interpreter), each instruction set of the CPU."""
    import importlib.util

    found: dict[str, Run] = {"torch": run_torch}
    if importlib.util.find_spec("triton") is not None:
        found["triton"] = run_triton
    if cpu_experts.unavailable() is None:
        for name in ("amx", "avx512vnni", "avx512", "avx2", "portable"):
            try:
                cpu_experts.isa(name)
            except RuntimeError:
                continue
            found[name] = _cpu(name)
        cpu_experts.isa("auto")
    return found


def relative_error(run: Run, p: Problem) -> float:
    """Norm of the difference to the reference over its norm; the result starts as NaN."""
    out = torch.full_like(p.x, float("nan"))
    run(out, p)
    expected = reference.fused_experts(*p.arguments())
    return float((out.float() - expected).norm() / expected.norm())
