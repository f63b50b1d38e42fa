"""How far INT4 experts are from FP32 torch in a whole model: runs in the engine's Python.

    unpack MODEL OUT       the same model without INT4: experts dequantised by u4moe's reference
    unpack MODEL OUT swap  ... with gate and up of one expert exchanged: what must be noticed
    write MODEL SEQUENCES  prompts and the tokens that the engine chose greedily, in BF16
    score MODEL DTYPE SEQUENCES OUT   log-probabilities of every token after every prefix
    compare SEQUENCES INT4 BF16 FP32  one JSON object: error quantiles, tokens

The made-up model's weights are exact in BF16, so all engines hold the same numbers and differ in
rounding only; the BF16 engine's own distance from FP32 says how much of it is rounding.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

PROMPTS, NEW_TOKENS, VOCAB = 8, 32, 2048
QUANTILES = {"median": 0.5, "p90": 0.9, "max": 1.0}


def unpack(model: Path, out: Path, swap: bool) -> None:
    """Write `model` with `weight` for each `qweight`; refuses what BF16 cannot hold exactly."""
    from u4moe import reference

    out.mkdir()
    for file in model.glob("*.json"):
        (out / file.name).write_bytes(file.read_bytes())
    config = json.loads((model / "config.json").read_text())
    del config["quantization_config"]
    (out / "config.json").write_text(json.dumps(config))
    dense: dict[str, Tensor] = {}
    packed = load_file(model / "model.safetensors")
    for name, tensor in packed.items():
        stem, kind = name.rsplit(".", 1)
        if kind == "qweight":
            rows = tensor.t().contiguous().view(torch.uint8)
            exact = reference.dequantise(rows, packed[f"{stem}.scales"].t().contiguous())
            dense[f"{stem}.weight"] = exact.bfloat16()
            assert torch.equal(dense[f"{stem}.weight"].float(), exact)
        elif kind not in ("qzeros", "scales", "g_idx"):
            dense[name] = tensor
    if swap:
        gate, up = (f"model.layers.0.block_sparse_moe.experts.0.{w}.weight" for w in ("w1", "w3"))
        dense[gate], dense[up] = dense[up], dense[gate]
    save_file(dense, out / "model.safetensors", metadata={"format": "pt"})


def engine(model: Path, dtype: str):  # vllm.LLM, which is imported late
    """vLLM's CPU engine in this process."""
    from vllm import LLM

    return LLM(
        str(model), dtype=dtype, enforce_eager=True, max_model_len=128, max_logprobs=VOCAB,
        kv_cache_memory_bytes=64 << 20, enable_prefix_caching=False, disable_log_stats=True,
    )  # fmt: skip


def write(model: Path, sequences: Path) -> None:
    """Greedy tokens of fixed prompts, of 8 and of 48 tokens, all in one batch."""
    from vllm import SamplingParams

    prompts = [
        [3 + (7919 * seed + 104729 * at * (at + seed)) % (VOCAB - 3) for at in range(length)]
        for length in (8, 48)
        for seed in range(PROMPTS // 2)
    ]
    sampling = SamplingParams(temperature=0.0, max_tokens=NEW_TOKENS, ignore_eos=True)
    given = [{"prompt_token_ids": ids} for ids in prompts]
    answers = engine(model, "bfloat16").generate(given, sampling, use_tqdm=False)
    chosen = [list(answer.outputs[0].token_ids) for answer in answers]
    sequences.write_text(json.dumps({"prompts": prompts, "tokens": chosen}))


def whole(sequences: Path) -> list[list[int]]:
    found = json.loads(sequences.read_text())
    return [a + b for a, b in zip(found["prompts"], found["tokens"], strict=True)]


def score(model: Path, dtype: str, sequences: Path, out: Path) -> None:
    """Save one `[length - 1, VOCAB]` tensor a sequence, in order."""
    from vllm import SamplingParams

    sampling = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=VOCAB)
    given = [{"prompt_token_ids": ids} for ids in whole(sequences)]
    answers = engine(model, dtype).generate(given, sampling, use_tqdm=False)
    scores = []
    for answer in answers:
        table = torch.full((len(answer.prompt_token_ids) - 1, VOCAB), float("nan"))
        for row, found in zip(table, answer.prompt_logprobs[1:], strict=True):
            row[list(found)] = torch.tensor([one.logprob for one in found.values()])
        scores.append(table)
    torch.save(scores, out)


def errors(found: list[Tensor], wanted: list[Tensor]) -> dict[str, float]:
    """Quantiles over all positions of the largest difference among all tokens there."""
    pairs = zip(found, wanted, strict=True)
    each = torch.cat([(a - b).abs().amax(-1) for a, b in pairs])
    return {name: float(each.quantile(q)) for name, q in QUANTILES.items()}


def compare(sequences: Path, int4: Path, bf16: Path, fp32: Path) -> dict[str, object]:
    """`gaps`: how far below FP32's best token each chosen one stands, where they differ."""
    scores = {path: torch.load(path) for path in (int4, bf16, fp32)}
    prompts = json.loads(sequences.read_text())["prompts"]
    gaps, total = [], 0
    for prompt, ids, table in zip(prompts, whole(sequences), scores[fp32], strict=True):
        for at in range(len(prompt), len(ids)):
            row = table[at - 1]
            total += 1
            if row.argmax() != ids[at]:
                gaps.append(float(row.max() - row[ids[at]]))
    return {
        "int4": errors(scores[int4], scores[fp32]),
        "bf16": errors(scores[bf16], scores[fp32]),
        "tokens": total,
        "gaps": gaps,
    }


def main(verb: str, *arguments: str) -> None:
    """Do one verb; standard output carries the answer of `compare` alone."""
    result = os.dup(1)
    os.dup2(2, 1)
    if verb == "unpack":
        unpack(Path(arguments[0]), Path(arguments[1]), swap="swap" in arguments)
    elif verb == "write":
        write(Path(arguments[0]), Path(arguments[1]))
    elif verb == "score":
        score(Path(arguments[0]), arguments[1], Path(arguments[2]), Path(arguments[3]))
    else:
        found = compare(*map(Path, arguments))
        os.write(result, json.dumps(found).encode() + b"\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
