"""A host's own part without a cluster: base, inputs, layers by content, and the pool over hosts."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stack.errors import BenchFailed, StateError
from stack.flows.builds.build import build
from stack.flows.cluster.cluster import Cluster
from stack.flows.cluster.clustering import _named
from stack.flows.cluster.host_agent import HostAgent, Order, code
from stack.flows.cluster.hosts import Away
from stack.flows.cluster.parcels import Entry, Parcel, Store, of_files, of_layer
from stack.flows.cluster.remote import Layers, Remote
from stack.flows.events import Said
from stack.flows.measure.executor import HostLost
from stack.flows.measure.measuring import measuring
from stack.flows.measure.plan import choose, comparisons
from stack.flows.measure.pool import Here, Lost, Task
from stack.flows.measure.trials import Session
from stack.flows.verify.verifying import Verifying
from stack.store.paths import Paths
from stack.store.project import Project
from tests.flows.test_verify_compare import Lab, behaves, lab
from tests.support.toy_engine import Toy


class Inside:
    """The wire to an agent in this process."""

    def __init__(self, host: str) -> None:
        self.host, self.agent = host, HostAgent(host)
        self.sent: list[int] = []

    def call(self, what: str, *arguments: Any, limit: float | None = None) -> Any:
        if what == "put":
            self.sent.append(len(arguments[0]))
        return getattr(self.agent, what)(*arguments)

    def run(self, job: Any, on_tick: Any) -> Any:
        return self.agent.run(job)

    def store(self, name: str, data: bytes) -> bytes:
        return data


@pytest.fixture
def project(toy: Toy) -> Project:
    toy.stack.ok("build")
    root = toy.stack.folder.resolve()
    return Project(Paths(root, Path(toy.stack.folder.parent / "cache")))


def order(project: Project, here: Any, **changes: Any) -> tuple[Order, dict[str, Path]]:
    name, profile = project.profile(None)
    parcel, files = of_files(
        project.paths.root, _named(project, profile, here.session.ground.values)
    )
    base = here.built.base
    return Order(**{
        "project": "toy", "settings": project.paths.config.read_bytes(), "profile": name,
        "files": parcel, "root": project.paths.root, "base": base.venv.parent,
        "installed": base.packages, "shadowed": ("toy",), "code": code(), **changes,
    }), files


def test_a_host_that_sees_nothing_of_ours_makes_a_base_and_measures(
    project: Project, toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STACK_CACHE_DIR", str(tmp_path / "another"))
    name, profile = project.profile(None)
    with measuring(project, name, profile, lambda event: None) as here:
        said, files = order(project, here, base=tmp_path / "gone", root=tmp_path / "gone")
        wire = Inside("oak")
        remote = Remote(wire, Layers(here.built.base.site_packages), lambda event: None)
        ready = remote.prepare(said, files)
        assert ready.made
        assert ready.place.python.is_relative_to(tmp_path / "another/hosts/oak/toy/.stack/venvs")
        assert ready.machine.id == here.machine.id, "the same machine, whoever asks"
        wanted = choose(project, profile, ["time-the-steps"])
        asked = list(
            comparisons(project, profile, here.built, wanted, lambda event: None, mode="marginal")
        )
        here.session.executor = remote
        proved = Verifying(Here(here.session), asked, None, lambda event: None).run()
        assert [one.record.verdict for one in proved] == ["SAME", "SAME"]
        trials = [trial for one in proved for trial in one.trials]
        assert {trial.host for trial in trials} == {"oak"}
        assert all(str(tmp_path / "another") in " ".join(trial.argv) for trial in trials)
        # Another host of this kind needs what this one needed, and a second time nothing at all.
        assert wire.sent
        wire.agent.free()
        again = Inside("oak")
        layers = Layers(here.built.base.site_packages)
        assert not Remote(again, layers, lambda event: None).prepare(said, files).made
        assert again.sent == []
        again.agent.free()


def test_a_host_says_why_it_cannot_be_used(project: Project, tmp_path: Path) -> None:
    name, profile = project.profile(None)
    with measuring(project, name, profile, lambda event: None) as here:
        said, files = order(project, here, code="0" * 16)
        wire = Inside("elm")
        layers = Layers(here.built.base.site_packages)
        with pytest.raises(StateError, match="another stack than the driver's"):
            Remote(wire, layers, lambda event: None).prepare(said, files)
        said, files = order(project, here, installed=("toy-engine==2.0",))
        with pytest.raises(StateError, match="other packages than the driver's"):
            Remote(wire, layers, lambda event: None).prepare(said, files)
        wire.agent.free()


def test_a_layer_is_the_same_wherever_it_is_unpacked(project: Project, tmp_path: Path) -> None:
    built = build(project, None, lambda event: None)
    site = built.base.site_packages
    for prefix in built.layers["toy/1.0"]:
        parcel, files = of_layer(prefix.layer.path, site)
        store = Store(tmp_path / "contents")
        for content in store.lacks(parcel.contents):
            store.put(files[content].read_bytes())
        assert store.lacks(parcel.contents) == []
        at = tmp_path / "layers" / parcel.key
        store.make(parcel, at, site)
        assert of_layer(at, site)[0] == parcel
        assert (at / "toy/core.py").read_bytes() == (prefix.layer.path / "toy/core.py").read_bytes()


def test_a_damaged_or_wandering_content_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path / "contents")
    store.put(b"right\n")
    (name,) = (path.name for path in store.folder.iterdir())
    parcel = Parcel(entries=(Entry("a/b.py", name),))
    (store.folder / name).write_bytes(b"wrong\n")
    with pytest.raises(StateError, match="is not what its name says"):
        store.make(parcel, tmp_path / "layer", tmp_path)
    assert store.lacks([name]) == [name], "and asked for again"
    assert not (tmp_path / "layer").exists()
    store.put(b"right\n")
    out = Parcel(entries=(Entry("../b.py", name),))
    with pytest.raises(StateError, match="leads out of its folder"):
        store.make(out, tmp_path / "layer", tmp_path)


class Threads:
    """Hosts that are threads; `lost` of them go when they are used, `unfit` are never ready."""

    def __init__(self, home: Any, hosts: list[str], unfit: tuple[str, ...] = ()) -> None:
        self.home, self.hosts, self.unfit = home, hosts, unfit
        self.stopped = threading.Event()
        self.closed: list[str] = []

    def appeared(self) -> list[str]:
        found, self.hosts = self.hosts, []
        return found

    def open(self, host: str, emit: Any) -> Any:
        if host in self.unfit:
            return Away(host, "its base is broken")
        ground = msgspec.structs.replace(self.home.ground, machine=f"machine of {host}")
        return type("Standing", (), {"ground": ground, "host": host})

    def close(self, host: str, *, unfit: bool) -> None:
        self.closed.append(host)

    def stop(self) -> None:
        self.stopped.set()


def pool(lab: Lab, hosts: list[str], **more: Any) -> tuple[Cluster, Threads, list[str]]:
    said: list[str] = []
    home = lab.session()
    threads = Threads(home, hosts, **more)

    def emit(event: Any) -> None:
        if isinstance(event, Said):
            said.append(event.text)

    return Cluster(threads, home, emit, machines=1), threads, said


def test_tasks_of_a_unit_stay_on_one_host_and_lost_ones_go_elsewhere(lab: Lab) -> None:
    where: dict[int, list[str]] = {}
    gone = {"b"}

    def task(at: int) -> Task[int]:
        def run(session: Any) -> int:
            time.sleep(0.01)
            if session.host in gone and at % 3 == 1:
                raise HostLost(session.host, "the host is gone")
            where.setdefault(at // 3, []).append(session.host)
            return at

        return Task(at=at, unit=at // 3, run=run)

    cluster, threads, said = pool(lab, ["a", "b", "c", "d"], unfit=("d",))
    assert "d is set aside: its base is broken" in said
    found = [result for _, result in cluster.each([task(at) for at in range(12)])]
    assert sorted(found) == list(range(12)), "each once"
    assert threads.closed == ["b"]
    assert "b: the host is gone; its work is given to another" in said
    assert sum("b" in hosts for hosts in where.values()) == 1
    # The next tasks of a unit go where its caches are warm.
    before = {unit: hosts[-1] for unit, hosts in where.items()}
    where.clear()
    assert sorted(result for _, result in cluster.each([task(3 * at) for at in range(4)])) == [
        0, 3, 6, 9,
    ]
    assert sum(where[unit] == [before[unit]] for unit in where) >= 2


def test_work_that_takes_three_hosts_with_it_is_told_and_the_rest_is_done(lab: Lab) -> None:
    def task(at: int) -> Task[int]:
        def run(session: Any) -> int:
            if at == 1:
                raise HostLost(session.host, "the host is gone")
            return at

        return Task(at=at, unit=at, run=run)

    cluster, _, _ = pool(lab, ["a", "b", "c", "d"])
    found = {one.at: result for one, result in cluster.each([task(at) for at in range(4)])}
    assert {at: found[at] for at in (0, 2, 3)} == {0: 0, 2: 2, 3: 3}
    assert isinstance(found[1], Lost)
    assert len(found[1].hosts) == 3
    assert found[1].note.startswith("its hosts were lost while it ran: ")


def test_an_error_of_one_task_ends_all(lab: Lab) -> None:
    def run(session: Any) -> int:
        raise BenchFailed("the gate cannot be read")

    cluster, threads, _ = pool(lab, ["a", "b"])
    with pytest.raises(BenchFailed, match="cannot be read"):
        list(cluster.each([Task(at=0, unit=0, run=run)]))
    assert threads.stopped.is_set()
    with pytest.raises(BenchFailed, match="no host can measure") as wrong:
        pool(lab, ["a"], unfit=("a",))
    assert wrong.value.context == ("a: its base is broken",)


def on(lab: Lab, host: str | None) -> Session:
    session = lab.session()
    place = msgspec.structs.replace(session.executor.place, host=host)
    session.executor.place = place
    return session


def test_half_a_pair_of_another_host_is_measured_again_and_a_whole_one_is_kept(lab: Lab) -> None:
    asked = lab.asked(behaves(), behaves(), gate=False)
    order = ("before", "after")
    first = on(lab, "a")
    half = first.ask(asked, "before", "pair", pair=1, place=0)
    assert half.host == "a"
    for host, kept in (("a", half), ("b", None), (None, None)):
        session = on(lab, host)
        session.drop_stale_half(asked, order, 1, 0)
        assert session.find(asked, "before", "pair", pair=1, place=0) == kept
    whole = first.ask(asked, "after", "pair", pair=1, place=1)
    session = on(lab, "b")
    session.drop_stale_half(asked, order, 1, 0)
    assert session.find(asked, "after", "pair", pair=1, place=1) == whole
    # The book takes a trial once, and one that a host took with it is no answer.
    with pytest.raises(StateError, match="was written before"):
        first.book.append(whole)
    gone = msgspec.structs.replace(whole, id="x", key="k", outcome="blocked:host_lost")
    session.book.append(gone)
    assert on(lab, "b").book.answer("k") is None


def test_what_two_sessions_want_one_of_them_measures(lab: Lab) -> None:
    asked = lab.asked(behaves(), behaves())
    book = lab.session().book
    found = []

    def ask() -> None:
        session = lab.session()
        session.book = book
        found.append(session.ask(asked, "before", "gate"))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({trial.id for trial in found}) == 1
    assert len(lab.trials) == 1
