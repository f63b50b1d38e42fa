"""From gates to verdicts, with a toy engine whose layers are good, slow, wrong, or crash."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stack.bench.logs import catalogue
from stack.errors import BenchFailed
from stack.flows.builds.layers import PROBE
from stack.flows.events import Event, Progress, Said
from stack.flows.measure.arms import Arm, Comparison
from stack.flows.measure.compare import Comparing, Found
from stack.flows.measure.trials import Ground, Session
from stack.model.line.line import Member
from stack.model.line.outcome import Outcome
from stack.model.measure.trial import Trial
from stack.model.project.settings import Bench, Gate
from stack.store.ledger import Ledger
from stack.store.paths import Paths

ENGINE = """
    import json, sys
    from toy import behave
    kind, out, count = sys.argv[1], sys.argv[2], sys.argv[3]
    with open(count, "a") as file:
        file.write("e")
    if kind == "gate":
        print(json.dumps({"sha256": behave.tokens(), "repeat_equal": True, "degenerate": False}))
    else:
        rate = behave.rate()
        print(f"Throughput: {rate:.2f} total tokens/s")
        json.dump({"rate": rate}, open(out, "w"))
"""
CRASH = "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n"
RAISES = "raise NotImplementedError('no experts for this: 0x7f3a')\n"


def behaves(rate: str = "100.0", tokens: str = "'t'") -> str:
    return f"import os, sys, time\ndef rate(): return {rate}\ndef tokens(): return {tokens}\n"


class Lab:
    """Layers, a bench and a ledger in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.paths = Paths(folder, folder / "cache")
        (folder / "site").mkdir()
        self.engine = folder / "engine.py"
        self.engine.write_text(textwrap.dedent(ENGINE))
        self.said: list[str] = []
        self.on_event: Callable[[Event], None] = lambda event: None

    def arm(self, name: str, text: str, **knobs: str) -> Arm:
        layer = self.folder / "layers" / name
        (layer / "toy").mkdir(parents=True, exist_ok=True)
        (layer / "toy" / "__init__.py").write_text("")
        (layer / "toy" / "behave.py").write_text(text)
        digest = hashlib.sha256(text.encode()).hexdigest()
        return Arm(
            prefix=name, trees={"toy/1": digest}, layers=(layer,), knobs=knobs,
            patched={"toy/behave.py": digest},
        )

    def asked(
        self, before: str, after: str, *, gate: bool = True, claim: Any = None, **bench: Any
    ) -> Comparison:
        command = [sys.executable, str(self.engine)]
        counted = str(self.folder / "runs")
        settings: dict[str, Any] = {
            "command": (*command, "bench", "{{ out }}/result.json", counted), "metric": "rate",
            "unit": "tok/s", "log_pattern": "Throughput: ([0-9.]+) total", "pairs": 3,
            "limit": 20.0, "stall": 5.0,
            "gate": None,
        }
        if gate:
            gated = (*command, "gate", "-", counted)
            settings["gate"] = Gate(command=gated, field="sha256")
        return Comparison(
            line="toy/1", member=Member(name="patch", claim=claim), outcome=Outcome.CLEAN,
            mode="marginal", name="speed", bench=Bench(**settings | bench),
            before=self.arm("base", before), after=self.arm("patch", after),
        )

    def session(self, *, fresh: bool = False) -> Session:
        ground = Ground(
            profile="toy", base_key="b", python=Path(sys.executable),
            site_packages=self.folder / "site", probe=PROBE, machine="m", values={},
            inputs=(), outer={"PATH": os.environ["PATH"]},
        )

        def emit(event: Event) -> None:
            if isinstance(event, Said):
                self.said.append(event.text)
            self.on_event(event)

        return Session(
            ground, self.paths, Ledger(self.paths.ledger), catalogue(), emit, fresh=fresh
        )

    def compare(self, asked: Comparison, *, fresh: bool = False, pairs: int = 3) -> Found:
        return Comparing(self.session(fresh=fresh), asked, pairs).run()

    @property
    def trials(self) -> list[Trial]:
        return list(Ledger(self.paths.ledger).trials(pytest.fail))

    @property
    def runs(self) -> int:
        """How often the engine came far enough to count itself."""
        path = self.folder / "runs"
        return path.stat().st_size if path.exists() else 0


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def roles(found: Found) -> list[str]:
    return [f"{trial.side} {trial.role}{trial.pair or ''}" for trial in found.trials]


def test_an_engine_that_runs_only_with_the_patch_is_unblocked(lab: Lab) -> None:
    found = lab.compare(lab.asked(CRASH, behaves(), claim="unblocked"))
    assert found.judgement.verdict == "UNBLOCKED"
    crash = "native crash: Fatal Python error: Segmentation fault"
    assert found.judgement.note == f"100 tok/s; before: {crash}"
    assert roles(found) == [
        "before gate", "after gate", "before warm-up", "after warm-up", "after single",
    ]
    down = [trial for trial in found.trials if trial.side == "before"]
    assert {trial.outcome for trial in down} == {"blocked:native_crash"}
    assert {trial.exit_code for trial in down} == {-11}
    assert found.trials[-1].figures is not None
    assert lab.trials == list(found.trials)


@pytest.mark.parametrize("hangs", ["gate", "bench"])
def test_of_a_crash_and_a_hang_the_crash_is_the_cause(lab: Lab, hangs: str) -> None:
    hang = f"import sys, time\nprint(0, flush=True)\ntime.sleep(60 * (sys.argv[1] == '{hangs}'))\n"
    asked = lab.asked(hang + CRASH, behaves(), stall=1.0)
    assert asked.bench.gate is not None
    gate = msgspec.structs.replace(asked.bench.gate, stall=1.0)
    bench = msgspec.structs.replace(asked.bench, gate=gate)
    found = lab.compare(msgspec.structs.replace(asked, bench=bench))
    assert found.judgement.verdict == "UNBLOCKED"
    assert found.judgement.cause == "Fatal Python error: Segmentation fault"


def test_pairs_alternate_and_a_clear_difference_is_told(lab: Lab) -> None:
    found = lab.compare(lab.asked(behaves("100.0"), behaves("110.0")))
    assert (found.judgement.verdict, found.judgement.pairs) == ("FASTER", 3)
    assert found.judgement.ratio == pytest.approx(1.1)
    order = [trial.side for trial in lab.trials if trial.role == "pair"]
    first, second = order[0], order[1]
    assert {first, second} == {"before", "after"}
    assert order == [first, second, second, first, first, second]
    assert [trial.cold for trial in found.trials if trial.role == "warm-up"] == [True, True]
    assert not any(trial.cold for trial in found.trials if trial.role == "pair")
    assert {trial.cache for trial in found.trials if trial.side == "before"}.isdisjoint(
        trial.cache for trial in found.trials if trial.side == "after"
    )


@pytest.mark.parametrize(
    ("after", "better", "verdict"),
    [
        ("100.5", "higher", "SAME"), ("90.0", "higher", "SLOWER"), ("90.0", "lower", "FASTER"),
        ("100.0 + 2 * (os.path.getsize(sys.argv[3]) % 5 - 2)", "higher", "UNCLEAR"),
    ],
)
def test_verdicts_over_pairs(lab: Lab, after: str, better: str, verdict: str) -> None:
    asked = lab.asked(behaves(), behaves(after), gate=False, better=better)
    assert lab.compare(asked, pairs=4).judgement.verdict == verdict


def test_a_red_gate_gives_no_number(lab: Lab) -> None:
    found = lab.compare(lab.asked(behaves(), behaves("900.0", "'u'")))
    assert found.judgement.verdict == "BROKEN"
    assert found.judgement.note == "greedy tokens differ from the prefix before it"
    assert found.judgement.ratio is None
    assert roles(found) == ["before gate", "after gate", "before gate"]


def test_a_gate_that_differs_from_itself_tells_nothing(lab: Lab) -> None:
    found = lab.compare(lab.asked(behaves(tokens="str(os.getpid())"), behaves()))
    assert found.judgement.verdict == "UNCLEAR"
    assert "differs from itself" in str(found.judgement.cause)


def test_an_unblocking_patch_may_correct_the_output(lab: Lab) -> None:
    found = lab.compare(lab.asked(behaves(), behaves("110.0", "'u'"), claim="unblocked"))
    assert found.judgement.verdict == "FASTER"


def test_a_patch_that_crashes_is_broken_after_a_second_try(lab: Lab) -> None:
    found = lab.compare(lab.asked(behaves(), CRASH))
    assert found.judgement.verdict == "BROKEN"
    assert found.judgement.note.startswith("native crash")
    assert roles(found) == ["before gate", "after gate", "after gate", "before warm-up"]


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        (CRASH, CRASH + "#\n", True), (CRASH, RAISES, False),
        (RAISES, RAISES.replace("7f3a", "11"), True), (RAISES, RAISES.replace("this", "it"), False),
    ],
)
def test_blocked_on_both_sides(lab: Lab, before: str, after: str, same: bool) -> None:
    found = lab.compare(lab.asked(before, after))
    assert (found.judgement.verdict, found.judgement.same_cause) == ("BLOCKED", same)


def test_a_patch_that_hangs_is_stalled(lab: Lab) -> None:
    hang = "import time\nprint('x', flush=True)\ntime.sleep(60)\n"
    found = lab.compare(lab.asked(behaves(), hang, gate=False, stall=1.0))
    assert found.judgement.verdict == "STALLED"


def test_what_the_ledger_holds_is_not_run_again(lab: Lab) -> None:
    asked = lab.asked(behaves(), behaves("110.0"))
    first = lab.compare(asked, pairs=1)
    assert lab.runs == 6
    again = lab.compare(asked, pairs=1)
    assert lab.runs == 6
    assert [trial.id for trial in again.trials] == [trial.id for trial in first.trials]
    assert lab.compare(asked, pairs=3).judgement.pairs == 3
    assert lab.runs == 10
    lab.compare(asked, pairs=1, fresh=True)
    assert lab.runs == 16


def test_another_bench_text_environment_or_layer_is_another_question(lab: Lab) -> None:
    asked = lab.asked(behaves(), behaves("110.0"), gate=False)
    lab.compare(asked, pairs=1)
    assert lab.runs == 4
    lab.compare(lab.asked(behaves(), behaves("110.0"), gate=False, limit=30.0), pairs=1)
    assert lab.runs == 8
    lab.engine.write_text(lab.engine.read_text() + "# edited\n")
    lab.compare(asked, pairs=1)
    assert lab.runs == 12
    on = msgspec.structs.replace(asked.after, knobs={"X": "1"})
    lab.compare(msgspec.structs.replace(asked, after=on), pairs=1)
    assert lab.runs == 15, "the side before is warm already"
    lab.compare(lab.asked(behaves(), behaves("111.0"), gate=False), pairs=1)
    assert lab.runs == 18
    lab.compare(lab.asked(behaves(), behaves("111.0"), gate=False, minimum_effect=0.2), pairs=1)
    assert lab.runs == 18, "what a difference is worth does not change a trial"


def test_a_warm_up_is_repeated_when_its_caches_are_gone(lab: Lab) -> None:
    asked = lab.asked(behaves(), behaves("110.0"), gate=False)
    lab.compare(asked)
    shutil.rmtree(lab.paths.engine_caches)
    found = lab.compare(asked)
    assert lab.runs == 10
    assert all(trial.cold for trial in found.trials if trial.role == "warm-up")


def test_an_interrupt_keeps_what_was_measured_and_the_next_run_goes_on(lab: Lab) -> None:
    asked = lab.asked(behaves(), behaves("110.0"))
    seen = 0

    def interrupt(event: Event) -> None:
        nonlocal seen
        seen += isinstance(event, Said)
        if seen == 7:
            raise KeyboardInterrupt

    lab.on_event = interrupt
    with pytest.raises(KeyboardInterrupt):
        lab.compare(asked)
    kept = lab.trials
    assert len(kept) == 7
    lab.on_event = lambda event: None
    found = lab.compare(asked)
    assert found.judgement.pairs == 3
    assert lab.runs == 10
    assert lab.trials[:7] == kept
    order = [trial.side for trial in found.trials if trial.role == "pair"]
    assert order[1] == order[2]
    assert order[3] == order[4]


def test_half_a_pair_is_measured_again_when_it_is_old(lab: Lab) -> None:
    asked = lab.asked(behaves(), behaves("110.0"), gate=False)
    lab.compare(asked, pairs=1)
    path = lab.paths.ledger / "trials.jsonl"
    *others, _ = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(others))
    lab.compare(asked, pairs=1)
    assert lab.runs == 5, "the young half is taken"
    old = [
        msgspec.json.encode(msgspec.structs.replace(trial, time="2026-01-01T00:00:00+00:00"))
        for trial in lab.trials[:3]
    ]
    path.write_bytes(b"\n".join(old) + b"\n")
    lab.compare(asked, pairs=1)
    assert lab.runs == 7


def test_a_side_that_stops_running_in_the_middle_is_tried_twice(lab: Lab) -> None:
    crash = "os.abort() if os.path.getsize(sys.argv[3]) > 4 else 110.0"
    found = lab.compare(lab.asked(behaves(), behaves(crash), gate=False))
    assert found.judgement.verdict == "BROKEN"
    assert "stopped running in pair 2" in found.judgement.note
    tried = [trial for trial in found.trials if not trial.ran]
    assert len(tried) == 2
    assert {trial.side for trial in tried} == {"after"}


def test_equal_layers_are_the_same_without_a_trial(lab: Lab) -> None:
    found = lab.compare(lab.asked(behaves(), behaves()))
    assert (found.judgement.verdict, found.judgement.method) == ("SAME", "equal layers")
    assert lab.trials == []


def test_a_trial_that_would_run_other_files_ends_everything(lab: Lab) -> None:
    asked = lab.asked(behaves(), behaves("110.0"))
    (lab.folder / "layers/base/toy/behave.py").write_text(behaves("500.0"))
    with pytest.raises(BenchFailed, match=r"gate base: not the files of this arm: toy/behave\.py"):
        lab.compare(asked)
    assert [trial.outcome for trial in lab.trials] == ["blocked:wrong_files"]
    lab.arm("base", behaves())
    assert lab.compare(asked, pairs=1).judgement.ratio == pytest.approx(1.1)


def test_progress_says_what_runs_and_what_is_left(lab: Lab) -> None:
    shown: list[Progress] = []
    lab.on_event = lambda event: shown.append(event) if isinstance(event, Progress) else None
    slow = behaves("(time.sleep(1.2), 100.0)[1]")
    session = lab.session()
    session.book.planned = 4
    Comparing(session, lab.asked(slow, slow + "#\n", gate=False), 1).run()
    assert shown[0].label == "patch: speed warm-up base"
    assert "left" in shown[0].detail
    assert shown[-1].total == 4


@pytest.mark.parametrize(("after", "verdict"), [("1.004", "SAME"), ("1.02", "BROKEN")])
def test_a_gate_of_numbers_has_a_tolerance(lab: Lab, after: str, verdict: str) -> None:
    asked = lab.asked(behaves(tokens="1.0"), behaves("100.1", after))
    assert asked.bench.gate is not None
    gate = msgspec.structs.replace(asked.bench.gate, tolerance=0.01)
    bench = msgspec.structs.replace(asked.bench, gate=gate)
    found = lab.compare(msgspec.structs.replace(asked, bench=bench))
    assert found.judgement.verdict == verdict


def test_pairs_are_taken_in_turn_from_builds_of_their_own(lab: Lab) -> None:
    asked = lab.asked(behaves(), behaves("110.0"), gate=False, draws=2)
    found = lab.compare(asked)
    assert (found.judgement.verdict, found.judgement.pairs) == ("FASTER", 3)
    caches = {
        side: [one.cache for one in found.trials if (one.side, one.role) == (side, "pair")]
        for side in ("before", "after")
    }
    for one in caches.values():
        assert (one[0] == one[2], one[0] == one[1]) == (True, False)
    assert not set(caches["before"]) & set(caches["after"])
    warmed = [trial for trial in lab.trials if trial.role == "warm-up"]
    assert [trial.cold for trial in warmed] == [True] * 4
    assert not any(trial.cold for trial in lab.trials if trial.role == "pair")
    count = lab.runs
    lab.compare(asked)
    assert lab.runs == count


def test_a_lost_device_stops_the_queue_and_is_judged_when_it_is_lost_again(lab: Lab) -> None:
    lost = "raise RuntimeError('UR_RESULT_ERROR_DEVICE_LOST')\n"
    asked = lab.asked(behaves(), lost, gate=False)
    for tries in (1, 2):
        with pytest.raises(BenchFailed, match="UR_RESULT_ERROR_DEVICE_LOST"):
            lab.compare(asked)
        assert [trial.outcome for trial in lab.trials].count("blocked:device_lost") == tries
    found = lab.compare(asked)
    assert (found.judgement.verdict, len(lab.trials)) == ("BROKEN", 3)
