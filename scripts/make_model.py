"""Write a small made-up MiniMax-M2 checkpoint that a CPU engine loads in under a second.

The weights are random but fixed: each tensor is read from SHAKE-256 of its own name, so the same
options give the same bytes on every machine and Python. Nothing is downloaded and only the
standard library is used. `--scoring softmax` routes without a bias; `--scoring sigmoid` has the
real model's traits (sigmoid scores, a routing bias that decides which experts are taken).
`--experts int4` packs the experts as GPTQ does, symmetric, with scales so short that a weight
(nibble - 8 times its scale) is exact in BF16: a BF16 checkpoint can hold the same model.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM = 256, 4, 4, 2, 128
EXPERTS, TOP_K, INTERMEDIATE, VOCAB = 16, 4, 128, 2048
GROUP, NIBBLES = 128, 8  # weights a scale, weights an int32
BF16_ONE = b"\x80\x3f"
SIZES = {"BF16": 2, "F16": 2, "F32": 4, "I32": 4}
Tensors = Iterator[tuple[str, str, tuple[int, ...]]]


def config(scoring: str, experts: str) -> dict[str, object]:
    """Return `config.json` for `scoring`, `softmax` or `sigmoid`, and `experts`, bf16 or int4."""
    quantized = {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "sym": True}
    return {
        "architectures": ["MiniMaxM2ForCausalLM"],
        "model_type": "minimax_m2",
        "dtype": "bfloat16",
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "rotary_dim": HEAD_DIM // 2,
        "rope_theta": 5000000,
        "hidden_act": "silu",
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "num_local_experts": EXPERTS,
        "num_experts_per_tok": TOP_K,
        "scoring_func": scoring,
        "use_routing_bias": scoring == "sigmoid",
        "use_qk_norm": True,
        "qk_norm_type": "per_layer",
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
    } | ({"quantization_config": quantized | {"desc_act": False}} if experts == "int4" else {})


def shapes(scoring: str, experts: str) -> Tensors:
    """Yield name, safetensors dtype and shape of every tensor, named as the real ones are."""
    yield "model.embed_tokens.weight", "BF16", (VOCAB, HIDDEN)
    for layer in range(LAYERS):
        at = f"model.layers.{layer}"
        yield f"{at}.input_layernorm.weight", "BF16", (HIDDEN,)
        yield f"{at}.post_attention_layernorm.weight", "BF16", (HIDDEN,)
        for name, heads in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
            yield f"{at}.self_attn.{name}_proj.weight", "BF16", (heads * HEAD_DIM, HIDDEN)
        yield f"{at}.self_attn.q_norm.weight", "BF16", (HEADS * HEAD_DIM,)
        yield f"{at}.self_attn.k_norm.weight", "BF16", (KV_HEADS * HEAD_DIM,)
        yield f"{at}.self_attn.o_proj.weight", "BF16", (HIDDEN, HEADS * HEAD_DIM)
        yield f"{at}.block_sparse_moe.gate.weight", "F32", (EXPERTS, HIDDEN)
        if scoring == "sigmoid":
            yield f"{at}.block_sparse_moe.e_score_correction_bias", "F32", (EXPERTS,)
        for expert in range(EXPERTS):
            of = f"{at}.block_sparse_moe.experts.{expert}"
            for name, (n, k) in (
                ("w1", (INTERMEDIATE, HIDDEN)),
                ("w2", (HIDDEN, INTERMEDIATE)),
                ("w3", (INTERMEDIATE, HIDDEN)),
            ):
                yield from matrix(f"{of}.{name}", n, k, experts)
    yield "model.norm.weight", "BF16", (HIDDEN,)
    yield "lm_head.weight", "BF16", (VOCAB, HIDDEN)


def matrix(name: str, n: int, k: int, experts: str) -> Tensors:
    """Yield the tensors of one expert's matrix `[n, k]`: itself, or what GPTQ makes of it."""
    if experts == "bf16":
        yield f"{name}.weight", "BF16", (n, k)
        return
    yield f"{name}.qweight", "I32", (k // NIBBLES, n)
    yield f"{name}.qzeros", "I32", (k // GROUP, n // NIBBLES)
    yield f"{name}.scales", "F16", (k // GROUP, n)
    yield f"{name}.g_idx", "I32", (k,)


def values(name: str, dtype: str, shape: tuple[int, ...]) -> bytes:
    """Return the little-endian values of one tensor, fixed by its name alone.

    Norm weights are 1, packed weights all 32 bits random, their zero points 7 (GPTQ means 8),
    their scales 2**e to 2**(e+1) in steps of 2**(e-4). Everything else has a random sign and a
    magnitude between 2**e and 2**(e+2), with e chosen so that a matrix keeps the scale of its
    input: bytes are placed into the number format directly, because a loop over millions of
    values takes seconds.
    """
    count = math.prod(shape)
    if name.endswith("norm.weight"):
        return BF16_ONE * count
    if name.endswith("qzeros"):
        return b"\x77" * (count * SIZES[dtype])
    if name.endswith("g_idx"):
        return struct.pack(f"<{count}i", *(k // GROUP for k in range(count)))
    stream = hashlib.shake_256(name.encode()).digest(count * SIZES[dtype])
    if name.endswith("qweight"):
        return stream
    if name.endswith("scales"):
        # A nibble less 8 is 4.6 from zero in the mean, so the matrix keeps its input's scale.
        exponent = round(-0.5 * math.log2(shape[0] * GROUP)) - 3
        pairs = zip(stream[::2], stream[1::2], strict=True)
        return b"".join(bytes((a & 0xC0, (exponent + 15) << 2 | b & 3)) for a, b in pairs)
    if "bias" in name:  # small beside a sigmoid score, so it decides close calls only
        exponent = -5
    elif "embed" in name:
        exponent = -1
    else:
        exponent = round(-0.5 * math.log2(shape[-1])) - 1
    # In both formats the top byte holds the sign and seven of eight exponent bits (bias 127), so
    # it can only step by a factor of four; the bit below it is random.
    top = (exponent + 127) >> 1
    table = bytes(top | 0x80 if byte & 1 else top for byte in range(256))
    size = SIZES[dtype]
    out = bytearray(stream)
    out[size - 1 :: size] = stream[size - 1 :: size].translate(table)
    return bytes(out)


def write_weights(path: Path, scoring: str, experts: str) -> None:
    """Write one safetensors file: header length, JSON header, then the tensors back to back."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    blobs: list[bytes] = []
    start = 0
    for name, dtype, shape in shapes(scoring, experts):
        blob = values(name, dtype, shape)
        end = start + len(blob)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
        blobs.append(blob)
        start = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def tokenizer() -> dict[str, object]:
    """Return `tokenizer.json` of a word-level tokenizer, one word a token: `w3` ... `w2047`."""
    special = ["<unk>", "<s>", "</s>"]
    words = special + [f"w{index}" for index in range(len(special), VOCAB)]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": index, "content": word, "special": True, **flags}
            for index, word in enumerate(special)
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {word: index for index, word in enumerate(words)},
            "unk_token": "<unk>",
        },
    }


def make_model(out: Path, scoring: str, experts: str) -> None:
    """Write the checkpoint into the directory `out`, which is made if it is missing."""
    out.mkdir(parents=True, exist_ok=True)
    documents: dict[str, object] = {
        "config.json": config(scoring, experts),
        "generation_config.json": {"bos_token_id": 1, "eos_token_id": 2},
        "tokenizer.json": tokenizer(),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "unk_token": "<unk>",
            "bos_token": "<s>",
            "eos_token": "</s>",
            "model_max_length": 4096,
        },
    }
    for name, document in documents.items():
        (out / name).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    write_weights(out / "model.safetensors", scoring, experts)


def main(argv: list[str] | None = None) -> int:
    """Parse the command line and write the model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--scoring", choices=("softmax", "sigmoid"), required=True)
    parser.add_argument("--experts", choices=("bf16", "int4"), default="bf16")
    parser.add_argument("--out", type=Path, required=True, help="directory to write")
    options = parser.parse_args(argv)
    make_model(options.out, options.scoring, options.experts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
