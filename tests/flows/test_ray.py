"""`stack verify --on ray` and `stack screen --on ray` on a real cluster of three nodes."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import pytest

from stack.host import survivors
from stack.model.measure.trial import digest
from stack.store import lock
from tests.support import processes
from tests.support.cli import Output
from tests.support.processes import until
from tests.support.ray_nodes import NAMES, Nodes
from tests.support.toy_engine import Toy

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'patch-stack[ray]'")
pytestmark = [
    pytest.mark.xdist_group("ray"),
    pytest.mark.filterwarnings("default"),
]


HIDE = """
import sys

class Hide:
    def find_spec(self, name, path=None, target=None):
        if name == "ray":
            raise ModuleNotFoundError("No module named 'ray'")

sys.meta_path.insert(0, Hide())
"""
SCREEN = """
schema = 1
[screen.knobs]
bench = "softmax"
[screen.knobs.knob]
TOY_TIMING = ["1", "2"]
TOY_OTHER = ["1"]
"""


def ppid(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    nodes = Nodes(tmp_path_factory.mktemp("hosts"))
    yield nodes
    nodes.stop()


@pytest.fixture
def nodes(started: Nodes) -> Nodes:
    return started.whole()


def verify(toy: Toy, nodes: Nodes, *more: str) -> Output:
    return toy.stack("verify", "--on", "ray", "--address", nodes.address, *more)


def told(document: Any) -> list[tuple[Any, ...]]:
    """What must be the same wherever trials ran; which side of a pair is first is drawn by lot."""
    return [
        (row["name"], row["verdict"], row["holds"], row["cause"], sorted({
            (
                "by lot" if trial["role"] == "pair" else trial["key"], trial["side"],
                trial["role"], str(trial["pair"]), trial["outcome"], str(trial["cause"]),
            )
            for trial in row["trials"]
        }))
        for row in document["data"]["patches"]
    ]


def test_the_same_trials_and_verdicts_here_and_on_three_nodes(toy: Toy, nodes: Nodes) -> None:
    done = verify(toy, nodes, "--json")
    assert done.code == 0, done
    there = toy.trials()
    hosts = {trial["host"] for trial in there}
    assert len(hosts) > 1
    assert hosts <= set(NAMES)
    for name in NAMES:
        assert f"{name} is ready: machine" in done.err
    for trial in there:
        assert (toy.state / trial["log"]).is_file()
        assert trial["proved"] >= 1
    nothing_lost_or_twice(toy, losses=0)
    # Every question that was answered there is one of this machine: only caches, which are the
    # hosts' own, have to be warmed here, and the recorded values give the same verdicts.
    here = toy.stack.ok("verify", "--json")
    assert told(here.json) == told(done.json)
    assert [row["ratio"] for row in here.json["data"]["patches"]] == [
        row["ratio"] for row in done.json["data"]["patches"]
    ]
    assert {trial["role"] for trial in toy.trials()[len(there):]} == {"warm-up"}
    # Measured here alone, they have the same answers.
    (toy.state / "ledger").rename(toy.state / "other-ledger")
    assert told(toy.stack.ok("verify", "--json").json) == told(done.json)
    # Patched files and scripts came by content, once to each host that needed them.
    patched = {
        hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (toy.state / "layers").rglob("*.py") if not path.is_symlink()
    }
    script = hashlib.sha256((toy.stack.folder / "engine.py").read_bytes()).hexdigest()
    for name in NAMES:
        came = {path.name for path in nodes.contents(name)}
        assert script in came
        assert came <= patched | {script}


def at_work(nodes: Nodes) -> dict[str, list[int]]:
    """The processes of trials by host, only of hosts that have some."""
    folder = nodes.folder / "cache" / "hosts"
    found = {name: survivors.marked(f"STACK_PROJECT={folder / name}/".encode()) for name in NAMES}
    return {name: pids for name, pids in found.items() if pids}


def start(toy: Toy, nodes: Nodes, *more: str) -> subprocess.Popen[bytes]:
    with open(toy.stack.folder / "err.txt", "ab") as err:
        return processes.start(
            toy.stack.argv("verify", "--on", "ray", "--address", nodes.address, *more),
            cwd=toy.stack.folder, stdout=subprocess.DEVNULL, stderr=err,
        )


def timing(toy: Toy) -> bool:
    """Whether pairs are being timed."""
    return any(trial["role"] == "pair" for trial in toy.trials())


def held(toy: Toy, nodes: Nodes, ended: AbstractSet[int] = frozenset()) -> tuple[str, set[int]]:
    """Wait for a host whose trial is held up; its name and the processes of the trial, of which
    none is one that has `ended` or is about to."""
    return until(lambda: [
        (name, set(pids)) for name, pids in at_work(nodes).items()
        if toy.held() & set(pids) - ended
    ])[0]


def said(toy: Toy) -> str:
    return (toy.stack.folder / "err.txt").read_text()


def lost(toy: Toy) -> list[str]:
    """The hosts that were lost with a trial."""
    return [trial["host"] for trial in toy.trials() if trial["outcome"] == "blocked:host_lost"]


def nothing_lost_or_twice(toy: Toy, *, losses: int) -> None:
    """Every question is answered once, but for warm-ups, of which each host needs its own, and for
    the first half of a pair whose host was lost; both sides of a pair ran on one host."""
    trials = [trial for trial in toy.trials() if trial["outcome"] != "blocked:host_lost"]
    assert len({trial["id"] for trial in toy.trials()}) == len(toy.trials())
    last = {trial["key"]: trial for trial in trials if trial["role"] != "warm-up"}
    again = sum(trial["role"] != "warm-up" for trial in trials) - len(last)
    assert again <= losses
    hosts: dict[tuple[bool, int], list[str]] = {}
    for trial in last.values():
        if trial["role"] == "pair":
            pair = ("TOY_TIMING" in trial["env"], trial["pair"])
            hosts.setdefault(pair, []).append(trial["host"])
    assert len(hosts) >= 4
    assert all(len(both) == 2 and len(set(both)) == 1 for both in hosts.values())


def test_with_a_killed_worker_and_a_killed_node_nothing_is_lost(toy: Toy, nodes: Nodes) -> None:
    toy.stack.ok("build")
    toy.configure(seconds=0.5, hold=True)
    process = start(toy, nodes, "time-the-steps", "--json")
    until(lambda: timing(toy))
    # What is struck must be in the middle of a trial, however slow this machine is now.
    with toy.hold():
        first, pids = held(toy, nodes)
        (worker,) = {ppid(pid) for pid in pids} - pids
        os.kill(worker, signal.SIGKILL)
        until(lambda: len(lost(toy)) == 1)
        second, _ = held(toy, nodes, ended=pids)
        nodes.kill(second)
    assert process.wait(120) == 0, said(toy)
    for host in (first, second):  # Ray learns of a dead worker before it learns of a dead node
        why = "its worker ended|the host is gone"
        assert re.search(rf"{host}: ({why}) .*given to another", said(toy)), said(toy)
    assert lost(toy) == [first, second]
    nothing_lost_or_twice(toy, losses=2)
    until(lambda: not at_work(nodes))


def test_an_interrupt_and_a_killed_driver_go_on_from_the_ledger(toy: Toy, nodes: Nodes) -> None:
    toy.stack.ok("build")
    toy.configure(seconds=1)
    process = start(toy, nodes, "time-the-steps", "--json")
    until(lambda: timing(toy) and at_work(nodes))
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130, said(toy)
    until(lambda: not at_work(nodes), 10)
    kept = toy.trials()
    assert {trial["outcome"] for trial in kept} == {"ok"}
    process = start(toy, nodes, "time-the-steps", "--json")
    until(lambda: len(toy.trials()) > len(kept) and at_work(nodes))
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert toy.trials()[: len(kept)] == kept
    kept = toy.trials()
    until(lambda: not at_work(nodes), 20)
    done = verify(toy, nodes, "time-the-steps", "--json")
    assert done.code == 0, done
    assert toy.trials()[: len(kept)] == kept
    nothing_lost_or_twice(toy, losses=2)


def test_each_comparison_on_two_machines_and_a_screen_on_all_hosts(toy: Toy, nodes: Nodes) -> None:
    nodes.add("elm", ZE_AFFINITY_MASK="1")
    done = verify(toy, nodes, "time-the-steps", "--machines", "2", "--pairs", "2", "--json")
    assert done.code == 0, done
    on, off = done.json["data"]["patches"][0]["benches"]
    for row in (on, off):
        assert row["method"] == "t over 2 machines"
        assert row["pairs"] == 4
        assert len({trial["machine"] for trial in row["trials"]}) == 2
        assert "elm" in {trial["host"] for trial in row["trials"]}
    assert "2 machines" in toy.stack.ok("report", "--md").out
    nodes.whole()
    (toy.stack.folder / "knobs.toml").write_text(SCREEN)
    screen = toy.stack(
        "screen", "knobs.toml", "--on", "ray", "--address", nodes.address, "--pairs", "1", "--json"
    )
    assert screen.code == 0, screen
    rows = screen.json["data"]["candidates"]
    assert [row["label"] for row in rows] == ["TOY_TIMING=1", "TOY_TIMING=2", "TOY_OTHER=1"]
    assert len({trial["host"] for row in rows for trial in row["trials"]}) > 1


def test_a_host_that_cannot_measure_is_set_aside_with_the_reason(toy: Toy, nodes: Nodes) -> None:
    toy.stack.ok("build")
    (folder,) = {f"{toy.stack.folder.name}-{digest(str(toy.stack.folder.resolve()))[:8]}"}
    state = nodes.folder / "cache/hosts/ash" / folder / ".stack"
    with lock.hold(state / "measuring.lock", "somebody else"):
        done = verify(toy, nodes, "time-the-steps", "--json")
    assert done.code == 0, done
    assert "ash is set aside: " in done.err
    assert "somebody else" in done.err
    assert {trial["host"] for trial in toy.trials()} <= {"birch", "cedar"}
    settings = toy.stack.folder / "stack.toml"
    text = settings.read_text()
    settings.write_text(text.replace("[profile.tiny]", "[profile.tiny]\nresources = { XPU = 4 }"))
    none = verify(toy, nodes, "--json")
    assert none.code == 5
    assert "XPU: 4 wanted, 0 there" in none.json["errors"][0]["context"][0]


def test_without_ray_or_a_cluster_the_message_says_what_to_do(toy: Toy, tmp_path: Path) -> None:
    hide = tmp_path / "hide"
    hide.mkdir()
    (hide / "sitecustomize.py").write_text(HIDE)
    path = os.pathsep.join(filter(None, [str(hide), os.environ.get("PYTHONPATH")]))
    for verb in (("verify",), ("screen", "knobs.toml")):
        (toy.stack.folder / "knobs.toml").write_text(SCREEN)
        wrong = toy.stack(*verb, "--on", "ray", env={"PYTHONPATH": path})
        assert wrong.code == 2
        assert wrong.err.splitlines() == [
            "error: other hosts are reached through Ray, which is not installed here",
            "hint: pip install 'patch-stack[ray]', on every host of the cluster",
        ]
    assert not (toy.state / "venvs").exists()
    assert "hint: --on ray" in toy.stack("verify", "--machines", "2").err
    for address, said in {
        "127.0.0.1:1": "no Ray cluster answers at 127.0.0.1:1: ", "here": "is no HOST:PORT",
        "ray://127.0.0.1:10001": "not Ray's client", "127.0.0.1:99999": "no Ray cluster answers",
    }.items():
        wrong = toy.stack("verify", "--on", "ray", "--address", address)
        assert wrong.code == 2
        assert said in wrong.err
    assert not (toy.state / "venvs").exists()
