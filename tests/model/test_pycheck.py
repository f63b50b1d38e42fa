"""What text merges cannot see of Python: broken, dead or displaced code."""

from __future__ import annotations

import pytest

from stack.model.diff.linediff import changes, split
from stack.model.python.check import suspects
from stack.model.python.imports import Exports, names_of
from stack.model.python.imports import missing_imports as missing

CLASS = b"""class Engine:
    def begin(self):
        return 1

    def middle(self):
        return 2

    def end(self):
        return 3
"""
METHOD = b"    def fast(self):\n        return 9\n\n"


def nothing(module: str) -> set[str] | None:
    return None


def missing_imports(before: bytes, after: bytes, modules: Exports) -> list[str]:
    return missing(before, after, changes(split(before), split(after)), modules)


def found(before: bytes, after: bytes, target: bytes, result: bytes) -> list[str]:
    return suspects(before, after, target, result, nothing)


def test_a_carried_change_in_its_place_is_no_suspect() -> None:
    after = CLASS.replace(b"    def middle", METHOD + b"    def middle")
    target = b"import os\n\n\n" + CLASS
    result = b"import os\n\n\n" + after
    assert found(CLASS, after, target, result) == []


def test_a_method_that_a_later_one_of_the_target_shadows_is_said() -> None:
    """The patch adds `fast`; upstream later adds another further down: merges, never runs."""
    after = CLASS.replace(b"    def middle", METHOD + b"    def middle")
    theirs = b"\n    def fast(self):\n        return 0\n"
    (text,) = found(CLASS, after, CLASS + theirs, after + theirs)
    assert text == "`Engine.fast` at line 5 is shadowed by another at line 14"


@pytest.mark.parametrize("decorator", [b"@overload", b"@fast.setter", b"@register.register"])
def test_definitions_that_are_meant_to_repeat_are_none(decorator: bytes) -> None:
    theirs = b"\n    " + decorator + b"\n    def fast(self):\n        return 0\n"
    after = CLASS.replace(b"    def middle", METHOD + b"    def middle")
    assert found(CLASS, after, CLASS + theirs, after + theirs) == []


def test_a_result_that_does_not_parse_is_said_with_its_line() -> None:
    result = CLASS.replace(b"return 2", b"return (2")
    (text,) = found(CLASS, CLASS, CLASS, result)
    assert text.startswith("does not parse: line 6")


def test_a_file_that_never_parsed_is_nobodys_doing() -> None:
    assert found(b"a b\n", b"a b\nc d\n", b"x\na b\n", b"x\na b\nc d\n") == []


def test_lines_that_land_in_another_function_are_said() -> None:
    before = b"def a():\n    x = 1\n    return x\n\n\ndef b():\n    x = 1\n    return x\n"
    after = before.replace(
        b"    x = 1\n    return x\n", b"    x = 1\n    x += 41\n    return x\n", 1
    )
    result = b"def b():\n    x = 1\n    x += 41\n    return x\n"
    (text,) = found(before, after, b"def b():\n    x = 1\n    return x\n", result)
    assert text == "line 3: stands in b, but in a in the patch's own file"


def test_a_name_that_the_module_does_not_have_is_said() -> None:
    modules = {"pkg": set[str](), "pkg.ops": {"gemm"}}
    after = b"from pkg.ops import gemm, topk\nfrom pkg.gone import x\nfrom numpy import y\n"
    assert missing_imports(b"", after, modules.get) == [
        "line 1: imports `topk`, which pkg.ops does not have",
        "line 2: imports pkg.gone, which is not in the tree",
    ]
    assert missing_imports(after, after + b"z = 1\n", modules.get) == []


def test_names_of_a_module() -> None:
    code = b"""import a.b
from c import d as e
try:
    import fast
except ImportError:
    fast = None
if True:
    X, (Y, Z) = 1, (2, 3)
W: int = 4
def f(): pass
class K: pass
"""
    assert names_of(code) == {"a", "e", "fast", "X", "Y", "Z", "W", "f", "K"}


@pytest.mark.parametrize(
    "code", [b"from x import *\n", b"def __getattr__(name): ...\n", b"globals().update(a=1)\n"]
)
def test_a_module_that_only_running_would_tell_has_every_name(code: bytes) -> None:
    assert names_of(code) is None
