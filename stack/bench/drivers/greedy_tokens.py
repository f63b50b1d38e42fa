"""Print the greedy tokens of fixed prompts as one JSON object: the correctness gate of a bench.

Runs in the engine's Python, not in the tool's: only the standard library and vllm are imported.
Engine arguments are vLLM's own (`--model`, `--dtype`, ...). Prompts are token ids from a formula,
so no tokenizer and no data set is involved. Everything is generated twice in one engine.

Exit code 0, or 1 when the second generation differs, an output repeats one token only, or a
log-likelihood is no number.
Standard output carries the object alone; what vLLM and its workers print goes to standard error.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import hashlib
import importlib
import json
import math
import os
import signal
import sys

FIRST_WORD = 3  # below are the special tokens


def prompt(length: int, seed: int, vocabulary: int) -> list[int]:
    """Return `length` token ids, fixed by `seed`, without special tokens."""
    words = vocabulary - FIRST_WORD
    return [FIRST_WORD + (7919 * seed + 104729 * at * (at + seed)) % words for at in range(length)]


def digest(tokens: list[list[int]]) -> str:
    """Return the SHA-256 (hex) of the token ids as compact JSON."""
    return hashlib.sha256(json.dumps(tokens, separators=(",", ":")).encode()).hexdigest()


def report(
    prompts: list[list[int]], first: list[list[int]], again: list[list[int]], *,
    finite: bool = True,
) -> dict[str, object]:
    """Return the JSON object for two generations of the same prompts; `finite` is their odds."""
    return {
        "greedy_tokens": 1,
        "sha256": digest(first),
        "repeat_equal": first == again,
        "nan": not finite,
        "degenerate": any(len(set(tokens)) < 2 for tokens in first),
        "distinct": [len(set(tokens)) for tokens in first],
        "outputs": [
            {"prompt_tokens": len(given), "sha256": digest([tokens]), "tokens": tokens}
            for given, tokens in zip(prompts, first, strict=True)
        ],
    }


def tell_of_crashes() -> None:
    """Have Python print where a native crash happened, and end at once.

    tvm_ffi, which vLLM loads, has a handler of its own that allocates memory: behind a corrupted
    heap it can wait for ever. Loaded first, it is replaced here; else Python's own would hand over
    to it.
    """
    with contextlib.suppress(ImportError):
        importlib.import_module("tvm_ffi")
    for fatal in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL):
        signal.signal(fatal, signal.SIG_DFL)
    faulthandler.enable()


def main() -> int:
    """Generate, print, and say by the exit code whether the output can be trusted."""
    result = os.dup(1)
    os.dup2(2, 1)  # before vllm is imported, so that spawned workers inherit it

    from vllm import LLM, SamplingParams
    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    tell_of_crashes()
    parser = FlexibleArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prompt-lengths", default="8,48", help="two lengths, in tokens")
    parser.add_argument("--output-tokens", type=int, default=24)
    parser.add_argument("--prompts", type=int, default=2, help="prompts of each length")
    # A second generation must compute what the first did, not read it from a cache.
    parser.set_defaults(enable_prefix_caching=False)
    options = EngineArgs.add_cli_args(parser).parse_args()

    llm = LLM.from_engine_args(EngineArgs.from_cli_args(options))
    vocabulary = llm.llm_engine.model_config.get_vocab_size()
    lengths = [int(length) for length in options.prompt_lengths.split(",")]
    prompts = [prompt(n, seed, vocabulary) for n in lengths for seed in range(options.prompts)]
    sampling = SamplingParams(
        temperature=0.0, max_tokens=options.output_tokens, ignore_eos=True, logprobs=0
    )
    likely: list[float | None] = []

    def generate() -> list[list[int]]:
        given = [{"prompt_token_ids": ids} for ids in prompts]
        answers = llm.generate(given, sampling, use_tqdm=False)
        likely.extend(answer.outputs[0].cumulative_logprob for answer in answers)
        return [list(answer.outputs[0].token_ids) for answer in answers]

    first, again = generate(), generate()
    finite = all(value is None or math.isfinite(value) for value in likely)
    found = report(prompts, first, again, finite=finite)
    os.write(result, json.dumps(found).encode() + b"\n")
    return 0 if found["repeat_equal"] and finite and not found["degenerate"] else 1


if __name__ == "__main__":  # workers are spawned and import this file
    sys.exit(main())
