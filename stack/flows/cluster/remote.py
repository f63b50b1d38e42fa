"""A host of a cluster as an executor: layers are brought there, logs come back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from stack.bench import runner
from stack.errors import StateError
from stack.flows.cluster.host_agent import Order, Ready
from stack.flows.cluster.parcels import Parcel, of_layer
from stack.flows.events import Emit, Said
from stack.flows.measure.executor import Place

_IN_USE = 120.0


class Wire(Protocol):
    """The calls to one host."""

    host: str

    def call(self, what: str, *arguments: Any, limit: float | None = None) -> Any:
        """Have the agent there do something, and wait for it."""

    def run(self, job: runner.Job, on_tick: runner.Tick) -> tuple[runner.Ran, bytes]:
        """Run a trial there; with its log."""

    def store(self, name: str, data: bytes) -> Any:
        """Something that stands for a content in a call."""


class Layers:
    """The layers of this machine as parcels, each read once for all hosts."""

    def __init__(self, site_packages: Path) -> None:
        self.site_packages = site_packages
        self._known: dict[Path, tuple[Parcel, Mapping[str, Path]]] = {}

    def of(self, layer: Path) -> tuple[Parcel, Mapping[str, Path]]:
        """A layer's parcel, and where its contents stand here."""
        if layer not in self._known:
            self._known[layer] = of_layer(layer, self.site_packages)
        return self._known[layer]


class Remote:
    """Trials on one host."""

    def __init__(self, wire: Wire, layers: Layers, emit: Emit) -> None:
        self.wire, self._layers, self.emit = wire, layers, emit
        self._there: dict[Path, Path] = {}
        self.place: Place
        self.ready: Ready

    def prepare(self, order: Order, files: Mapping[str, Path]) -> Ready:
        """Have the host made ready. Raises `StateError` with the reason where it cannot be."""
        missing = self.wire.call("lacks", order, limit=_IN_USE)
        self._send(missing, files)
        self.ready = self.wire.call("ready")
        self.place = self.ready.place
        return self.ready

    def layers(self, ours: Sequence[Path]) -> tuple[Path, ...]:
        return tuple(self._layer(path) for path in ours)

    def _layer(self, ours: Path) -> Path:
        if ours not in self._there:
            parcel, files = self._layers.of(ours)
            found = self.wire.call("lacks_of", parcel)
            if not isinstance(found, Path):
                sent = self._send(found, files)
                found = self.wire.call("layer", parcel)
                what = f"{len(parcel.contents)} files, {sent} bytes of them sent"
                self.emit(Said(f"{self.wire.host}: layer {ours.name[:12]} ({what})"))
            if not isinstance(found, Path):
                raise StateError(f"{self.wire.host}: has no layer {ours.name}")
            self._there[ours] = found
        return self._there[ours]

    def _send(self, missing: Sequence[str], files: Mapping[str, Path]) -> int:
        size = 0
        for name in missing:
            data = files[name].read_bytes()
            self.wire.call("put", self.wire.store(name, data))
            size += len(data)
        return size

    def is_cold(self, caches: Path, pyc: Path) -> bool:
        return bool(self.wire.call("is_cold", caches, pyc))

    def run(self, job: runner.Job, log: Path, on_tick: runner.Tick) -> runner.Ran:
        ran, said = self.wire.run(job, on_tick)
        log.write_bytes(said)
        return ran
