"""Refusals that follow from the limits of a step, the length of the context, and dtypes."""

from __future__ import annotations

from collections.abc import Iterator

from stack.model.preflight.case import Case, Point


def scheduler(case: Case) -> Iterator[Point]:
    """Limits of a step, chunked prefill, and the length of the context."""
    asked = case.asked
    length = asked.length or case.shape.longest
    source = "config/scheduler.py: verify_max_model_len"
    if not asked.chunked:
        if asked.batched and length and asked.batched < length:
            yield Point(
                what="chunked-prefill", result="refused", source=source,
                text=f"without it a prompt is one step, but max-num-batched-tokens {asked.batched} "
                f"is smaller than max-model-len {length}",
                hint=f"--max-num-batched-tokens {length}, or leave chunked prefill on",
            )
        else:
            yield Point(
                what="chunked-prefill", result="note",
                text="a decoder without it may crash or be wrong, says vLLM",
                source="engine/arg_utils.py: _set_default_chunked_prefill_and_prefix_caching_args",
            )
    if asked.batched and asked.sequences and asked.batched < asked.sequences:
        yield Point(
            what="batch", result="refused", source=source,
            text=f"max-num-batched-tokens {asked.batched} is smaller than max-num-seqs "
            f"{asked.sequences}", hint=f"--max-num-batched-tokens {asked.sequences} or more",
        )
    longest = case.shape.longest
    if asked.length and longest and asked.length > longest and not asked.longer:
        yield Point(
            what="context", result="refused", source="config/model.py: max_model_len",
            text=f"max-model-len {asked.length} is beyond max_position_embeddings {longest}",
            hint=f"--max-model-len {longest}",
        )


def kv_dtype(case: Case) -> Iterator[Point]:
    if case.asked.kv_dtype == "fp8_inc":
        yield Point(
            what="kv-cache-dtype", result="refused", hint="--kv-cache-dtype auto or fp8",
            text=f"fp8_inc is for Intel Gaudi; a worker on {case.hardware.device} stops with "
            "`Unsupported data type of kv cache: fp8_inc`", source="config/cache.py: CacheConfig",
        )
