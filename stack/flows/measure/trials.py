"""Asks for trials: one that the ledger has answered already is found again, not run."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from stack.bench import runner
from stack.bench.render import render, render_all, render_env
from stack.errors import BenchFailed
from stack.flows.events import Emit, Progress, Said
from stack.flows.measure.arms import Comparison, expected_files
from stack.flows.measure.book import Book
from stack.flows.measure.executor import Executor, HostLost, Local, Place
from stack.flows.measure.trial_words import clock, shown, spoken
from stack.model.log.signatures import Catalogue
from stack.model.measure.trial import Role, Side, Trial, digest
from stack.model.project.settings import Bench
from stack.store.ledger import Ledger
from stack.store.paths import Paths
from stack.store.stamps import now, now_id

_PAIR_WITHIN = 900.0
_ENDS = {
    "blocked:wrong_files": "stack build --profile {} makes the layers again",
    "blocked:device_lost":
        "nothing more is run on a lost device; reset it, then run the same command",
}
"""Outcomes after which nothing more is measured, and what to do."""
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
    """Trials of one run of verify in one place: on this machine, or on a host of a cluster."""

    def __init__(
        self, ground: Ground, paths: Paths, ledger: Ledger, catalogue: Catalogue, emit: Emit, *,
        fresh: bool = False, book: Book | None = None, executor: Executor | None = None,
    ) -> None:
        self.ground, self.paths, self.ledger, self.emit = ground, paths, ledger, emit
        self.book = book or Book(ledger, ground.profile, emit, fresh=fresh)
        self.executor = executor or Local(
            Place(
                python=ground.python, site_packages=ground.site_packages, probe=ground.probe,
                logs=paths.logs, caches=paths.engine_caches, values=ground.values,
            ),
            catalogue, ground.outer,
        )
        self.run = self.book.run
        self._begun = time.monotonic()

    def ask(
        self, asked: Comparison, side: Side, role: Role, *, pair: int | None = None, place: int = 0
    ) -> Trial:
        """The trial that answers this question, run now unless the ledger holds it."""
        self.book.count()
        held = self.find(asked, side, role, pair=pair, place=place)
        if held is not None:
            return held
        key = self._key(asked, side, role, pair, place)
        # A warm-up is for the caches of its host; what else two sessions want, one measures.
        with self.book.asking(f"{key} {self.executor.place.host if role == 'warm-up' else ''}"):
            held = self.find(asked, side, role, pair=pair, place=place)
            return held or self._measure(asked, side, role, pair, place)

    def find(
        self, asked: Comparison, side: Side, role: Role, *, pair: int | None = None, place: int = 0
    ) -> Trial | None:
        """The trial in the ledger; a warm-up only while the caches that it warmed still stand."""
        trial = self.book.answer(self._key(asked, side, role, pair, place))
        if trial is None or not trial.ran or role != "warm-up":
            return trial
        return None if self.executor.is_cold(*self._roots(asked, side, role)) else trial

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
        return self.book.ran_before(one, other)

    def drop_stale(self, cells: Sequence[Trial | None]) -> None:
        """Forget what there is of a pair or round whose rest would come much later, or elsewhere.

        Both sides of a pair run on one host.
        """
        there = [trial for trial in cells if trial is not None]
        if not there:
            return
        hosts = {trial.host for trial in there}
        if len(there) == len(cells):
            stale = len(hosts) > 1
        else:
            last = max(datetime.fromisoformat(trial.time) for trial in there)
            late = (datetime.now(UTC) - last).total_seconds() > _PAIR_WITHIN
            stale = late or hosts != {self.executor.place.host}
        if stale:
            for trial in there:
                self.book.forget(trial.key)

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
        self, name: str, bench: Bench, out: Path, layer: str, *, gate: bool,
        values: Mapping[str, object] | None = None,
    ) -> tuple[str, ...]:
        """A command as it stands in `stack.toml`, with the names of this machine or of another."""
        command = bench.gate.command if gate and bench.gate else bench.command
        where = f"stack.toml: bench.{name}.{'gate.' if gate else ''}command"
        named = {**(values or self.ground.values), "out": str(out), "layer": layer}
        return render_all(command, named, where)

    def _roots(self, asked: Comparison, side: Side, role: Role) -> tuple[Path, Path]:
        """The arm's cache roots: compiled things by all that can matter, bytecode by layers."""
        arm = asked.arm(side)
        argv = self._argv(asked.name, asked.bench, Path("out"), "layer", gate=role == "gate")
        whole = digest(self.ground.base_key, self.ground.machine, arm.identity, arm.knobs, argv)
        caches = self.executor.place.caches
        return caches / whole, caches / "pyc" / digest(self.ground.base_key, arm.layers_key)

    def _measure(
        self, asked: Comparison, side: Side, role: Role, pair: int | None, place: int
    ) -> Trial:
        identity = now_id()
        arm, host = asked.arm(side), self.executor.place.host
        label = f"{asked.member.name}: {asked.name} {spoken(role, pair)} {arm.prefix}"
        label += f" on {host}" if host else ""
        log = self.paths.logs / "verify" / identity / "log.txt"
        self._announce(log.parent, label)
        job = self._job(asked, side, role, identity)
        try:
            ran = self.executor.run(job, log, self._ticker(label))
        except HostLost as lost:
            ran = runner.Ran(
                outcome="blocked:host_lost", cause=str(lost), cold=False, exit_code=-1
            )
            self.book.append(self._trial(asked, side, role, pair, place, job, ran, log))
            raise
        trial = self._trial(asked, side, role, pair, place, job, ran, log)
        self.book.append(trial)
        if host and trial.outcome in _ENDS:
            raise HostLost(host, f"{trial.cause}", unfit=True)
        for outcome, hint in _ENDS.items():
            if trial.outcome == outcome:
                raise BenchFailed(
                    f"{label}: {trial.cause}", context=[f"log: {log}"],
                    hint=hint.format(trial.profile),
                )
        self.emit(Said(f"{label}: {shown(trial)}, {trial.seconds:.0f} s"))
        if trial.survivors:
            left = f"{label}: ended {trial.survivors} processes that it had left running"
            self.emit(Said(left, warning=True))
        return trial

    def _trial(
        self, asked: Comparison, side: Side, role: Role, pair: int | None, place: int,
        job: runner.Job, ran: runner.Ran, log: Path,
    ) -> Trial:
        arm = asked.arm(side)
        return Trial(
            id=job.id, key=self._key(asked, side, role, pair, place), run=self.run,
            time=now(), profile=self.ground.profile,
            bench=asked.name, bench_digest=self.bench_digest(asked.name, asked.bench),
            prefix=arm.prefix, trees=arm.trees, side=side, role=role, pair=pair, place=place,
            env=job.knobs, argv=job.argv, cache=job.caches.name, machine=self.ground.machine,
            host=self.executor.place.host, log=str(log.relative_to(self.paths.state)),
            **{name: getattr(ran, name) for name in ran.__struct_fields__},
        )

    def _announce(self, folder: Path, label: str) -> None:
        """Write beside the log which trial it is of, for who looks on (`stack watch`)."""
        book = self.book
        told = Announced(
            label=label, done=book.done, planned=max(book.planned, book.done), each=book.each
        )
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ANNOUNCED).write_bytes(msgspec.json.encode(told))

    def _job(self, asked: Comparison, side: Side, role: Role, identity: str) -> runner.Job:
        arm, bench, gate = asked.arm(side), asked.bench, asked.bench.gate
        there = self.executor.place
        out = there.logs / "verify" / identity
        layers = self.executor.layers(arm.layers)
        layer = str(layers[0]) if layers else ""
        caches, pyc = self._roots(asked, side, role)
        what = gate if role == "gate" and gate else bench
        argv = self._argv(
            asked.name, bench, out, layer, gate=role == "gate", values=there.values
        )
        values = {**there.values, "out": str(out), "layer": layer}
        job = runner.Job(
            id=identity, argv=(*argv, *arm.arguments),
            knobs=render_env(arm.knobs, values, f"stack.toml: bench.{asked.name}.env"),
            layers=layers, site_packages=there.site_packages, python=there.python,
            probe=there.probe, patched=tuple(arm.patched), folder=out, caches=caches,
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
            book = self.book
            left = max(0.0, book.each * (book.planned - book.done + 1) - seconds)
            elapsed = time.monotonic() - self._begun
            self.emit(Progress(
                label=label, done=book.done, total=max(book.planned, book.done),
                detail=f"{seconds:.0f} s, {clock(elapsed)} elapsed, about {clock(left)} left",
            ))

        return tick
