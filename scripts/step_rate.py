#!/usr/bin/env python3
"""The rate of an engine's undisturbed decode steps, as one JSON object.

Runs in the engine's Python. A full batch decodes several times over in one process. The figure is
the batch divided by the time of a fast step (a low quantile over all full steps), so that what else
a shared machine does for a while does not count. `VLLM_ENABLE_V1_MULTIPROCESSING=0` keeps the
engine in this process. Engine arguments are vLLM's own.
"""

from __future__ import annotations

import json
import time
from pathlib import Path


def quantile(values: list[float], share: float) -> float:
    """The value below which a share of them lies, interpolated."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def main() -> None:
    """Decode, time every step, write the figure and print it."""
    from vllm import SamplingParams
    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser
    from vllm.v1.engine.llm_engine import LLMEngine

    parser = FlexibleArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--prompt-tokens", type=int, default=32)
    parser.add_argument("--output-tokens", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=2, help="after a short one that warms up")
    parser.add_argument("--quantile", type=float, default=0.05)
    parser.add_argument("--output-json", type=Path, required=True)
    options = EngineArgs.add_cli_args(parser).parse_args()
    engine = LLMEngine.from_engine_args(EngineArgs.from_cli_args(options))
    seconds: list[float] = []
    for number in range(options.rounds + 1):
        count = options.output_tokens if number else options.output_tokens // 8
        sampling = SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True)
        for at in range(options.batch):
            words = [3 + (97 * at + 31 * place) % 1000 for place in range(options.prompt_tokens)]
            engine.add_request(f"{number}-{at}", {"prompt_token_ids": words}, sampling)
        while engine.has_unfinished_requests():
            begun = time.perf_counter()
            answers = engine.step()
            took = time.perf_counter() - begun
            if number and len(answers) == options.batch:
                seconds.append(took)
    rate = options.batch / quantile(seconds, options.quantile)
    shares = {f"q{100 * share:g}": quantile(seconds, share) for share in (0.05, 0.25, 0.5, 0.95)}
    found = {"tokens_per_second": rate, "steps": len(seconds), "step_seconds": shares}
    options.output_json.write_text(json.dumps(found))
    print(f"Throughput: {rate:.2f} total tokens/s in a fast step", flush=True)


if __name__ == "__main__":
    main()
