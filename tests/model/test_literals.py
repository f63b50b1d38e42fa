"""Every match of a pattern contains one of the literals that were taken from it."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stack.model.log.literals import required

WORDS = ["cancelled", "worker", "a+b", "x", "shared memory", "(1)", "[core]", "E|F"]


def regexes() -> st.SearchStrategy[str]:
    """Random expressions of literals, groups, alternatives, classes and repeats."""
    atoms = st.one_of(
        st.sampled_from(WORDS).map(re.escape),
        st.sampled_from([r"\d+", r"\S", ".", "[^]x]", r"[\]a-c]", r"\(", "{", "a{2}", "b{,3}"]),
    )

    def extend(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.one_of(
            st.lists(inner, min_size=1, max_size=4).map("".join),
            st.lists(inner, min_size=2, max_size=3).map(lambda p: "(?:" + "|".join(p) + ")"),
            st.lists(inner, min_size=2, max_size=3).map("|".join),
            st.tuples(inner, st.sampled_from(["?", "*", "+", "{0,2}", "{1,2}", "*?"])).map(
                lambda p: f"(?:{p[0]}){p[1]}"
            ),
            inner.map(lambda p: f"(?P<cause>{p})" if "P<" not in p else f"({p})"),
        )

    return st.recursive(atoms, extend, max_leaves=8)


@given(st.data(), regexes())
@settings(deadline=None)
def test_every_match_contains_a_run_of_each_kind(data: st.DataObject, pattern: str) -> None:
    try:
        compiled = re.compile(pattern.encode())
    except re.error:
        assume(False)
    text = data.draw(st.from_regex(compiled, fullmatch=True))
    match = compiled.search(text)
    assume(match is not None)
    assert match is not None
    alternatives = required(pattern.encode())
    assert any(all(run in match[0] for run in runs) for runs in alternatives)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (rb"Worker proc \S+ died unexpectedly", [[b"Worker proc ", b" died unexpectedly"]]),
        (
            rb"(?P<cause>RuntimeError: cancelled|\w+CancelledError)",
            [[b"RuntimeError: cancelled"], [b"CancelledError"]],
        ),
        (rb"out of memory\. Tried", [[b"out of memory. Tried"]]),
        (rb"colou?rless", [[b"colo", b"rless"]]),
        (rb"(?i)engine reset", [[]]),
        (rb"(?:engine reset)?x", [[]]),
        (rb"[ab]|engine reset", [[], [b"engine reset"]]),
    ],
)
def test_known_patterns(pattern: bytes, expected: list[list[bytes]]) -> None:
    expected = [[run for run in runs if len(run) >= 3] for runs in expected]
    assert required(pattern) == expected
