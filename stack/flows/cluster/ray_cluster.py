"""Ray as the way to other hosts; the only place that knows it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from stack.bench import runner
from stack.errors import MissingTool, StackError, StateError
from stack.flows.cluster.host_agent import HostAgent
from stack.flows.measure.executor import HostLost, Stopped

HINT = "pip install 'patch-stack[ray]', on every host of the cluster"
_GOES_IN = 15.0
_STEP = 0.25
_ANSWERS_IN = 10.0


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A host as Ray knows it; `host` is its name, `has` what it offers in all."""

    id: str
    host: str
    has: Mapping[str, float]


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """An error of a host that a person can act on."""

    message: str
    hint: str | None = None


class Doing:
    """The worker on a host: does what it is told, and says what went wrong as a value."""

    def __init__(self, host: str) -> None:
        self.agent = HostAgent(host)

    def do(self, what: str, *arguments: Any) -> Any:
        """Call a method of the agent."""
        try:
            return getattr(self.agent, what)(*arguments)
        except StackError as wrong:
            return Failed(message=wrong.message, hint=wrong.hint)


class Ray:
    """A connection to a cluster; `stop` ends whatever its hosts do for us."""

    def __init__(self, address: str | None) -> None:
        """Connect to the cluster at `HOST:PORT`, else to the one that this machine is in.

        Raises `MissingTool` without Ray, `StateError` where no cluster answers.
        """
        look(address)
        self.stop = threading.Event()
        self._stored: dict[str, Any] = {}
        self._lock = threading.Lock()
        self.ray = require()
        self._quiet = quiet = contextlib.ExitStack()
        quiet.enter_context(_silent())
        handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            self.ray.init(
                address=address or "auto", log_to_driver=False, logging_level="CRITICAL",
                ignore_reinit_error=False,
            )
        except BaseException as wrong:
            quiet.close()
            if not isinstance(wrong, ConnectionError | ValueError | RuntimeError):
                raise
            why = str(wrong).strip().split("\n")[0][:200]
            raise _unanswered(address or "this machine", why) from None
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def nodes(self) -> list[Node]:
        """The hosts that are alive and have processors to give; a mere head node has none.

        Of two with one name the id tells them apart.
        """
        alive = sorted(
            (one for one in self.ray.nodes() if one["Alive"] and one["Resources"].get("CPU")),
            key=lambda one: one["NodeID"],
        )
        names = [str(one.get("NodeName") or one["NodeManagerAddress"]) for one in alive]
        return [
            Node(
                id=one["NodeID"], has=one["Resources"],
                host=name if names.count(name) == 1 else f"{name}-{one['NodeID'][:6]}",
            )
            for name, one in zip(names, alive, strict=True)
        ]

    def lease(self, node: Node, wanted: Mapping[str, float]) -> Link:
        """A worker on a host that holds what the profile wants; all of its processors, unless
        the profile says how many.
        """
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        held = {"CPU": node.has["CPU"], **wanted}
        more = {name: count for name, count in held.items() if name not in ("CPU", "GPU")}
        actor = self.ray.remote(Doing).options(
            num_cpus=held["CPU"], num_gpus=held.get("GPU", 0), resources=more,
            max_restarts=0, max_task_retries=0, max_concurrency=8,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
        ).remote(node.host)
        return Link(self, node, actor)

    def store(self, name: str, data: bytes) -> Any:
        """A content in the object store, put there once however many hosts lack it."""
        with self._lock:
            if name not in self._stored:
                self._stored[name] = self.ray.put(data)
            return self._stored[name]

    def close(self) -> None:
        """Leave the cluster; what our workers still run is ended with them."""
        self.stop.set()
        self.ray.shutdown()
        self._quiet.close()


class Link:
    """Calls to the worker on one host."""

    def __init__(self, ray: Ray, node: Node, actor: Any) -> None:
        self.ray, self.node, self.actor = ray, node, actor
        self.host = node.host

    def call(self, what: str, *arguments: Any, limit: float | None = None) -> Any:
        """Have the agent do something and wait for it.

        Raises `HostLost` where worker or host are gone, `StateError` for what the agent refuses or
        does not begin within `limit` seconds, `Stopped` when the run is stopped.
        """
        reference = self.actor.do.remote(what, *arguments)
        begun = time.monotonic()
        while not self._done(reference):
            if self.ray.stop.is_set():
                raise Stopped
            if limit is not None and time.monotonic() - begun > limit:
                raise StateError(f"what it has is in use: nothing was free for {limit:.0f} s")
        return self._result(reference)

    def run(self, job: runner.Job, on_tick: runner.Tick) -> tuple[runner.Ran, bytes]:
        """Run a trial; with its log. When the run is stopped, the trial is ended first."""
        reference = self.actor.do.remote("run", job)
        begun = time.monotonic()
        while not self._done(reference):
            on_tick(time.monotonic() - begun, 0)
            if self.ray.stop.is_set():
                self.actor.do.remote("cancel", job.id)
                deadline = time.monotonic() + _GOES_IN
                while not self._done(reference) and time.monotonic() < deadline:
                    pass
                raise Stopped
        found = self._result(reference)
        if found is None:
            raise Stopped
        ran, log = found
        return ran, log

    def store(self, name: str, data: bytes) -> Any:
        """A content, by what stands for it in the object store."""
        return self.ray.store(name, data)

    def release(self) -> None:
        """End the worker, and with it whatever it has left running."""
        with contextlib.suppress(Exception):  # it may be gone, and its host as well
            self.ray.ray.kill(self.actor)

    def _done(self, reference: Any) -> bool:
        done, _ = self.ray.ray.wait([reference], timeout=_STEP)
        return bool(done)

    def _result(self, reference: Any) -> Any:
        errors = self.ray.ray.exceptions
        try:
            found = self.ray.ray.get(reference)
        except errors.RayTaskError as wrong:
            raise StateError(f"the worker failed: {wrong.cause!r}") from wrong
        except errors.RayError as gone:
            alive = any(node.id == self.node.id for node in self.ray.nodes())
            why = "its worker ended" if alive else "the host is gone"
            raise HostLost(self.host, f"{why} ({type(gone).__name__})", alive=alive) from None
        if isinstance(found, Failed):
            raise StateError(found.message, hint=found.hint)
        return found


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Have Ray print nothing: what its daemons say would go to stdout, which is for our answer."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):
        yield


def look(address: str | None) -> None:
    """Raise `StateError` at once where nobody listens; Ray itself would try for minutes."""
    address = address or os.environ.get("RAY_ADDRESS") or "auto"
    if address.startswith("ray://"):
        raise StateError(
            f"{address}: trials need a driver inside the cluster, not Ray's client",
            hint="run stack on a host of the cluster, with --address HOST:6379",
        )
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        if address == "auto":
            return
        raise StateError(f"{address}: is no HOST:PORT of a Ray cluster", hint="--address HOST:6379")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWERS_IN).close()
    except (OSError, OverflowError) as wrong:
        raise _unanswered(address, str(wrong)) from None


def _unanswered(where: str, why: str) -> StateError:
    return StateError(
        f"no Ray cluster answers at {where}: {why}",
        hint="ray start --head, then ray start --address HOST:6379 on the others",
    )


def require() -> Any:
    """The library, or `MissingTool` with how to get it."""
    try:
        import ray
    except ImportError:
        raise MissingTool(
            "other hosts are reached through Ray, which is not installed here", hint=HINT
        ) from None
    return ray
