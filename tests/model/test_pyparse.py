"""Whether a changed file parses is what a parse of all of it says, however it is found out."""

from __future__ import annotations

import argparse
import ast
import random
import textwrap
from pathlib import Path
from unittest import mock

import pytest

from stack.model.diff.linediff import changes, split
from stack.model.python import parse as pyparse
from stack.model.python.parse import parse, parses

SOURCES = [Path(module.__file__ or "").read_bytes() for module in (argparse, ast, random, textwrap)]
LINES = [
    b"else:\n", b'"""\n', b"    more = 1\n", b"@wraps\n", b"go = \\\n", b")\n", b"# note\n", b"\n",
    b"def f():\n", b"if True:\n", b"x = (\n", b"from __future__ import annotations\n", b"try:\n",
    b"# coding: latin-1\n", b"s = '\xe9'\n", b"a = 1; b = 2\n", b"''' '''; y = '''\n", b"\x00\n",
    b"\r\n", b"a\rb\n", b"except X: pass\n", b"class A: pass; b = [\n", b"\xef\xbb\xbfx = 1\n",
]  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_it_says_what_a_whole_parse_says(seed: int) -> None:
    dice = random.Random(seed)
    before = dice.choice(SOURCES)
    assert parses(before, b"", changes([], split(before)))
    for _ in range(12):
        lines = split(before)
        for _ in range(dice.randint(1, 3)):
            at = dice.randrange(len(lines))
            stop = at + dice.choice((0, 0, 1, 1, 2, 5))
            moved = lines[at:stop] if dice.random() < 0.3 else [dice.choice(LINES)]
            lines[at:stop] = moved * dice.choice((0, 1, 1, 2))
        result = b"".join(lines)
        said = parses(result, before, changes(split(before), lines))
        assert said == (parse(result) is not None)
        if said:
            before = result


def test_only_the_statements_around_a_change_are_parsed_again() -> None:
    before = SOURCES[0]
    parses(before, b"", changes([], split(before)))
    lines = split(before)
    at = lines.index(b"class HelpFormatter(object):\n")
    lines[at:at] = [b"added = 1\n"]
    result = b"".join(lines)
    seen: list[int] = []

    def counted(data: bytes) -> ast.Module | None:
        seen.append(len(data))
        return parse(data)

    with mock.patch.object(pyparse, "parse", counted):
        assert parses(result, before, changes(split(before), lines))
    assert sum(seen) < len(result) / 2
