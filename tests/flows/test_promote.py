"""Promotion and parking: what was measured decides, and stays beside the line."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from stack.errors import ConfigError
from stack.model.line import edit
from stack.model.measure.decision import missing
from stack.model.measure.trial import VerdictRecord
from stack.model.measure.verdict import Verdict
from tests.support.cli import Stack
from tests.support.project import Demo
from tests.support.toy_engine import Toy


def entries(toy: Toy) -> dict[str, tuple[str, str | None]]:
    document = tomllib.loads(toy.series.read_text())
    return {one["name"]: (one["state"], one.get("reason")) for one in document["patch"]}


def evidence(toy: Toy, name: str) -> Path:
    return toy.series.parent / "evidence" / f"{name}.json"


def test_verdicts_decide_and_undo_takes_the_evidence_back(toy: Toy) -> None:
    series = toy.series.read_bytes()
    early = toy.stack("promote", "route-sigmoid")
    assert early.code == 2
    assert "no verdict that holds is FASTER or UNBLOCKED" in early.err
    assert "stack verify route-sigmoid" in early.err
    toy.stack.ok("verify")
    assert toy.stack.ok("promote", "route-sigmoid", "--dry-run").code == 0
    assert not evidence(toy, "route-sigmoid").exists()
    done = toy.stack.ok("promote", "route-sigmoid", "--json").json["data"]
    said = json.loads(evidence(toy, "route-sigmoid").read_text())
    (decision,) = said["decisions"]
    assert (said["schema"], said["patch"], decision["forced"]) == (1, "route-sigmoid", False)
    (verdict,) = decision["verdicts"]
    assert verdict["verdict"] == "UNBLOCKED"
    known = {trial["id"] for trial in toy.trials()}
    assert set(verdict["trials"]) <= known
    assert verdict["trials"]
    assert decision["machines"][verdict["machine"]]["cpu"]
    assert done["file"] == "patches/toy/1.0/evidence/route-sigmoid.json"
    assert toy.series.read_bytes() == series

    # A patch without effect is no bad one, and nobody may say so without saying that it is forced.
    wrong = toy.stack("park", "time-the-steps", "--reason", "negative")
    assert wrong.code == 2
    assert "as `negative` means" in wrong.err
    toy.stack.ok("park", "time-the-steps", "--reason", "neutral", "--note", "not needed")
    assert entries(toy)["time-the-steps"] == ("parked", "neutral")
    again = toy.stack("park", "time-the-steps", "--reason", "neutral")
    assert again.code == 2
    toy.stack.ok("promote", "time-the-steps", "--force")
    assert entries(toy)["time-the-steps"] == ("active", None)
    decisions = json.loads(evidence(toy, "time-the-steps").read_text())["decisions"]
    assert [one["action"] for one in decisions] == ["parked", "promoted"]
    assert [one["forced"] for one in decisions] == [False, True]
    assert "no verdict that holds" in decisions[1]["missing"]
    toy.stack.ok("undo")
    assert entries(toy)["time-the-steps"] == ("parked", "neutral")
    assert len(json.loads(evidence(toy, "time-the-steps").read_text())["decisions"]) == 1
    toy.stack.ok("undo")
    toy.stack.ok("undo")
    assert not evidence(toy, "route-sigmoid").parent.exists()
    assert toy.series.read_bytes() == series

    # What was measured with another patch before it bears out nothing.
    toy.stack.ok("park", "keep-the-heap-whole", "--reason", "obsolete")
    stale = toy.stack("promote", "route-sigmoid")
    assert stale.code == 2
    assert "patches of toy/1.0 changed since" in stale.err


def record(verdict: str, **more: object) -> VerdictRecord:
    fields: dict[str, object] = {
        "id": verdict, "run": "r", "time": "t", "profile": "p", "line": "l", "patch": "x",
        "state": "active", "outcome": "clean", "claim": None, "mode": "marginal", "bench": "b",
        "bench_digest": "d", "verdict": Verdict(verdict), "holds": None, "method": "m",
        "before": "a", "after": "b", "unit": "u", "note": "", "trials": (), "machine": "m",
    }
    return VerdictRecord(**(fields | more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("action", "reason", "verdicts", "lacks"),
    [
        ("promoted", None, ["FASTER"], None), ("promoted", None, ["UNBLOCKED", "SAME"], None),
        ("promoted", None, ["FASTER", "SLOWER"], "b (marginal) is SLOWER"),
        ("promoted", None, ["SAME"], "no verdict"), ("promoted", None, [], "no verdict"),
        ("parked", "negative", ["SLOWER"], None), ("parked", "negative", ["BROKEN"], None),
        ("parked", "negative", ["FASTER"], "SLOWER or BROKEN"),
        ("parked", "neutral", ["UNCLEAR"], None), ("parked", "neutral", ["FASTER"], "SAME or"),
        ("parked", "superseded", [], None), ("parked", "upstreamed", ["FASTER"], None),
    ],
)
def test_what_bears_a_decision_out(
    action: str, reason: str | None, verdicts: list[str], lacks: str | None
) -> None:
    records = [record(one) for one in verdicts]
    said = missing(action, reason, records, {})  # type: ignore[arg-type]
    assert said is None if lacks is None else lacks in str(said)
    if verdicts and lacks is None and reason not in ("superseded", "upstreamed"):
        assert missing(action, reason, records, dict.fromkeys(verdicts, "old"))  # type: ignore[arg-type]


def test_a_state_changes_and_every_other_byte_stays() -> None:
    data = (
        b'# head\n[[patch]] # a\nkind = "fix"\nname = "a"\n\n# about b\n[[patch]] # b\n'
        b'state = "active"  # since May\nneeds = []\nname = "b"\n'
    )
    parked = edit.set_state(data, "b", "parked", "neutral")
    assert parked == data.replace(
        b'state = "active"  # since May\n', b'state = "parked"  # since May\nreason = "neutral"\n'
    )
    assert edit.set_state(parked, "b", "active", None) == data
    first = edit.set_state(data, "a", "parked", "obsolete")
    assert first.startswith(b'# head\n[[patch]] # a\nstate = "parked"\nreason = "obsolete"\n')
    with pytest.raises(ConfigError, match="entry of `a`"):
        edit.set_state(b'patch = [{ name = "a" }]\n', "a", "parked", "neutral")


def test_evidence_goes_with_a_patch_that_gets_another_name(stack: Stack, tmp_path: Path) -> None:
    demo = Demo(stack, tmp_path)
    demo.patches(1)
    before = demo.files()
    parking = ("park", "edit-0", "--reason", "superseded", "--note", "another one is better")
    assert stack.ok(*parking, "--dry-run", "--json").json["data"]["dry_run"] is True
    assert demo.files() == before
    measured = stack("park", "edit-0", "--reason", "negative")
    assert measured.code == 2
    assert "hint: stack verify edit-0, or --force" in measured.err
    stack.ok(*parking)
    assert stack("park", "edit-1", "--reason", "superseded").code == 2
    stack.ok("rename", "edit-0", "first")
    assert not (demo.line / "evidence/edit-0.json").exists()
    said = json.loads((demo.line / "evidence/first.json").read_text())
    assert (said["patch"], said["decisions"][0]["note"]) == ("first", "another one is better")
    stack.ok("undo")
    assert json.loads((demo.line / "evidence/edit-0.json").read_text())["patch"] == "edit-0"
    stack.ok("undo")
    assert not (demo.line / "evidence").exists()
