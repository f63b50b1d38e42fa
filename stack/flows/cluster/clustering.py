"""The hosts of a Ray cluster become sessions that trials are asked of."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from stack.bench.render import render_all
from stack.errors import UsageError
from stack.flows.builds.build import Built
from stack.flows.builds.shadow import import_name
from stack.flows.cluster.cluster import Cluster
from stack.flows.cluster.host_agent import Order, code
from stack.flows.cluster.hosts import Away
from stack.flows.cluster.parcels import of_files
from stack.flows.cluster.ray_cluster import Link, Node, Ray, look, require
from stack.flows.cluster.remote import Layers, Remote
from stack.flows.events import Emit, Said
from stack.flows.measure.measuring import Measuring
from stack.flows.measure.pool import Here, Pool
from stack.flows.measure.signatures import catalogue
from stack.flows.measure.trials import Session
from stack.model.measure.trial import Machine, digest
from stack.model.project.settings import Bench, Profile
from stack.store.project import Project


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """Where trials run: on the cluster at `address` (None: the one that this machine is in).

    Each comparison is measured on so many `machines`; None for as many as there are.
    """

    address: str | None = None
    machines: int | None = 1


@contextmanager
def pool_of(
    project: Project, profile: Profile, here: Measuring, where: Where | None, emit: Emit
) -> Iterator[Pool]:
    """The one session of this machine, or those of a cluster's hosts.

    Raises `MissingTool` without Ray, `StateError` where no cluster answers, `BenchFailed` where no
    host can measure.
    """
    if where is None:
        yield Here(here.session)
        return
    ray = Ray(where.address)
    try:
        hosts = RayHosts(ray, project, profile, here, emit)
        yield Cluster(hosts, here.session, emit, machines=where.machines)
    finally:
        ray.close()


class RayHosts:
    """Opens hosts: a worker, the base and the inputs, the fingerprint, a session."""

    def __init__(
        self, ray: Ray, project: Project, profile: Profile, here: Measuring, emit: Emit
    ) -> None:
        self.ray, self.project, self.profile, self.here = ray, project, profile, here
        self.layers = Layers(here.built.base.site_packages)
        parcel, self.files = of_files(
            project.paths.root, _named(project, profile, here.session.ground.values)
        )
        base = here.built.base
        self.order = Order(
            project=f"{project.paths.root.name}-{digest(str(project.paths.root))[:8]}",
            settings=project.paths.config.read_bytes(), profile=here.built.profile, files=parcel,
            root=project.paths.root, base=base.venv.parent, installed=base.packages,
            shadowed=_shadowed(project, here.built), code=code(),
        )
        self._nodes: dict[str, Node] = {}
        self._links: dict[str, Link] = {}
        self._refused: set[str] = set()
        self._lock = threading.Lock()
        known = here.session.ledger.machines(lambda text: emit(Said(text, warning=True)))
        self._machines = {machine.id for machine in known}

    def appeared(self) -> list[str]:
        """The hosts that are alive, that we have no worker on, and that were not refused."""
        self._nodes = {node.host: node for node in self.ray.nodes()}
        return [
            host for host, node in self._nodes.items()
            if host not in self._links and node.id not in self._refused
        ]

    def open(self, host: str, emit: Emit) -> Session | Away:
        """A session on a host that has what the profile wants."""
        node = self._nodes[host]
        self._refused.add(node.id)  # unless all goes well
        short = [
            f"{name}: {count:g} wanted, {node.has.get(name, 0):g} there"
            for name, count in self.profile.resources.items() if node.has.get(name, 0) < count
        ]
        if short:
            return Away(host, "; ".join(short))
        link = self.ray.lease(node, self.profile.resources)
        remote = Remote(link, self.layers, emit)
        try:
            ready = remote.prepare(self.order, self.files)
        except BaseException:
            link.release()
            raise
        self._links[host] = link
        self._refused.discard(node.id)
        self._record(ready.machine)
        ground = self.here.session.ground
        values = {**ground.values, "cpus": ready.place.values["cpus"]}
        return Session(
            msgspec.structs.replace(ground, machine=ready.machine.id, values=values),
            self.project.paths, self.here.session.ledger, catalogue(self.project), emit,
            book=self.here.session.book, executor=remote,
        )

    def close(self, host: str, *, unfit: bool) -> None:
        """Give a host back; one that is unfit is not taken again until its node is another."""
        link = self._links.pop(host, None)
        if link is not None:
            link.release()
            if unfit:
                self._refused.add(link.node.id)

    def stop(self) -> None:
        """End what the hosts do for us."""
        self.ray.stop.set()

    def _record(self, machine: Machine) -> None:
        with self._lock:
            if machine.id not in self._machines:
                self._machines.add(machine.id)
                self.here.session.book.record(machine)


def _named(project: Project, profile: Profile, values: Mapping[str, object]) -> set[Path]:
    """The files of the project that commands name, and the modules beside a Python one."""
    root = project.paths.root
    names = {**values, "out": "out", "layer": "layer"}
    found: set[Path] = set()
    for argv in [*profile.prepare, *_commands(project.settings.bench.values())]:
        for word in render_all(argv, names, "stack.toml"):
            path = Path(word)
            if path.is_file() and path.is_relative_to(root) and ".stack" not in path.parts:
                found.add(path)
                found.update(path.parent.glob("*.py") if path.suffix == ".py" else ())
    return found


def _commands(benches: Iterable[Bench]) -> Iterator[tuple[str, ...]]:
    for bench in benches:
        yield bench.command
        if bench.gate is not None:
            yield bench.gate.command


def _shadowed(project: Project, built: Built) -> tuple[str, ...]:
    """The import packages that lines of the profile shadow."""
    names: set[str] = set()
    for line in built.layers:
        upstream = line.partition("/")[0]
        if upstream in project.settings.upstream:
            names.update(map(import_name, project.settings.upstream[upstream].packages))
    return tuple(sorted(names))


def check(profile: Profile, name: str, where: Where | None) -> None:
    """Refuse, before anything is built, what no host could have, and an address of no cluster.

    Raises `MissingTool` without Ray.
    """
    if where is None:
        return
    require()
    look(where.address)
    for resource in profile.resources:
        if resource in ("memory", "object_store_memory", "node"):
            raise UsageError(
                f"stack.toml: profile.{name}.resources: {resource} is not held by trials",
                hint="CPU, GPU, or a name that `ray start --resources` gave",
            )
