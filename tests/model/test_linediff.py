"""Differences of lines: what they say rebuilds the new file, and stands where people see it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stack.model.diff.linediff import changes, split

LINES = st.lists(st.sampled_from([b"a\n", b"b\n", b"c\n", b"d\n", b"\n"]), max_size=14)


@given(LINES, LINES)
def test_changes_rebuild_the_new_file(old: list[bytes], new: list[bytes]) -> None:
    found = changes(old, new)
    out: list[bytes] = []
    at = 0
    for a, b, c, d in found:
        assert old[at:a] == new[len(out) : c]
        assert (a, c) != (b, d)
        out += old[at:a] + new[c:d]
        at = b
    assert out + old[at:] == new
    for (_, b, _, d), (a, _, c, _) in zip(found, found[1:], strict=False):
        assert b < a or d < c
        assert b <= a
        assert d <= c


def test_a_unique_line_anchors_although_much_around_it_repeats() -> None:
    old = split(b"}\n}\nkeep\n}\n}\n")
    new = split(b"}\n}\n}\n}\nkeep\n}\n")
    assert all(not (a <= 2 < b) for a, b, _, _ in changes(old, new))


def test_a_last_line_without_an_end_is_another_line() -> None:
    assert changes(split(b"a\nb"), split(b"a\nb\n")) == [(1, 2, 1, 2)]
    assert changes(split(b""), split(b"")) == []
    assert changes(split(b""), split(b"x")) == [(0, 0, 0, 1)]
