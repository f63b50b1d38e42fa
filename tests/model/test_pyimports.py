"""The quick look at changed import lines says what a parse of both files says."""

from __future__ import annotations

import random

import pytest

from stack.model.diff.linediff import changes, split
from stack.model.python.imports import _all_missing, missing_imports

MODULES = {"pkg": set[str](), "pkg.ops": {"gemm", "relu"}, "pkg.far.away": {"one"}}
STATEMENTS = [
    "from pkg.ops import gemm", "from pkg.ops import gemm, topk", "from pkg.gone import x as y",
    "from pkg.ops import (\n    gemm,\n    topk as top,  # best (of all)\n    relu,\n)",
    "from pkg.far.away import one, \\\n    two", "from pkg.ops \\\n    import gone",
    "from numpy import zeros", "from pkg.ops import (gemm, lost)", "from .near import thing",
    "def f():\n    from pkg.ops import inner\n    return inner", "x = 'from pkg.ops import text'",
    "if x: from pkg.ops import one_line", "class A:\n    b = 1", "from pkg.ops import *",
    "import pkg.ops",
]  # fmt: skip


@pytest.mark.parametrize("seed", range(60))
def test_it_says_what_a_parse_of_both_says(seed: int) -> None:
    dice = random.Random(seed)
    before = [dice.choice(STATEMENTS) for _ in range(6)]
    after = list(before)
    for _ in range(dice.randint(1, 3)):
        after[(at := dice.randrange(6)) : at + dice.randint(0, 1)] = [dice.choice(STATEMENTS)]
    if dice.random() < 0.5:
        after = [one.replace("relu,", "relu,\n    more,\n    gemm as g,") for one in after]
    old, new = ("\n".join(text).encode() + b"\n" for text in (before, after))
    made = changes(split(old), split(new))
    assert missing_imports(old, new, made, MODULES.get) == _all_missing(old, new, MODULES.get)


def test_a_name_added_far_down_a_list_is_seen() -> None:
    names = "".join(f"    name{number},\n" for number in range(300))
    old = f"from pkg.ops import (\n{names})\n".encode()
    new = old.replace(b"    name290,\n", b"    name290,\n    late,\n")
    made = changes(split(old), split(new))
    modules = {**MODULES, "pkg.ops": {f"name{number}" for number in range(300)}}
    (said,) = missing_imports(old, new, made, modules.get)
    assert "imports `late`, which pkg.ops does not have" in said
