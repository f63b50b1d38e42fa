"""Refusals that follow from how a model is divided among ranks."""

from __future__ import annotations

from collections.abc import Iterator

from stack.model.preflight.case import Case, Point


def ranks(case: Case) -> Iterator[Point]:
    asked, count = case.asked, case.hardware.count
    wanted = asked.tensor * asked.pipeline
    if wanted > count and case.hardware.device != "cpu":
        yield Point(
            what="ranks", result="refused", hint="fewer ranks, or a machine with more devices",
            text=f"tensor {asked.tensor} x pipeline {asked.pipeline} = {wanted} devices, but the "
            f"profile has {count}",
        )
    layers = case.shape.layers
    if layers is not None and asked.pipeline > layers:
        yield Point(
            what="ranks", result="refused", hint=f"--pipeline-parallel-size {layers} or less",
            text=f"{asked.pipeline} pipeline stages for {layers} layers",
        )


def heads(case: Case) -> Iterator[Point]:
    what, tp = "tensor-parallel", case.asked.tensor
    heads, kv, experts = case.shape.heads, case.shape.kv_heads, case.shape.experts
    hint = "a --tensor-parallel-size that divides them"
    if heads and heads % tp:
        yield Point(
            what=what, result="refused", hint=hint,
            text=f"{heads} attention heads cannot be divided among {tp} ranks",
            source="config/model.py: verify_with_parallel_config",
        )
    elif kv and not case.shape.latent and max(kv, tp) % min(kv, tp):
        yield Point(
            what=what, result="refused", hint=hint,
            text=f"{kv} KV heads can neither be divided among {tp} ranks nor repeated evenly",
            source="model_executor/models: the attention of the model",
        )
    elif experts and tp > experts and not case.asked.experts:
        yield Point(
            what=what, result="refused", hint=f"--tensor-parallel-size {experts} or less",
            text=f"{tp} ranks are more than the {experts} experts",
            source="model_executor/models: the experts of the model",
        )
    elif case.asked.experts and not experts:
        yield Point(
            what=what, result="refused", hint="leave out --enable-expert-parallel",
            text="expert parallelism was asked for, and the model has no experts",
            source="config/model.py: _verify_with_expert_parallelism",
        )
    elif heads and kv:
        many = f", {experts} experts" if experts else ""
        yield Point(
            what=what, result="ok",
            text=f"{heads} heads, {kv} KV heads{many} on {tp} ranks",
        )


def context(case: Case) -> Iterator[Point]:
    """Decode context parallelism."""
    what, dcp, tp = "decode-context-parallel", case.asked.context, case.asked.tensor
    heads, kv = case.shape.heads, case.shape.kv_heads
    if dcp <= 1:
        return
    refused, hint = None, "--decode-context-parallel-size 1"
    source = "config/model.py: verify_with_parallel_config"
    if tp % dcp:
        refused = f"{dcp} does not divide the {tp} tensor-parallel ranks, which it reuses"
        source = "config/parallel.py: ParallelConfig"
    elif case.shape.latent or not heads or not kv:
        return
    elif tp <= kv:
        refused = f"tensor parallel size {tp} must be greater than total num kv heads {kv}"
    elif dcp > tp // kv:
        refused = f"{dcp} is more than {tp} ranks // {kv} KV heads = {tp // kv}"
    elif heads // kv % dcp:
        refused = f"{heads // kv} query heads for each KV head cannot be divided by {dcp}"
    if refused:
        yield Point(what=what, result="refused", text=refused, hint=hint, source=source)
    else:
        yield Point(what=what, result="ok", text=f"{dcp} of {tp} ranks, {kv} KV heads")
