"""Comparisons that share sides: one round over all of them, there and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from stack.flows.measure.arms import Comparison
from stack.flows.measure.pool import Here
from stack.flows.measure.rounds import groups
from stack.flows.verify.verifying import Verifying
from stack.model.line.line import Member
from tests.flows.test_verify_compare import CRASH, Lab, behaves, lab

FOUR = (behaves("100.0"), behaves("100.1"), behaves("110.0"), behaves("110.2"))


def chain(lab: Lab, texts: tuple[str, ...], **bench: Any) -> list[Comparison]:
    """Prefix k-1 against prefix k, for each text after the first."""
    arms = [lab.arm(f"p{at}", text) for at, text in enumerate(texts)]
    made = lab.asked(behaves(), behaves(), gate=False, **bench)
    return [
        msgspec.structs.replace(
            made, member=Member(name=f"patch-{at}"), before=arms[at - 1], after=arms[at]
        )
        for at in range(1, len(texts))
    ]


def verify(lab: Lab, asked: list[Comparison], pairs: int = 3) -> list[str]:
    proved = Verifying(Here(lab.session()), asked, pairs, lambda event: None).run()
    return [one.record.verdict for one in proved]


def test_what_shares_a_side_is_one_group(lab: Lab) -> None:
    asked = chain(lab, FOUR)
    assert groups(asked) == [[0, 1, 2]]
    assert groups([asked[0], asked[2]]) == [[0], [1]]
    star = [msgspec.structs.replace(one, before=asked[0].before) for one in asked]
    assert groups(star) == [[0, 1, 2]]
    other = msgspec.structs.replace(asked[1], name="another bench")
    assert groups([asked[0], other, asked[2]]) == [[0], [1], [2]]
    assert groups([asked[0], asked[2], asked[1]]) == [[0, 1, 2]]


def test_a_chain_costs_one_run_more_than_it_has_patches(lab: Lab) -> None:
    asked = chain(lab, FOUR)
    assert verify(lab, asked) == ["SAME", "FASTER", "SAME"]
    assert lab.runs == 4 + 3 * 4, "a warm-up and three rounds of four sides"
    order = [trial.prefix for trial in lab.trials if trial.role == "pair"]
    there, back, again = order[:4], order[4:8], order[8:]
    assert there in (["p0", "p1", "p2", "p3"], ["p3", "p2", "p1", "p0"])
    assert back == there[::-1]
    assert again == there
    assert verify(lab, asked) == ["SAME", "FASTER", "SAME"]
    assert lab.runs == 16, "nothing is measured twice"


def test_a_comparison_that_is_decided_costs_nothing_more(lab: Lab) -> None:
    noisy = behaves("100.0 + 3 * (os.path.getsize(sys.argv[3]) * 7 % 5 - 2)")
    asked = chain(lab, (behaves("100.0"), behaves("130.0"), noisy))
    verdicts = verify(lab, asked, pairs=5)
    assert verdicts[0] == "FASTER"
    runs = [trial.prefix for trial in lab.trials if trial.role == "pair"]
    assert runs.count("p0") == 3
    assert runs.count("p1") == runs.count("p2") >= 3


def test_a_side_that_stops_running_ends_its_own_comparisons_only(lab: Lab) -> None:
    stops = "os.abort() if os.path.getsize(sys.argv[3]) > 5 else 100.0"
    asked = chain(lab, (behaves("100.0"), behaves("100.0") + "#\n", behaves(stops)))
    assert verify(lab, asked) == ["SAME", "BROKEN"]
    asked = chain(lab, (behaves("100.0"), CRASH, behaves("100.0") + "#\n"))
    assert verify(lab, asked) == ["BROKEN", "UNBLOCKED"]


@pytest.mark.parametrize("kept", [1, 2, 5, 7])
def test_rounds_go_on_where_they_were_interrupted(lab: Lab, kept: int) -> None:
    asked = chain(lab, FOUR)
    verify(lab, asked)
    path = lab.paths.ledger / "trials.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: 4 + kept]))
    before = [trial.prefix for trial in lab.trials if trial.role == "pair"]
    verify(lab, asked)
    order = [trial.prefix for trial in lab.trials if trial.role == "pair"]
    assert order[:kept] == before
    assert len(order) == 12
    if kept > 1:  # from one cell in the middle nobody can tell the direction
        assert order[4:8] == order[:4][::-1]


def test_an_old_half_of_a_round_is_measured_again(lab: Lab) -> None:
    asked = chain(lab, FOUR)
    verify(lab, asked)
    path = lab.paths.ledger / "trials.jsonl"
    old = [
        msgspec.structs.replace(trial, time="2026-01-01T00:00:00+00:00")
        for trial in lab.trials[: 4 + 6]
    ]
    path.write_bytes(b"".join(msgspec.json.encode(trial) + b"\n" for trial in old))
    verify(lab, asked)
    again = [trial for trial in lab.trials[10:] if trial.role == "pair"]
    assert len(again) == 8, "the whole round stays, the half of one does not"


def test_a_slow_run_is_measured_again_once(lab: Lab, tmp_path: Path) -> None:
    slow = "70.0 if os.path.getsize(sys.argv[3]) == 6 else 100.0"
    asked = chain(lab, (behaves(slow), behaves(slow) + "#\n", behaves(slow) + "##\n"))
    assert verify(lab, asked) == ["SAME", "SAME"]
    again = [trial for trial in lab.trials if trial.role == "pair" and trial.place >= 2000]
    assert len(again) in (2, 4), "one pair or two, by the side that was slow"


def test_rounds_take_builds_in_turn_as_well(lab: Lab) -> None:
    asked = chain(lab, FOUR[:3], draws=3)
    assert verify(lab, asked) == ["SAME", "FASTER"]
    for prefix in ("p0", "p1", "p2"):
        mine = [one for one in lab.trials if (one.prefix, one.role) == (prefix, "pair")]
        assert len({one.cache for one in mine}) == 3
        assert not any(one.cold for one in mine)
    assert lab.runs == 9 + 9, "each build is warmed up once, also where two comparisons share it"
