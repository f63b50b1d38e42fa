"""Bisection: over prefixes and over upstream's commits, with states that cannot tell."""

from __future__ import annotations

import pytest

from stack.model.measure.bisect import Answer, Search
from tests.support.repo import RepoBuilder
from tests.support.toy_engine import CORE, Toy, text


@pytest.mark.parametrize("count", [1, 2, 3, 7, 20])
def test_every_first_bad_state_is_found(count: int) -> None:
    for first in range(1, count + 1):
        search, asked = Search(count), 0
        while (at := search.next()) is not None:
            search.tell(at, "bad" if at >= first else "good")
            asked += 1
        assert list(search.suspects) == [first]
        assert asked <= count.bit_length()


@pytest.mark.parametrize("useless", [{3}, {3, 4}, {2, 3, 4, 5}, {1, 2, 3, 4, 5, 6, 7}])
def test_states_that_cannot_tell_are_passed_over(useless: set[int]) -> None:
    search = Search(8)
    while (at := search.next()) is not None:
        answer: Answer = "bad" if at >= 4 else "good"
        search.tell(at, "cannot tell" if at in useless else answer)
    left = list(search.suspects)
    assert 4 in left
    assert all(at in useless or at - 1 in useless for at in left)
    assert len(left) <= len(useless) + 1


def test_the_patch_that_made_it_run_and_the_one_that_made_it_slow(
    toy: Toy, upstream: RepoBuilder
) -> None:
    slow = upstream.folder / "src/toy/speed.py"
    for name, old, new in (("note", b"import os", b"# note\nimport os"), ("slow", b"100", b"80")):
        upstream.commit(name, {"src/toy/speed.py": slow.read_bytes().replace(old, new)})
    mails = upstream.patches("HEAD~2", toy.stack.folder / "more")
    toy.stack.ok("import", "--upstream", "toy@1.0", *mails)
    wrong = toy.stack("bisect", "--bench", "softmix")
    assert wrong.code == 2
    assert "did you mean `softmax`" in wrong.err
    found = toy.stack.ok("bisect", "--bench", "softmax", "--json").json["data"]
    assert (found["ends"]["kind"], found["suspects"]) == ("outcome", ["keep-the-heap-whole"])
    found = toy.stack.ok(
        "bisect", "--bench", "softmax", "--good", "keep-the-heap-whole", "--json"
    ).json["data"]
    assert (found["ends"]["kind"], found["suspects"]) == ("metric", ["slow"])
    assert found["ends"]["ratio"] == pytest.approx(0.8, abs=0.01)
    assert {one["answer"] for one in found["asked"]} == {"good"}
    count = len(toy.trials())
    again = toy.stack.ok("bisect", "--bench", "softmax", "--good", "keep-the-heap-whole")
    assert "slow is the first that differs" in again.err + again.out
    assert len(toy.trials()) == count, "what was measured is not run again"
    same = toy.stack("bisect", "--bench", "softmax", "--good", "route-sigmoid", "--bad", "note")
    assert same.code == 1
    assert len(toy.trials()) > count


def test_the_upstream_commit_is_found_beside_one_that_cannot_tell(
    toy: Toy, upstream: RepoBuilder
) -> None:
    upstream.git("checkout", "--quiet", "-b", "newer", "begin")
    core = text(CORE)
    upstream.commit("words", {"README": b"more words\n"})
    upstream.commit("no engine", {"src/toy/core.py": core.replace(
        b"        worker()", b'        worker("other")'
    )})  # `keep-the-heap-whole` conflicts here
    upstream.commit("engine again", {"src/toy/core.py": core})
    slow = core.replace(b"return speed.rate()", b"return speed.rate() * 0.8")
    culprit = upstream.commit("slower", {"src/toy/core.py": slow})
    last = upstream.commit("words again", {"README": b"other words\n"})
    toy.stack.ok("upstream", "fetch", "toy")
    done = toy.stack.ok(
        "bisect", "--bench", "softmax", "--upstream", f"begin..{last}", "--json"
    )
    found = done.json["data"]
    assert (found["ends"]["kind"], found["suspects"]) == ("metric", [culprit[:12]])
    wrong = toy.stack("bisect", "--bench", "softmax", "--upstream", "begin..nowhere")
    assert wrong.code == 2
    assert "has begin..nowhere" in wrong.err
