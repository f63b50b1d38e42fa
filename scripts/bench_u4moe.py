"""Benchmarks raw-u4 routed experts against vLLM's kernels (CUDA) or a torch baseline (CPU).

Prints a table to stderr and one JSON object to stdout; with `--check` times nothing and says
whether each kernel is as near to the FP32 reference as its type allows. `chosen` is what the vLLM
on the import path itself selects for the layer. Decode of one MiniMax-M2 layer: hidden
3072, 256 experts, top 8, intermediate 1536 (TP1) or 384 (TP4). On CUDA all kernels run in one
process, inside CUDA graphs of many calls over several weight sets and routings; the floor is the
bytes of the chosen experts over this card's own copy bandwidth, measured first. On a CPU the
kernels take three turns; times and the memory's bandwidth are the best of many, because what
disturbs them only adds.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Behind an installed or built u4moe: in a checkout the extension is not built.
sys.path.append(str(Path(__file__).resolve().parent.parent / "kernels"))

import torch
import u4moe
from torch import Tensor
from u4moe import cpu_experts, reference
from u4moe_bench import cpu_peers, problem, timing

Maker = Callable[[problem.Call], Callable[[], Tensor]]
TOLERANCE = {"float16": 6e-4, "bfloat16": 5e-3}  # as norms, relative


def ours(call: problem.Call) -> Callable[[], Tensor]:
    """A step through the package's own operator."""
    arguments = call.arguments()
    return lambda: u4moe.moe_forward_tiny_nmajor_u4(*arguments)


def relative_error(call: problem.Call, step: Callable[[], Tensor]) -> float:
    """Norm of the difference to the FP32 reference over the reference's norm."""
    expected = reference.fused_experts(*call.arguments())
    return float((step().float() - expected).norm() / expected.norm())


def measure(
    title: str,
    calls: list[problem.Call],
    makers: dict[str, Maker],
    clock: Callable[[list[Callable[[], Tensor]]], float],
    bandwidth: float,
    turns: int = 1,
) -> dict[str, dict[str, float]]:
    """Each kernel's time, bandwidth, share of the floor and error on the same calls.

    With several ``turns`` the kernels are timed one after another as often, and each one's best
    counts: what slows the machine for seconds then falls on all of them.
    """
    moved = problem.mean_bytes(calls)
    floor = moved / bandwidth * 1e6
    rows = {"floor": {"us": floor, "bytes": moved}}
    print(f"{title}: floor {floor:.1f} us", file=sys.stderr)
    best: dict[str, float] = {}
    kept: dict[str, list[Callable[[], Tensor]]] = {}
    for turn in range(turns):
        for name, make in makers.items():
            steps = kept.pop(name, None) or [make(call) for call in calls]
            # The bytes given to Marlin are not in its order: its result means nothing.
            if turn == 0 and name != "vllm_marlin":
                rows[name] = {"error": relative_error(calls[0], steps[0])}
            best[name] = min(best.get(name, math.inf), clock(steps))
            if turn + 1 < turns:
                kept[name] = steps
                continue
            micros = best[name]
            row = rows.setdefault(name, {})
            row |= {"us": micros, "GB/s": moved / micros / 1e3, "x floor": micros / floor}
            said = f"{title}: {name} {micros:.1f} us, error {row.get('error')}"
            print(said, file=sys.stderr, flush=True)
    for name in makers if "u4moe" in makers else ():
        rows[name]["x u4moe"] = rows[name]["us"] / rows["u4moe"]["us"]
    return rows


def cpu_makers(names: list[str]) -> tuple[dict[str, Maker], dict[str, str]]:
    """The named kernels of a CPU, and why those are absent that cannot run here."""
    from u4moe_bench import vllm_cpu

    known: dict[str, Maker] = {
        "u4moe": ours,
        "torch": cpu_peers.torch_step,
        "vllm_amx": vllm_cpu.amx_step,
        "chosen": vllm_cpu.chosen_step,
    }
    makers, absent = {name: known[name] for name in names}, {}
    if "vllm_amx" in makers and (reason := vllm_cpu.no_amx()) is not None:
        del makers["vllm_amx"]
        absent["vllm_amx"] = reason
    return makers, absent


def check(options: argparse.Namespace, dtype: torch.dtype) -> bool:
    """Prints each kernel's errors, on random calls of every shape asked for, as one object."""
    makers: dict[str, Maker] = {"u4moe": ours}
    if options.device == "cpu":
        makers, _ = cpu_makers(options.kernels)
    errors = {}
    for inter in options.inter:
        weights = problem.make_weights(inter, options.device, dtype, options.experts)
        for tokens in options.tokens:
            [call] = problem.make_calls([weights], tokens, 1, dtype)
            for name, make in makers.items():
                errors[f"{name}, inter {inter}, M {tokens}"] = relative_error(call, make(call))
    within = all(error <= TOLERANCE[options.dtype] for error in errors.values())
    print(json.dumps({"within": within, "tolerance": TOLERANCE[options.dtype], "errors": errors}))
    return within


def run_cuda(options: argparse.Namespace, dtype: torch.dtype) -> dict[str, Any]:
    """All kernels that load, on the current CUDA device."""
    from u4moe_bench import vllm_peers

    makers, absent = vllm_peers.find(options.peers)
    makers = {"u4moe": ours, **makers}
    bandwidth = timing.cuda_copy_bandwidth()
    results = []
    for inter in options.inter:
        sets = [problem.make_weights(inter, "cuda", dtype, seed=s) for s in range(options.sets)]
        for tokens in options.tokens:
            calls = problem.make_calls(sets, tokens, options.calls, dtype)
            rows = measure(
                f"inter {inter}, M {tokens}", calls, makers, timing.graph_microseconds, bandwidth
            )
            results.append({"inter": inter, "tokens": tokens, "kernels": rows})
    return {
        "device": torch.cuda.get_device_name(),
        "copy_GB/s": bandwidth / 1e9,
        "absent": absent,
        "results": results,
    }


def run_cpu(options: argparse.Namespace, dtype: torch.dtype) -> dict[str, Any]:
    """The C++ kernels against torch on dequantised chosen experts, with torch's threads."""
    makers, absent = cpu_makers(options.kernels)
    bandwidth = timing.cpu_read_bandwidth()
    results = []
    for inter in options.inter:
        sets = [
            problem.make_weights(inter, "cpu", dtype, options.experts, seed=s)
            for s in range(options.sets)
        ]
        for tokens in options.tokens:
            calls = problem.make_calls(sets, tokens, options.calls, dtype)
            rows = measure(
                f"inter {inter}, M {tokens}", calls, makers, timing.cpu_microseconds, bandwidth, 3
            )
            results.append({"inter": inter, "tokens": tokens, "kernels": rows})
    return {
        "device": f"cpu {cpu_experts.isa()}, {torch.get_num_threads()} threads",
        "read_GB/s": bandwidth / 1e9,
        "absent": absent,
        "results": results,
    }


def table(report: dict[str, Any]) -> str:
    """The results as a Markdown table."""
    head = "| inter | M | kernel | us | GB/s | x floor | times u4moe | relative error |"
    lines = [head, "|---" * 8 + "|"]
    for result in report["results"]:
        for name, row in result["kernels"].items():
            speed = "".join(
                f" {row[key]:.{digits}f} |" if key in row else " |"
                for key, digits in (("us", 1), ("GB/s", 0), ("x floor", 2), ("x u4moe", 2))
            )
            error = f" {row['error']:.1e} |" if "error" in row else " |"
            lines.append(f"| {result['inter']} | {result['tokens']} | {name} |{speed}{error}")
    return "\n".join(lines)


def main() -> int:
    """Runs one device's benchmark; 5 where its kernels are not installed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--dtype", choices=("float16", "bfloat16"), default="float16")
    parser.add_argument("--inter", type=int, nargs="+", default=[384, 1536])
    parser.add_argument("--tokens", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--calls", type=int, default=20, help="calls a graph, each its own routing")
    parser.add_argument("--sets", type=int, default=2, help="weight sets that the calls go over")
    parser.add_argument("--experts", type=int, default=problem.EXPERTS, help="on cpu")
    parser.add_argument(
        "--kernels", nargs="+", default=["u4moe", "torch", "vllm_amx"], help="on cpu",
        choices=("u4moe", "torch", "vllm_amx", "chosen"),
    )  # fmt: skip
    parser.add_argument("--check", action="store_true", help="errors only: one object, exit 0 or 1")
    parser.add_argument("--result", type=Path, help="file for the JSON object too")
    parser.add_argument("--peers", type=Path, help="folder with vLLM's files, see vllm_peers.py")
    options = parser.parse_args()
    on_cpu = options.device == "cpu"
    reason = None if options.kernels == ["chosen"] else u4moe.u4_unavailable(options.device)
    if on_cpu and "u4moe" in options.kernels:
        reason = cpu_experts.unavailable()
    if reason is not None:
        print(reason, file=sys.stderr)
        return 5
    dtype = getattr(torch, options.dtype)
    if options.check:
        return 0 if check(options, dtype) else 1
    run = run_cuda if options.device == "cuda" else run_cpu
    report = {
        "bench": "u4moe",
        "dtype": options.dtype,
        "torch": torch.__version__,
        **run(options, dtype),
    }
    for name, why in report["absent"].items():
        print(f"{name} not measured: {why}", file=sys.stderr)
    print(table(report), file=sys.stderr)
    print(json.dumps(report))
    if options.result is not None:
        options.result.write_text(json.dumps(report))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
