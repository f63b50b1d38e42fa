"""`stack verify` from the command line to the ledger, with a toy engine in a real environment."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stack.host import survivors
from tests.support.cli import Stack
from tests.support.processes import until
from tests.support.repo import RepoBuilder
from tests.support.toy_engine import Toy


def running(toy: Toy) -> list[int]:
    return survivors.marked(f"STACK_PROJECT={toy.stack.folder.resolve()}\0".encode())


def test_the_stack_is_proved_patch_by_patch(toy: Toy) -> None:
    done = toy.stack.ok("verify", "--json")
    data = done.json["data"]
    rows = {row["name"]: row for row in data["patches"]}
    assert [(name, row["verdict"], row["holds"]) for name, row in rows.items()] == [
        ("keep-the-heap-whole", "UNBLOCKED", True), ("route-sigmoid", "UNBLOCKED", True),
        ("time-the-steps", "SAME", True),
    ]
    assert {row["state"] for row in rows.values()} == {"active"}
    assert {row["outcome"] for row in rows.values()} == {"clean"}
    heap, routed, timed = rows.values()
    assert heap["cause"] == "free(): invalid size"
    assert routed["cause"] == 'AssertionError: assert scoring == "softmax"'
    base = [trial for trial in heap["trials"] if trial["side"] == "before"]
    assert {trial["outcome"] for trial in base} == {"blocked:native_crash"}
    assert {trial["prefix"] for trial in base} == {"base"}
    assert all(trial["figures"]["logged"] for trial in heap["trials"] if trial["role"] == "single")
    assert (timed["pairs"], len(timed["trials"])) == (2, 8)
    assert all(trial["env"]["TOY_TIMING"] == "1" for trial in timed["trials"])
    assert {tuple(trial["loaded"]) for trial in timed["trials"] if trial["side"] == "after"} == {
        ("toy/core.py", "toy/speed.py")
    }
    for trial in toy.trials():
        assert (toy.state / trial["log"]).is_file()
        assert trial["proved"] >= 1
    assert running(toy) == []
    # The same question is not asked twice, and the report shows what verify showed.
    count = len(toy.trials())
    again = toy.stack.ok("verify")
    assert len(toy.trials()) == count
    assert toy.stack.ok("report").out == again.out
    assert "UNBLOCKED" in again.out
    assert "1.00" in again.out


def test_what_cannot_be_verified_is_refused_before_anything_is_built(toy: Toy) -> None:
    wrong = toy.stack("verify", "route-sigmoids")
    assert wrong.code == 2
    assert "no patch `route-sigmoids` in toy/1.0" in wrong.err
    assert "did you mean `route-sigmoid`" in wrong.err
    assert toy.stack("verify", "--profile", "tine").code == 2
    assert toy.stack("verify", "--pairs", "0").code == 2
    toy.series.write_text(toy.series.read_text().replace('["sigmoid"]', '["sigmoit"]'))
    wrong = toy.stack("verify")
    assert wrong.code == 2
    assert "patches/toy/1.0/series.toml: patch `route-sigmoid`: no bench `sigmoit`" in wrong.err
    assert not (toy.state / "venvs").exists()


def test_a_bench_of_another_profile_is_left_out_and_said(toy: Toy) -> None:
    settings = toy.stack.folder / "stack.toml"
    text = settings.read_text()
    settings.write_text(text.replace("[bench.sigmoid]", '[bench.sigmoid]\nprofiles = ["big"]'))
    done = toy.stack("verify", "--json")
    assert "route-sigmoid: bench `sigmoid` is for big, not measured here" in done.err
    assert {row["name"] for row in done.json["data"]["patches"]} == {
        "keep-the-heap-whole", "time-the-steps"
    }
    noise = toy.stack("verify", "--calibrate", "--pairs", "2", "--json")
    assert "route-sigmoid: bench `sigmoid` is for big, not measured here" in noise.err
    assert {one["bench"] for one in noise.json["data"]["calibrations"]} == {"softmax"}


def test_a_claim_that_does_not_hold_and_nothing_to_measure(toy: Toy) -> None:
    text = toy.series.read_text()
    toy.series.write_text(text.replace('claim = "same"', 'claim = "faster"'))
    slow = toy.stack("verify", "time-the-steps", "--json")
    assert slow.code == 1
    assert slow.json["status"] == "success"
    assert slow.json["data"]["patches"][0]["holds"] is False
    # On the sigmoid model the first patch changes nothing: both sides stop at the same assertion.
    other = text.replace('bench = ["softmax"]\nclaim = "unblocked"', 'bench = ["sigmoid"]')
    toy.series.write_text(other)
    own = "[[signature]]\nname = 'scores'\nclass = 'blocked:scores'\npattern = 'AssertionError'\n"
    config = toy.stack.folder / "stack.toml"
    config.write_text(config.read_text() + own)
    none = toy.stack("verify", "keep-the-heap-whole", "--json")
    assert none.code == 5
    row = none.json["data"]["patches"][0]
    assert (row["verdict"], row["holds"], row["ratio"]) == ("BLOCKED", True, None)
    assert row["note"].startswith("before and after: ")
    assert {trial["outcome"] for trial in row["trials"]} == {"blocked:scores"}


def test_interrupts_keep_what_was_measured_and_leave_nothing_running(toy: Toy) -> None:
    toy.stack.ok("build")
    toy.configure(seconds=1)
    for number, end in ((signal.SIGINT, 130), (signal.SIGTERM, 130)):
        before = len(toy.trials())
        process = toy.stack.start("verify", "time-the-steps")
        until(lambda before=before: len(toy.trials()) > before and running(toy))
        process.send_signal(number)
        assert process.wait(20) == end
        assert running(toy) == []
    kept = toy.trials()
    data = toy.stack.ok("verify", "time-the-steps", "--json").json["data"]
    assert len(toy.trials()) == 16, "nothing that was finished is measured again"
    assert toy.trials()[: len(kept)] == kept
    assert data["patches"][0]["pairs"] == 2


@pytest.mark.parametrize("moments", [(0, 1, 2, 3), (5, 8, 11, 15)])
def test_a_killed_verify_loses_no_trial_and_its_engine_is_ended_later(
    toy: Toy, moments: tuple[int, ...]
) -> None:
    """Killed before the first trial ends, in the middle, and beside the last: all that was is kept.

    `moments` are numbers of finished trials; the kill comes a little later each time.
    """
    toy.stack.ok("build")
    toy.configure(seconds=0.5)
    kept: list[dict[str, object]] = []
    for at, moment in enumerate(moments):
        process = toy.stack.start("verify", "time-the-steps")
        until(lambda moment=moment: len(toy.trials()) >= moment and running(toy))
        time.sleep(0.15 * at)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert toy.trials()[: len(kept)] == kept
        kept = toy.trials()
    left = running(toy)
    done = toy.stack("verify", "time-the-steps")
    assert done.code == 0, done
    assert toy.trials()[: len(kept)] == kept
    assert not set(left) & set(running(toy))
    assert len(toy.trials()) == 16, "and nothing that was finished is measured again"


def test_two_verifies_at_once_do_not_mix(toy: Toy) -> None:
    toy.stack.ok("build")
    toy.configure(seconds=3)
    process = toy.stack.start("verify", "time-the-steps")
    until(lambda: running(toy))
    second = toy.stack("verify", "time-the-steps")
    assert second.code == 2
    assert "measuring.lock: held by process" in second.err
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130


def test_a_patch_with_a_switch_is_proved_to_be_off_by_default(toy: Toy) -> None:
    data = toy.stack.ok("verify", "time-the-steps", "--json").json["data"]
    on, off = data["patches"][0]["benches"]
    assert (on["mode"], off["mode"], off["claim"]) == ("marginal", "default-off", "same")
    assert (off["verdict"], off["holds"]) == ("SAME", True)
    assert all("TOY_TIMING" not in trial["env"] for trial in off["trials"])
    gates = {trial["side"]: trial["tokens"] for trial in off["trials"] if trial["role"] == "gate"}
    assert gates["before"] == gates["after"]


def test_a_calibrated_verdict_rests_on_this_machines_noise(toy: Toy) -> None:
    toy.stack.ok("build")
    wrong = toy.stack("verify", "--calibrate", "--mode", "cumulative")
    assert wrong.code == 2
    before = toy.stack.ok("verify", "time-the-steps", "--json").json["data"]["patches"][0]
    assert (before["calibrated"], "uncalibrated" in before["note"]) == (False, True)
    done = toy.stack.ok("verify", "--calibrate", "time-the-steps", "--pairs", "4", "--json")
    (noise,) = done.json["data"]["calibrations"]
    assert (noise["bench"], len(noise["ratios"]), len(noise["trials"])) == ("softmax", 4, 8)
    trials = {trial["id"]: trial for trial in toy.trials()}
    pairs = [trials[one] for one in noise["trials"]]
    assert {trial["prefix"] for trial in pairs} == {"time-the-steps"}
    assert len({trial["cache"] for trial in pairs}) == 2, "each side has a build of its own"
    count = len(trials)
    after = toy.stack.ok("verify", "time-the-steps", "--json").json["data"]["patches"][0]
    assert (after["calibrated"], "uncalibrated" in after["note"]) == (True, False)
    toy.stack.ok("verify", "--calibrate", "time-the-steps", "--pairs", "4")
    assert len(toy.trials()) == count, "what was measured is kept"
    assert len((toy.state / "ledger/calibrations.jsonl").read_bytes().splitlines()) == 1


@pytest.mark.parametrize("mode", ["cumulative", "leave-one-out"])
def test_other_modes_put_other_sides_against_each_other(toy: Toy, mode: str) -> None:
    data = toy.stack.ok("verify", "--mode", mode, "--json").json["data"]
    rows = {row["name"]: row for row in data["patches"]}
    sides = {name: (row["before"]["prefix"], row["after"]["prefix"]) for name, row in rows.items()}
    verdicts = [row["verdict"] for row in rows.values()]
    assert {row["mode"] for row in rows.values()} == {mode}
    if mode == "cumulative":
        assert {before for before, _ in sides.values()} == {"base"}
        assert verdicts == ["UNBLOCKED", "UNBLOCKED", "UNBLOCKED"]
    else:
        assert sides["route-sigmoid"] == ("without route-sigmoid", "the whole line")
        assert verdicts == ["UNBLOCKED", "UNBLOCKED", "SAME"]


def test_a_parked_patch_is_measured_where_it_stands(toy: Toy) -> None:
    text = toy.series.read_text()
    entry = 'name = "route-sigmoid"\n'
    assert text.count('state = "active"') == 3
    at = text.index(entry)
    start = text.rindex("[[patch]]", 0, at)
    parked = text[start:].replace('state = "active"', 'state = "parked"\nreason = "neutral"', 1)
    toy.series.write_text(text[:start] + parked)
    data = toy.stack.ok("verify", "route-sigmoid", "--json").json["data"]
    (row,) = data["patches"]
    assert (row["state"], row["verdict"], row["before"]["prefix"]) == (
        "parked", "UNBLOCKED", "keep-the-heap-whole",
    )
    everything = toy.stack.ok("verify", "--json").json["data"]["patches"]
    assert [one["name"] for one in everything] == ["keep-the-heap-whole", "time-the-steps"]
