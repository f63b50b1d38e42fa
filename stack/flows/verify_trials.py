"""Asks for trials: one that the ledger has answered already is found again, not run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from stack.bench import runner
from stack.bench.render import render, render_all, render_env
from stack.errors import BenchFailed
from stack.flows.arms import Comparison, expected_files
from stack.flows.events import Emit, Progress, Said
from stack.model.settings import Bench
from stack.model.signatures import Catalogue
from stack.model.trial import Role, Side, Trial, digest
from stack.store.ledger import Ledger
from stack.store.paths import Paths
from stack.store.stamps import now, now_id

# Somebody ended it, or the kernel did for want of memory, or it never ran what it was meant to:
# that says nothing about the patch.
_NOT_AN_ANSWER = ("blocked:interrupted", "blocked:killed", "blocked:wrong_files")
_FIRST_GUESS = 30.0
_PAIR_WITHIN = 900.0
ANNOUNCED = "trial.json"


class Announced(msgspec.Struct, frozen=True, kw_only=True):
    """A trial that has begun: its name, its number among those planned, seconds a trial takes."""

    label: str
    done: int
    planned: int
    each: float


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    """What all trials of one verify stand on.

    `values` are the names that templates may use, `inputs` the keys of what the profile
    prepared, `machine` the fingerprint's id, `outer` the caller's environment.
    """

    profile: str
    base_key: str
    python: Path
    site_packages: Path
    probe: Path
    machine: str
    values: Mapping[str, object]
    inputs: tuple[str, ...]
    outer: Mapping[str, str]


class Session:
    """The trials of one run of verify."""

    def __init__(
        self, ground: Ground, paths: Paths, ledger: Ledger, catalogue: Catalogue, emit: Emit, *,
        fresh: bool = False,
    ) -> None:
        self.ground, self.paths, self.ledger = ground, paths, ledger
        self.catalogue, self.emit = catalogue, emit
        self.run = now_id()
        self.done = 0
        self.run_count = 0
        self.planned = 0
        self._begun = time.monotonic()
        self._known: dict[str, Trial] = {}
        self._seconds: list[float] = []
        for trial in ledger.trials(lambda text: emit(Said(text, warning=True))):
            if trial.profile == ground.profile and trial.ran:
                self._seconds.append(trial.seconds)
            if not fresh and trial.outcome not in _NOT_AN_ANSWER:
                self._known[trial.key] = trial
        self._seconds = self._seconds[-20:]

    def ask(
        self, asked: Comparison, side: Side, role: Role, *, pair: int | None = None, place: int = 0
    ) -> Trial:
        """The trial that answers this question, run now unless the ledger holds it."""
        held = self.find(asked, side, role, pair=pair, place=place)
        self.done += 1
        return held or self._measure(asked, side, role, pair, place)

    def find(
        self, asked: Comparison, side: Side, role: Role, *, pair: int | None = None, place: int = 0
    ) -> Trial | None:
        """The trial in the ledger; a warm-up only while the caches that it warmed still stand."""
        trial = self._known.get(self._key(asked, side, role, pair, place))
        if trial is None or not trial.ran or role != "warm-up":
            return trial
        return None if runner.is_cold(*self._roots(asked, side, role)) else trial

    def drop_stale_half(
        self, asked: Comparison, order: tuple[Side, Side], pair: int, start: int
    ) -> None:
        """Forget the first half of a pair whose second half would come much later."""
        halves = [
            self.find(asked, side, "pair", pair=pair, place=place)
            for place, side in enumerate(order, start)
        ]
        self.drop_stale(halves)

    def ran_before(self, one: Trial, other: Trial) -> bool:
        """Whether a trial of the ledger stands there before another one."""
        known = list(self._known)
        return known.index(one.key) < known.index(other.key)

    def drop_stale(self, cells: Sequence[Trial | None]) -> None:
        """Forget what there is of a pair or round whose rest would come much later."""
        there = [trial for trial in cells if trial is not None]
        if not there or len(there) == len(cells):
            return
        last = max(datetime.fromisoformat(trial.time) for trial in there)
        if (datetime.now(UTC) - last).total_seconds() > _PAIR_WITHIN:
            for trial in there:
                self._known.pop(trial.key, None)

    def _key(
        self, asked: Comparison, side: Side, role: Role, pair: int | None, place: int
    ) -> str:
        arm = asked.arm(side)
        rival = asked.arm("after" if side == "before" else "before")
        against = [rival.identity, rival.knobs] if role == "pair" else None
        return digest(
            self.ground.base_key, self.ground.machine, arm.identity, arm.knobs,
            asked.rounds if asked.rounds and role == "pair" else against,
            self.bench_digest(asked.name, asked.bench, gate=role == "gate"), role, pair, place,
        )

    def bench_digest(self, name: str, bench: Bench, *, gate: bool = False) -> str:
        """A digest of what the bench says, the scripts it names, and how its inputs are made.

        It holds no path of this machine, so a moved project keeps what was measured.
        """
        said = msgspec.to_builtins(bench)
        for key in ("pairs", "draws", "minimum_effect", *(() if gate else ("gate",))):
            del said[key.replace("_", "-")]
        argv = self._argv(name, bench, Path("out"), "layer", gate=gate)
        texts = {path: digest(text.hex()) for path, text in runner.sources(argv).items()}
        return digest(said, texts, self.ground.values.get("cpus"), self.ground.inputs)

    def _argv(
        self, name: str, bench: Bench, out: Path, layer: str, *, gate: bool
    ) -> tuple[str, ...]:
        command = bench.gate.command if gate and bench.gate else bench.command
        where = f"stack.toml: bench.{name}.{'gate.' if gate else ''}command"
        values = {**self.ground.values, "out": str(out), "layer": layer}
        return render_all(command, values, where)

    def _roots(self, asked: Comparison, side: Side, role: Role) -> tuple[Path, Path]:
        """The arm's cache roots: compiled things by all that can matter, bytecode by layers."""
        arm = asked.arm(side)
        argv = self._argv(asked.name, asked.bench, Path("out"), "layer", gate=role == "gate")
        whole = digest(self.ground.base_key, self.ground.machine, arm.identity, arm.knobs, argv)
        caches = self.paths.engine_caches
        return caches / whole, caches / "pyc" / digest(self.ground.base_key, arm.layers_key)

    def _measure(
        self, asked: Comparison, side: Side, role: Role, pair: int | None, place: int
    ) -> Trial:
        identity = now_id()
        job = self._job(asked, side, role, identity)
        label = f"{asked.member.name}: {asked.name} {_spoken(role, pair)} {asked.arm(side).prefix}"
        self._announce(job.folder, label)
        ran = runner.run(job, self.catalogue, self._ticker(label), self.ground.outer)
        arm = asked.arm(side)
        trial = Trial(
            id=identity, key=self._key(asked, side, role, pair, place), run=self.run,
            time=now(), profile=self.ground.profile,
            bench=asked.name, bench_digest=self.bench_digest(asked.name, asked.bench),
            prefix=arm.prefix, trees=arm.trees, side=side, role=role, pair=pair, place=place,
            env=job.knobs, argv=job.argv, cache=job.caches.name, machine=self.ground.machine,
            log=str((job.folder / "log.txt").relative_to(self.paths.state)),
            **{name: getattr(ran, name) for name in ran.__struct_fields__},
        )
        self.ledger.append(trial)
        self.run_count += 1
        if trial.outcome == "blocked:wrong_files":
            raise BenchFailed(
                f"{label}: {trial.cause}",
                context=[f"log: {job.folder / 'log.txt'}"],
                hint=f"stack build --profile {trial.profile} makes the layers again",
            )
        if trial.outcome == "blocked:device_lost":
            raise BenchFailed(
                f"{label}: {trial.cause}", context=[f"log: {job.folder / 'log.txt'}"],
                hint="nothing more is run on a lost device; reset it, then run the same command",
            )
        if trial.outcome not in _NOT_AN_ANSWER:
            self._known[trial.key] = trial
        self._seconds.append(trial.seconds)
        self.emit(Said(f"{label}: {_result(trial)}, {trial.seconds:.0f} s"))
        if trial.survivors:
            left = f"{label}: ended {trial.survivors} processes that it had left running"
            self.emit(Said(left, warning=True))
        return trial

    def _announce(self, folder: Path, label: str) -> None:
        """Write beside the log which trial it is of, for who looks on (`stack watch`)."""
        told = Announced(
            label=label, done=self.done, planned=max(self.planned, self.done), each=self._each(),
        )
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ANNOUNCED).write_bytes(msgspec.json.encode(told))

    def _each(self) -> float:
        """How long a trial takes, in seconds, as the last ones did."""
        return statistics.fmean(self._seconds) if self._seconds else _FIRST_GUESS

    def _job(self, asked: Comparison, side: Side, role: Role, identity: str) -> runner.Job:
        arm, bench, gate = asked.arm(side), asked.bench, asked.bench.gate
        out = self.paths.logs / "verify" / identity
        layer = str(arm.layers[0]) if arm.layers else ""
        caches, pyc = self._roots(asked, side, role)
        what = gate if role == "gate" and gate else bench
        values = {**self.ground.values, "out": str(out), "layer": layer}
        job = runner.Job(
            id=identity,
            argv=(
                *self._argv(asked.name, bench, out, layer, gate=role == "gate"), *arm.arguments,
            ),
            knobs=render_env(arm.knobs, values, f"stack.toml: bench.{asked.name}.env"),
            layers=arm.layers, site_packages=self.ground.site_packages, python=self.ground.python,
            probe=self.ground.probe, patched=tuple(arm.patched), folder=out, caches=caches,
            files=expected_files(asked, side, self.ground.site_packages), pyc=pyc,
            limit=what.limit, stall=what.stall,
        )
        if role == "gate" and gate:
            where = f"stack.toml: bench.{asked.name}.gate.result"
            held = Path(render(gate.result, values, where)) if gate.result else None
            return msgspec.structs.replace(
                job, field=gate.field, gate_result=held, at_most=gate.at_most
            )
        result = render(bench.result, values, f"stack.toml: bench.{asked.name}.result")
        return msgspec.structs.replace(
            job, result=Path(result), metric=bench.metric, unit=bench.unit,
            log_pattern=bench.log_pattern,
        )

    def _ticker(self, label: str) -> runner.Tick:
        shown = 0.0

        def tick(seconds: float, _: int) -> None:
            nonlocal shown
            if seconds - shown < 0.5:
                return
            shown = seconds
            left = max(0.0, self._each() * (self.planned - self.done + 1) - seconds)
            elapsed = time.monotonic() - self._begun
            self.emit(Progress(
                label=label, done=self.done, total=max(self.planned, self.done),
                detail=f"{seconds:.0f} s, {_clock(elapsed)} elapsed, about {_clock(left)} left",
            ))

        return tick


def _spoken(role: Role, pair: int | None) -> str:
    return f"pair {pair}" if role == "pair" else role


def _result(trial: Trial) -> str:
    if trial.figures:
        return f"{trial.figures.value:.4g} {trial.figures.unit}"
    if trial.tokens:
        return f"tokens {trial.tokens[:12]}"
    return f"{trial.outcome}: {trial.cause}" if trial.cause else trial.outcome


def _clock(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
