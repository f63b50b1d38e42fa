"""What vLLM would refuse after minutes of loading, said before, by the rules of its source.

Files and names in `source` are those of vLLM 0.20.1, whose rules 0.29.0 kept but where it is said.
"""

from __future__ import annotations

from collections.abc import Iterator

from stack.model.preflight.case import Case, Point
from stack.model.preflight.limits import kv_dtype, scheduler
from stack.model.preflight.ranks import context, heads, ranks
from stack.model.preflight.tensors import tensors
from stack.model.preflight.weights import groups, kv_memory

_RULES = (ranks, heads, context, scheduler, kv_dtype, tensors, groups, kv_memory)


def points(case: Case) -> Iterator[Point]:
    """Every point of a case, in the order in which vLLM would come to it."""
    for option in case.asked.unread:
        yield Point(what="arguments", result="note", text=f"{option}: not understood, not checked")
    for rule in _RULES:
        yield from rule(case)
