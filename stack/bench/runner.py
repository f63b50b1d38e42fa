"""Runs one trial: a fresh process in an empty folder, its files proved first, its end explained."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from stack.bench import environment, evidence, logs, metrics, patience
from stack.host import process, survivors
from stack.model.log.signatures import Catalogue
from stack.model.measure import outputs
from stack.model.measure.trial import Figures

PROBE_LIMIT = 120.0
FILES, LOADED = "files.json", "loaded.jsonl"
Tick = Callable[[float, int], None]


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a trial needs; `limit` and `stall` are seconds.

    `files` maps a path below the import path to the sha256 that it must have there, None for
    absent; `patched` are those that the layers hold. Of a gate `field` names the value in its
    JSON object, which stands in `gate_result` or in the log, and `at_most` bounds it; of a bench
    `metric` is the one in the file `result`, which the engine's own figure in the log must match.
    """

    id: str
    argv: tuple[str, ...]
    knobs: Mapping[str, str]
    layers: tuple[Path, ...]
    site_packages: Path
    python: Path
    probe: Path
    files: Mapping[str, str | None]
    patched: tuple[str, ...]
    folder: Path
    caches: Path
    pyc: Path
    limit: float
    stall: float
    field: str | None = None
    result: Path | None = None
    metric: str = ""
    unit: str = ""
    log_pattern: str | None = None
    gate_result: Path | None = None
    at_most: float | None = None


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """How a trial ended; see `Trial` for the words."""

    outcome: str
    cause: str | None = None
    cause_line: int | None = None
    hint: str | None = None
    figures: Figures | None = None
    tokens: str | None = None
    cold: bool
    proved: int = 0
    loaded: tuple[str, ...] = ()
    processes: int = 0
    exit_code: int
    timed_out: bool = False
    stalled: bool = False
    survivors: int = 0
    seconds: float = 0.0
    processor_seconds: float = 0.0
    max_rss_kib: int = 0
    load: float | None = None
    engine: Mapping[str, Any] = {}


def is_cold(caches: Path, pyc: Path) -> bool:
    """Whether no trial has yet ended well with these cache roots."""
    return not (_used(caches).exists() and _used(pyc).exists())


def run(job: Job, catalogue: Catalogue, on_tick: Tick, outer: Mapping[str, str]) -> Ran:
    """Run a job and leave nothing of it running, whatever happens, also when interrupted.

    The log is `log.txt` in the job's folder. A trial whose files are not the expected ones is
    refused: before it starts where the probe sees it, afterwards where the engine's bytecode does.
    """
    work = job.folder / "empty"
    for folder in (work, job.caches, job.pyc):
        folder.mkdir(parents=True, exist_ok=True)
    cold = is_cold(job.caches, job.pyc)
    # Engines put sockets there, whose paths may have 107 bytes: never below the project.
    temp = Path(tempfile.mkdtemp(prefix="stack-"))
    mark = f"{environment.MARK}={job.id}\0".encode()
    env = environment.compose(
        outer, knobs=job.knobs, layers=job.layers, caches=job.caches, pyc=job.pyc, temp=temp,
        mark=job.id, programs=job.python.parent, watch=_watch(job),
    )
    log = job.folder / "log.txt"
    left = 0
    try:
        wrong = _prove(job, env, work)
        if wrong is not None:
            log.write_text(wrong + "\n")
            return Ran(outcome="blocked:wrong_files", cause=wrong, cold=cold, exit_code=1)
        load = os.getloadavg()[0]
        spent = _spent()
        done = _run(job, env, work, mark, on_tick, cold=cold)
    finally:
        left = survivors.end(mark)
        shutil.rmtree(temp, ignore_errors=True)
    ran = _explain(job, done, log, catalogue)
    seen, elsewhere = evidence.imported(job.pyc, job.layers, job.site_packages, job.patched)
    said = evidence.reported(job.folder / LOADED)
    seen = tuple(name for name in job.patched if name in {*seen, *(one.name for one in said)})
    stray = evidence.wrong(said, job.files)
    if elsewhere or stray:
        cause = f"imported from outside the layer: {elsewhere[0]}" if elsewhere else f"{stray}"
        ran = {"outcome": "blocked:wrong_files", "cause": cause}
    if ran["outcome"] == "ok":
        for root in (job.caches, job.pyc):
            _used(root).touch()
    return Ran(
        **ran, cold=cold, proved=len(job.files), loaded=seen,
        processes=len({one.pid for one in said}), exit_code=done.exit_code,
        timed_out=done.timed_out, stalled=done.stalled, survivors=left, seconds=done.seconds,
        processor_seconds=_spent() - spent,
        max_rss_kib=done.max_rss_kib, load=load,
    )


def _run(
    job: Job, env: Mapping[str, str], work: Path, mark: bytes, on_tick: Tick, *, cold: bool
) -> process.Finished:
    """The process itself. A cold one may be silent for as long as it computes."""
    log = job.folder / "log.txt"
    if not cold:
        return process.run(
            job.argv, log=log, env=env, cwd=work, limit=job.limit, stall=job.stall,
            on_tick=on_tick,
        )
    started = time.monotonic()
    watch = patience.Watch(job.stall, mark, on_tick)
    try:
        return process.run(
            job.argv, log=log, env=env, cwd=work, limit=job.limit, on_tick=watch
        )
    except patience.Hangs:
        return process.Finished(
            argv=job.argv, exit_code=-signal.SIGTERM, seconds=time.monotonic() - started,
            stalled=True,
        )


def _spent() -> float:
    """The processor time of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _watch(job: Job) -> environment.Watch | None:
    """Have the processes report what they load, where there is something to be told apart."""
    if not job.files:
        return None
    return environment.Watch(job.folder / FILES, job.folder / LOADED)


def _used(root: Path) -> Path:
    return root / ".used"


def _prove(job: Job, env: Mapping[str, str], work: Path) -> str | None:
    """Ask a process in the trial's own surroundings which files it would load; what is wrong."""
    if not job.files:
        return None
    expected = job.folder / FILES
    expected.write_bytes(msgspec.json.format(msgspec.json.encode(job.files)))
    log = job.folder / "probe.txt"
    argv = [str(job.python), "-P", str(job.probe), str(expected)]
    done = process.run(argv, log=log, env=env, cwd=work, limit=PROBE_LIMIT)
    if done.ok:
        return None
    try:
        said = metrics.last_object(log, "wrong")
    except metrics.NoFigures:
        return f"the probe failed with exit code {done.exit_code}, see probe.txt"
    return f"not the files of this arm: {', '.join(said['wrong'][:5])}"


def _explain(
    job: Job, done: process.Finished, log: Path, catalogue: Catalogue
) -> dict[str, Any]:
    """The outcome class with its cause, and the figures where there are any."""
    found: dict[str, Any] = {}
    missing: metrics.NoFigures | None = None
    try:
        found = _gate(job, log) if job.field else _figures(job, log)
    except metrics.NoFigures as why:
        missing = why
    read = logs.read_log(
        logs.blocks(log), catalogue, exit_code=done.exit_code, timed_out=done.timed_out,
        stalled=done.stalled, result=bool(found),
    )
    diagnosis = read.diagnosis
    spoiled = found.pop("spoiled", None)
    outcome, cause = diagnosis.outcome, diagnosis.cause
    line, hint = diagnosis.line, diagnosis.hint
    if spoiled is not None and not done.timed_out and not done.stalled:
        outcome, cause, line, hint = spoiled, "the gate says so of its own output", None, None
    elif missing is not None and done.ok and outcome in ("blocked:no_result", "ok"):
        outcome, cause, line = missing.outcome, missing.cause, None
    found = found if outcome == "ok" else {}
    engine = {name: said for name, said in msgspec.to_builtins(read.facts).items() if said}
    return {
        "outcome": outcome, "cause": cause, "cause_line": line, "hint": hint, "engine": engine,
        **found,
    }


def _figures(job: Job, log: Path) -> dict[str, Any]:
    assert job.result is not None, "a job is a gate or has a result file"
    value = metrics.read(job.result, job.metric)
    logged = None
    if job.log_pattern is not None:
        logged = metrics.agree(value, metrics.logged(log, job.log_pattern))
    figures = Figures(metric=job.metric, unit=job.unit, value=value, logged=logged)
    return {"figures": figures}


def _gate(job: Job, log: Path) -> dict[str, Any]:
    """The gate's value; `nan`, `repeat_equal`, `degenerate` or its bound can make it red."""
    assert job.field is not None, "a gate names its field"
    if job.gate_result is None:
        said = metrics.last_object(log, job.field)
    else:
        read = metrics.document(job.gate_result)
        said = read if isinstance(read, dict) else {}
    value = metrics.at(said, job.field)
    if value is None:
        raise metrics.NoFigures("blocked:no_result", f"it has nothing at `{job.field}`")
    found: dict[str, Any] = {"tokens": outputs.text_of(value)}
    if said.get("nan") is True or not outputs.finite(value):
        found["spoiled"] = "quality:nan"
    elif said.get("repeat_equal") is False:
        found["spoiled"] = "quality:determinism"
    elif said.get("degenerate") is True:
        found["spoiled"] = "quality:degenerate"
    elif job.at_most is not None and not _at_most(value, job.at_most):
        found["spoiled"] = "quality:tolerance"
    return found


def _at_most(value: Any, bound: float) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and bool(value <= bound)


def sources(argv: Sequence[str]) -> dict[str, bytes]:
    """The scripts and settings that a command line names: their text is part of the bench."""
    found = {}
    for word in argv[1:]:
        path = Path(word)
        if path.suffix in (".py", ".sh", ".json", ".toml", ".txt") and path.is_file():
            found[path.name] = path.read_bytes()
    return found
