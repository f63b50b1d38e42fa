"""What a host of a cluster does for a verify: its base, layers and trials, by its own code."""

from __future__ import annotations

import hashlib
import os
import threading
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import msgspec

from stack import __version__
from stack.bench import environment as surroundings
from stack.bench import runner
from stack.errors import StateError
from stack.flows.builds import environment, install, prepare
from stack.flows.builds.environment import Base
from stack.flows.builds.layers import PROBE
from stack.flows.cluster.parcels import Parcel, Store
from stack.flows.measure import signatures
from stack.flows.measure.executor import Place
from stack.flows.measure.machine import machine_of
from stack.host import process, survivors
from stack.model.measure.trial import Machine
from stack.store import atomic, lock
from stack.store.paths import CONFIG, Paths, cache_home
from stack.store.project import Project

_MOST_LOG = 4 << 20
_GOES_IN = 15.0


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What a host has to be ready for.

    `project` names its folder on every host, `settings` is `stack.toml`, `files` the scripts that
    commands name; `root`, `base` (a folder) and `installed` are the driver's own, `code` is the
    digest of the `stack` that it runs.
    """

    project: str
    settings: bytes
    profile: str
    files: Parcel
    root: Path
    base: Path
    installed: tuple[str, ...]
    shadowed: tuple[str, ...]
    code: str


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """A host that can measure: what its trials stand on, and whether its base was made now."""

    place: Place
    machine: Machine
    made: bool


@cache
def code() -> str:
    """A digest of this `stack`: two ends that differ would measure differently."""
    root = Path(__file__).parents[2]
    said = hashlib.sha256(__version__.encode())
    for path in sorted(root.rglob("*.py")):
        said.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return said.hexdigest()[:16]


class HostAgent:
    """One host for one driver; the lock of its folder keeps other drivers out."""

    def __init__(self, host: str) -> None:
        self.host = host
        self._held = ExitStack()
        self._cancelled: dict[str, threading.Event] = {}
        self._lock = threading.Lock()

    def lacks(self, order: Order) -> list[str]:
        """The contents of the project's files that never came here; `StateError` for other code."""
        if order.code != code():
            raise StateError(
                f"another stack than the driver's: {code()} of {__version__} here, {order.code}",
                hint="install the same patch-stack on every host",
            )
        self.order = order
        self.paths = Paths(cache_home() / "hosts" / self.host / order.project, cache_home())
        self.store = Store(self.paths.root.parent / "contents")
        return self.store.lacks(order.files.contents)

    def put(self, data: bytes) -> None:
        """Keep a content."""
        self.store.put(data)

    def ready(self) -> Ready:
        """Make or find the base and the inputs, and say what this host is.

        Raises `Locked` while another driver measures here, `BuildFailed` for a base that cannot be
        made, was edited, or holds other packages than the driver's.
        """
        self.paths.ensure_state()
        mark = f"{surroundings.PROJECT_MARK}={self.paths.root}"
        what = f"{self.host} for {self.order.root}"
        self._held.enter_context(  # the worker of a driver that was killed may just be going
            lock.hold(self.paths.state / "measuring.lock", what, wait=_GOES_IN)
        )
        survivors.end(mark.encode() + b"\0")
        self._held.callback(os.close, process.guard(mark))
        atomic.write_if_changed(self.paths.config, self.order.settings)
        for one in self.order.files.entries:
            (self.paths.root / one.path).unlink(missing_ok=True)
        self.store.fill(
            self.order.files, self.paths.root, lambda path: self.paths.root / path, Path("/")
        )
        project = Project(self.paths)
        base, made = self._base(project)
        environment.refuse_edited(base, self.order.shadowed, self.order.profile)
        self.base, self.catalogue = base, signatures.catalogue(project)
        self.outer = {**os.environ, surroundings.PROJECT_MARK: str(self.paths.root)}
        place = Place(
            host=self.host, python=base.python, site_packages=base.site_packages, probe=PROBE,
            logs=self.paths.logs, caches=self.paths.engine_caches,
            values={
                **environment.values(project, base, self.order.profile),
                "models": str(self._models(project, base)), "drivers": str(PROBE.parent),
            },
        )
        return Ready(place=place, machine=machine_of(base), made=made)

    def _base(self, project: Project) -> tuple[Base, bool]:
        """The driver's own base where it can be seen from here, else one of this host."""
        shared = environment.base_at(self.order.base)
        if shared is not None and shared.packages == self.order.installed:
            return shared, False
        name, profile = project.profile(self.order.profile)
        base, made = install.ensure(
            project, environment.wanted(project, name, profile), lambda event: None
        )
        if base.packages != self.order.installed:
            differ = sorted(set(base.packages) ^ set(self.order.installed))
            raise StateError(
                f"its base holds other packages than the driver's: {', '.join(differ[:6])}",
                hint=f"{CONFIG}: name the versions in `packages` of profile {name}",
            )
        return base, made

    def _models(self, project: Project, base: Base) -> Path:
        """Where the inputs stand: the driver's where they can be seen, else made here once."""
        name, profile = project.profile(self.order.profile)
        tasks = prepare.tasks(project, base, name, profile)
        theirs = Project(Paths(self.order.root, cache_home()))
        if not prepare.pending(theirs, tasks):
            return environment.models(theirs)
        for task in prepare.pending(project, tasks):
            prepare.run(project, base, task, lambda event: None, name=name, profile=profile)
        return environment.models(project)

    def lacks_of(self, parcel: Parcel) -> list[str] | Path:
        """The folder of a layer, where it stands here; else the contents that are missing."""
        folder = self._layer(parcel)
        return folder if folder.is_dir() else self.store.lacks(parcel.contents)

    def layer(self, parcel: Parcel) -> Path:
        """Make a layer, all of whose contents have come here; where it stands."""
        folder = self._layer(parcel)
        self.store.make(parcel, folder, self.base.site_packages)
        return folder

    def _layer(self, parcel: Parcel) -> Path:
        return self.paths.layers / self.base.key / parcel.key

    def is_cold(self, caches: Path, pyc: Path) -> bool:
        """Whether no trial has yet ended well with these cache roots."""
        return runner.is_cold(caches, pyc)

    def run(self, job: runner.Job) -> tuple[runner.Ran, bytes] | None:
        """Run a trial; with its log, shortened in the middle. None where it was cancelled."""
        stop = self._stop(job.id)

        def tick(seconds: float, size: int) -> None:
            if stop.is_set():
                raise KeyboardInterrupt

        try:
            ran = runner.run(job, self.catalogue, tick, self.outer)
        except KeyboardInterrupt:
            return None
        return ran, _shortened((job.folder / "log.txt").read_bytes())

    def cancel(self, job: str) -> None:
        """End a trial and all its processes, now or as soon as it begins."""
        self._stop(job).set()

    def _stop(self, job: str) -> threading.Event:
        with self._lock:
            return self._cancelled.setdefault(job, threading.Event())

    def free(self) -> None:
        """Let other drivers have this host; what still runs is ended."""
        self._held.close()


def _shortened(log: bytes) -> bytes:
    if len(log) <= _MOST_LOG:
        return log
    cut = f"\n... {len(log) - _MOST_LOG} bytes stand only on the host ...\n".encode()
    return log[: _MOST_LOG // 4] + cut + log[-3 * _MOST_LOG // 4 :]


