"""Where a hunk that makes the end of a file may go: to the end of a file, and nowhere else."""

from __future__ import annotations

from stack.model.pile.lines import Lines
from stack.model.pile.parse import parse
from stack.model.pile.place import Placing, Unfit, place

HEAD = b"--- a/f\n+++ b/f\n@@\n"
END = b"\\ No newline at end of file\n"


def put(text: bytes, hunk: bytes, *, elide: bool = False) -> Placing | Unfit:
    parsed = parse(HEAD + hunk)
    assert parsed.damage is None
    return place(Lines(text), parsed.sections[0].hunks, elide=elide)


def test_a_line_without_its_end_never_runs_into_the_next() -> None:
    """A mark in the middle of a bare hunk that lost its rest: found by spoiling piles."""
    hunk = b" one\n+new\n" + END
    found = put(b"zero\none\ntwo\n", hunk)
    assert isinstance(found, Unfit)
    assert found.why == "it has the end of a file in the middle of this one"
    assert put(b"zero\none\n", hunk) == Placing(data=b"zero\none\nnew")
    assert put(b"one\nzero\none\n", hunk) == Placing(data=b"one\nzero\none\nnew")


def test_nor_does_one_inside_of_a_hunk() -> None:
    found = put(b"one\ntwo\n", b" one\n+new\n" + END + b"+more\n two\n")
    assert isinstance(found, Unfit)


def test_nor_where_context_is_skipped() -> None:
    hunk = b" one\n three\n+new\n" + END
    assert isinstance(put(b"one\ntwo\nthree\nfour\n", hunk, elide=True), Unfit)
    elided = put(b"one\ntwo\nthree\nfour\n", b" one\n three\n+new\n", elide=True)
    assert isinstance(elided, Placing)


def test_the_end_of_a_file_changes_at_its_end() -> None:
    gone = b" one\n-two\n" + END + b"+two\n"
    assert put(b"one\ntwo", gone) == Placing(data=b"one\ntwo\n")
    assert isinstance(put(b"one\ntwo\n", gone), Unfit)
