"""The rules of a preflight against what vLLM said and counted on four Arc Pro B70."""

from __future__ import annotations

from typing import Any

import pytest

from stack.model.hardware import Hardware
from stack.model.preflight.arguments import Arguments, amount, read
from stack.model.preflight.case import Case, Point
from stack.model.preflight.kv import bytes_per_rank, longest_for
from stack.model.preflight.preflight import points
from stack.model.preflight.shape import shape, tensors

MINIMAX = {
    "model_type": "minimax_m2", "hidden_size": 3072, "intermediate_size": 1536,
    "num_hidden_layers": 62, "num_attention_heads": 48, "num_key_value_heads": 8, "head_dim": 128,
    "num_local_experts": 256, "max_position_embeddings": 196608, "dtype": "bfloat16",
    "use_mtp": True, "num_mtp_modules": 3,
    "quantization_config": {"quant_method": "auto-round", "bits": 4, "group_size": 128},
}
B70 = Hardware(device="xpu", count=4, memory=32, usable=0.92)
NAMES = [f"model.layers.{at}.block_sparse_moe.gate.weight" for at in range(62)]
WEIGHTS = 119.77e9


def look(
    words: str = "", config: dict[str, Any] = MINIMAX, names: list[str] = NAMES,
    hardware: Hardware = B70, release: tuple[int, ...] = (0, 20, 1),
) -> dict[str, Point]:
    asked = read(("--tensor-parallel-size 4 --max-model-len 2048 " + words).split(), {})
    found = points(Case(
        shape=shape(config), tensors=tensors(names), asked=asked, hardware=hardware,
        weights=WEIGHTS, memory=hardware.memory, release=release,
    ))
    return {point.what: point for point in found}


def refusals(found: dict[str, Point]) -> dict[str, str]:
    return {what: point.text for what, point in found.items() if point.result == "refused"}


def test_what_ran_is_not_refused() -> None:
    words = "--max-num-batched-tokens 1024 --max-num-seqs 1 --no-enable-prefix-caching"
    found = look(words)
    assert refusals(found) == {}
    assert found["groups"].text == "experts: 1536 / 4 ranks = 384, in groups of 128"
    assert refusals(look("--pipeline-parallel-size 2 --tensor-parallel-size 2")) == {}


def test_the_kv_cache_is_counted_as_the_engine_counted_it() -> None:
    asked = Arguments(tensor=4, kv_bytes=amount("256M"), dtype="float16")
    minimax = shape(MINIMAX)
    # GPU KV cache size: 4,224 tokens; 0.12 GiB required for max_model_len=2048
    assert longest_for(minimax, asked, amount("256M"), 64) == 4224
    need = bytes_per_rank(minimax, asked, 2048, 64)
    assert need == 2 * 62 * 2 * 128 * 2 * 2048
    assert f"{need / 2**30:.2f}" == "0.12"
    found = look("--kv-cache-memory-bytes 256M")["kv-cache"]
    assert found.result == "ok"
    assert found.text.endswith("--kv-cache-memory-bytes gives 0.25 GiB, for 4,224 tokens")
    # ... of which graphs left only 0.05 GiB
    little = look("--kv-cache-memory-bytes 51M")["kv-cache"]
    assert (little.result, little.hint) == ("refused", "--max-model-len 832")


def test_what_the_cards_leave() -> None:
    found = look()["kv-cache"]
    assert "0.92 of 32.0 GiB less 27.9 GiB of weights leaves, before activations," in found.text
    assert refusals(look("--tensor-parallel-size 2"))["kv-cache"].endswith("-26.33 GiB")
    assert set(refusals(look("--max-model-len 100000"))) == {"kv-cache"}
    narrow = look("--max-model-len 40000 --kv-cache-dtype fp8")["kv-cache"]
    wide = look("--max-model-len 40000")["kv-cache"]
    assert (narrow.result, wide.result) == ("ok", "refused")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            "--decode-context-parallel-size 2",
            "tensor parallel size 4 must be greater than total num kv heads 8",
        ),
        ("-dcp 3", "3 does not divide the 4 tensor-parallel ranks, which it reuses"),
    ],
)
def test_decode_context_parallel(words: str, text: str) -> None:
    assert refusals(look(words)) == {"decode-context-parallel": text}


def test_decode_context_parallel_beyond_the_kv_heads() -> None:
    many = Hardware(device="cuda", count=64, memory=80)
    few = {**MINIMAX, "num_key_value_heads": 2, "quantization_config": {}}
    said = refusals(look("-tp 16 -dcp 16", few, hardware=many))
    assert said == {"decode-context-parallel": "16 is more than 16 ranks // 2 KV heads = 8"}
    found = look("-tp 16 -dcp 8", few, hardware=many)
    assert refusals(found) == {}
    assert found["decode-context-parallel"].result == "ok"
    odd = {**few, "num_attention_heads": 96, "num_key_value_heads": 32}
    said = refusals(look("-tp 64 -dcp 2", odd, hardware=many))
    assert said["tensor-parallel"] == "96 attention heads cannot be divided among 64 ranks"
    assert said["decode-context-parallel"].startswith("3 query heads for each KV head")


@pytest.mark.parametrize(
    ("words", "what", "text"),
    [
        ("-tp 8", "ranks", "tensor 8 x pipeline 1 = 8 devices, but the profile has 4"),
        ("-tp 5", "tensor-parallel", "48 attention heads cannot be divided among 5 ranks"),
        ("-tp 3", "tensor-parallel", "8 KV heads can neither be divided among 3 ranks"),
        ("--pipeline-parallel-size 63 -tp 1", "ranks", "63 pipeline stages for 62 layers"),
        ("--kv-cache-dtype fp8_inc", "kv-cache-dtype", "Unsupported data type of kv cache"),
        ("--max-model-len 200k", "context", "max-model-len 200000 is beyond"),
        ("--max-num-seqs 2000 --max-num-batched-tokens 1024", "batch", "smaller than max-num-seqs"),
        (
            "--no-enable-chunked-prefill --no-enable-prefix-caching --max-num-batched-tokens 1024",
            "chunked-prefill", "max-num-batched-tokens 1024 is smaller than max-model-len 2048",
        ),
    ],
)
def test_what_cannot_work(words: str, what: str, text: str) -> None:
    found = look(words)
    assert text in refusals(found)[what]
    assert found[what].hint


def test_chunked_prefill_may_be_off_where_a_prompt_fits_into_a_step() -> None:
    found = look("--no-enable-chunked-prefill --max-num-batched-tokens 2048")
    assert found["chunked-prefill"].result == "note"
    longer = read(["VLLM_ALLOW_LONG_MAX_MODEL_LEN=1", "vllm", "--max-model-len=1M"], {})
    assert (longer.longer, longer.length) == (True, 2**20)


def test_groups_cut_by_the_division_among_ranks() -> None:
    eight = Hardware(device="cuda", count=64, memory=80)
    plain = {**MINIMAX, "num_key_value_heads": 48}
    note = look("-tp 8", plain, hardware=eight)["groups"]
    assert note.result == "note"
    assert "1536 / 8 ranks = 192: the groups of 128 become groups of 64" in note.text
    later = look("-tp 8", plain, hardware=eight, release=(0, 29, 0))["groups"]
    assert "is padded to a multiple of 128, or refused" in later.text
    found = refusals(look("-tp 64", {**plain, "num_attention_heads": 64}, hardware=eight))
    assert found["groups"] == "experts: 1536 / 64 ranks = 24 is no multiple of the group size 128"
    dense = {**plain, "num_local_experts": 0}
    assert "intermediate" in refusals(look("-tp 8", dense, hardware=eight))["groups"]


def test_mtp_modules_that_stand_only_in_the_configuration() -> None:
    note = look()["mtp"]
    assert note.result == "note"
    assert "3 modules (num_mtp_modules), but no tensor is named model.layers.62/63/64" in note.text
    asked = '--speculative-config {"method":"mtp","num_speculative_tokens":3}'
    assert look(asked)["mtp"].result == "refused"
    more = [*NAMES, *(f"model.layers.{at}.embed_tokens.weight" for at in (62, 63, 64))]
    assert look(asked, names=more)["mtp"].result == "ok"
    assert look(asked, names=[*NAMES, "mtp.fc.weight"])["mtp"].result == "ok"
    assert "mtp" not in look(config={**MINIMAX, "use_mtp": False})
    assert look(asked, {**MINIMAX, "use_mtp": False})["mtp"].result == "refused"


def test_layers_without_tensors() -> None:
    said = refusals(look(names=[name for name in NAMES if ".17." not in name]))
    assert said == {"tensors": "of 62 layers 1 have no tensor: 17"}
    assert "tensors" not in look(names=["w0"])


def test_the_last_of_two_equal_arguments_holds_and_what_is_not_understood_is_said() -> None:
    asked = read(["--max_model_len=512", "-tp", "x", "--max-model-len", "1024"], {})
    assert (asked.length, asked.tensor, asked.unread) == (1024, 1, ("--tp x",))
    assert read(["--max-model-len", "auto"], {}).unread == ()
    with pytest.raises(ValueError, match="no number"):
        amount("many")
