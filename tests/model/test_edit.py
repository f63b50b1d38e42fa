"""Edits of TOML files keep what they do not change, byte for byte."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stack.errors import ConfigError
from stack.model.line import edit
from stack.model.line.line import Member, Pin, Sdist

TEXT = """\
# top
schema = 1
upstream = "demo"

[pin]
label = "1.0"  # the label

# about a
[[patch]]
name = "a"
# inside a
env = { X = "[[patch]]" }


# about b,
# two lines
[[patch]]
name = "b" # mine
bench = [
  "x",
  "y"
]
[[patch]]
name = "c"
[patch.env]
Y = "1"

# the end
[more]
z = 1
"""


def members(names: str) -> list[Member]:
    return [Member(name=name) for name in names]


def block(name: str) -> str:
    """An entry of TEXT with the comment above it, without blank lines behind."""
    starts = {"a": "# about a", "b": "# about b,", "c": '[[patch]]\nname = "c"', "d": "# the end"}
    following = {"a": "b", "b": "c", "c": "d"}[name]
    return TEXT[TEXT.index(starts[name]) : TEXT.index(starts[following])].rstrip("\n")


@given(st.lists(st.sampled_from("abcde"), unique=True))
def test_entries_move_with_their_comments_and_nothing_else_changes(names: list[str]) -> None:
    made = edit.set_members(TEXT.encode(), members("".join(names))).decode()
    document = tomllib.loads(made)
    assert [patch["name"] for patch in document.get("patch", ())] == names
    assert document["more"] == {"z": 1}
    assert made.startswith(TEXT[: TEXT.index("# about a")])
    assert made.endswith(TEXT[TEXT.index("# the end") :])
    assert made.count("# about") == len({"a", "b"} & set(names))
    for name in set(names) & set("abc"):
        assert block(name) in made
    back = edit.set_members(made.encode(), members("".join(names)))
    assert back.decode() == made


def test_the_same_order_is_the_same_bytes() -> None:
    assert edit.set_members(TEXT.encode(), members("abc")) == TEXT.encode()


def test_a_patch_that_is_added_leaves_the_rest_alone() -> None:
    plain = TEXT[: TEXT.index("\n# the end")]
    made = edit.set_members(plain.encode(), members("abcd")).decode()
    assert made == plain + '\n[[patch]] # d\nstate = "active"\nkind = "feature"\nname = "d"\n'


def test_a_first_patch() -> None:
    pin = Pin(label="1.0", tree="1" * 40, sdist=Sdist(version="1.0", sha256="2" * 64))
    empty = edit.new_series("demo", pin)
    made = edit.set_members(empty, members("a"))
    assert made.startswith(empty)
    assert [patch["name"] for patch in tomllib.loads(made.decode())["patch"]] == ["a"]
    assert tomllib.loads(made.decode())["pin"]["sdist"] == {"version": "1.0", "sha256": "2" * 64}


@pytest.mark.parametrize("text", ['patch = [{ name = "a" }]\n', '[["patch"]]\nname = "a"\n'])
def test_other_spellings_are_refused_and_not_damaged(text: str) -> None:
    with pytest.raises(ConfigError, match="not written as"):
        edit.set_members(text.encode(), members("ab"))


def test_set_table_keeps_comments() -> None:
    text = b'# top\nschema = 1\n\n[upstream.a] # mine\ngit = "x"\n\n[profile.p]\npython = "3"\n'
    made = edit.set_table(text, ["upstream", "a"], {"path": "/p"})
    assert made == text.replace(b'git = "x"\n', b'git = "x"\npath = "/p"\n')
    made = edit.set_table(made, ["upstream", "b"], {"sdist": "b"})
    document = tomllib.loads(made.decode())
    assert document["upstream"] == {"a": {"git": "x", "path": "/p"}, "b": {"sdist": "b"}}
    assert b"# top\n" in made
    assert b"# mine\n" in made
