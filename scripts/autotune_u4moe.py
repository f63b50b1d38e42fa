"""Times the Triton kernels' tiles on this machine's GPU and prints rows for u4moe/tuning.py."""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "kernels"))

import torch
from u4moe import layout, triton_experts
from u4moe.tuning import Choice, Tile
from u4moe_bench import problem, timing

ROWS = (2, 4, 8)
PARTS_WORDS = ((2, 128), (4, 128), (8, 128), (2, 256), (4, 256), (1, 512))
BEST = 3


def tiles() -> list[Tile]:
    """Tiles of two to eight warps: a warp takes 128 words of a group of rows."""
    return [
        Tile(rows, parts, words, unroll)
        for rows, (parts, words), unroll in itertools.product(ROWS, PARTS_WORDS, (False, True))
    ]


def _compile(job: tuple[int, Tile]) -> None:
    """Fills Triton's cache with one tile of both kernels."""
    inter, tile = job
    # A count that is divisible by 16 like the real one: Triton compiles for that.
    weights = problem.make_weights(inter, "cuda", torch.float16, experts=16)
    call = problem.make_calls([weights], 1, 1, torch.float16)[0]
    _runner(call, Choice(tile, tile), None)()


def _runner(call: problem.Call, choice: Choice, only: str | None) -> Callable[[], None]:
    arguments = call.arguments()
    shape = layout.check(arguments)
    out = torch.empty_like(call.x)

    def step() -> None:
        triton_experts.run(out, arguments, shape, choice, only)

    return step


def tune(inter: int, tokens: int, count: int) -> tuple[Choice, dict[str, object]]:
    """The fastest pair of tiles, and all times in microseconds a call."""
    weights = [problem.make_weights(inter, "cuda", torch.float16, seed=seed) for seed in range(2)]
    calls = problem.make_calls(weights, tokens, count, torch.float16)
    ranked: dict[str, list[tuple[float, Tile]]] = {}
    for only in ("gate_up", "down"):
        times = []
        for tile in tiles():
            steps = [_runner(call, Choice(tile, tile), only) for call in calls]
            times.append((timing.graph_microseconds(steps, 10), tile))
        ranked[only] = sorted(times, key=lambda pair: pair[0])
    both = []
    for (_, first), (_, second) in itertools.product(
        ranked["gate_up"][:BEST], ranked["down"][:BEST]
    ):
        choice = Choice(first, second)
        steps = [_runner(call, choice, None) for call in calls]
        both.append((timing.graph_microseconds(steps, 30), choice))
    best = min(both, key=lambda pair: pair[0])
    log: dict[str, object] = {
        name: [(round(t, 2), tile.rows, tile.parts, tile.words, tile.unroll) for t, tile in times]
        for name, times in ranked.items()
    }
    return best[1], {"inter": inter, "tokens": tokens, "best": round(best[0], 2), **log}


def main() -> None:
    """Prints the table's rows; with --log writes every time as JSON lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inter", type=int, nargs="+", default=[1536, 384])
    parser.add_argument("--tokens", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--log", type=Path)
    options = parser.parse_args()
    jobs = list(itertools.product(options.inter, tiles()))
    with multiprocessing.get_context("spawn").Pool(max(1, (os.cpu_count() or 2) - 2)) as pool:
        pool.map(_compile, jobs, chunksize=1)
    lines = []
    for inter in options.inter:
        print(f"    ({problem.HIDDEN}, {inter}): {{")
        for tokens in options.tokens:
            choice, log = tune(inter, tokens, options.calls)
            lines.append(json.dumps(log))
            print(f"        {tokens}: {choice},  # {log['best']} us", flush=True)
        print("    },")
    if options.log is not None:
        options.log.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
