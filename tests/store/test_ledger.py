"""The ledger: nothing finished is lost, nothing half written is believed."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import time
from pathlib import Path

import msgspec
import pytest

from stack.errors import SchemaTooNew
from stack.model.measure.trial import Machine, Trial
from stack.store.ledger import Ledger


def machine(name: str) -> Machine:
    return Machine(id=name, time="2026-11-30T08:00:00Z", facts={"cpu": name})


def test_what_was_appended_is_read_in_order(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    for name in ("a", "b", "c"):
        ledger.append(machine(name))
    warnings: list[str] = []
    assert [found.id for found in ledger.machines(warnings.append)] == ["a", "b", "c"]
    assert list(ledger.trials(warnings.append)) == []
    assert warnings == []


def test_a_torn_last_line_is_skipped_and_never_rewritten(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.append(machine("a"))
    path = tmp_path / "machines.jsonl"
    torn = path.read_bytes() + msgspec.json.encode(machine("b"))[:-9]
    path.write_bytes(torn)
    warnings: list[str] = []
    assert [found.id for found in ledger.machines(warnings.append)] == ["a"]
    assert warnings == [f"{path}:2: a record that was not written to its end is left out"]
    ledger.append(machine("c"))
    assert path.read_bytes().startswith(torn)
    assert [found.id for found in ledger.machines(warnings.append)] == ["a", "c"]


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    (tmp_path / "trials.jsonl").write_bytes(b'{"record":"trial","schema":99,"what":1}\n')
    with pytest.raises(SchemaTooNew, match=r"trials\.jsonl:1: schema 99"):
        list(Ledger(tmp_path).trials(lambda text: None))


def test_a_record_of_another_kind_is_not_a_trial(tmp_path: Path) -> None:
    data = msgspec.json.encode(machine("a"))
    (tmp_path / "trials.jsonl").write_bytes(data + b"\n")
    warnings: list[str] = []
    assert list(Ledger(tmp_path).trials(warnings.append)) == []
    assert len(warnings) == 1
    assert Trial.__struct_config__.tag == "trial"


def _write(folder: Path, name: str, count: int) -> None:
    ledger = Ledger(folder)
    for number in range(count):
        ledger.append(machine(f"{name}-{number}-" + "x" * 5000))


def test_two_writers_do_not_mix(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write, args=(tmp_path, name, 40)) for name in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    warnings: list[str] = []
    found = [record.id for record in Ledger(tmp_path).machines(warnings.append)]
    assert warnings == []
    assert len(found) == 80
    for name in "ab":
        mine = [int(text.split("-")[1]) for text in found if text.startswith(name)]
        assert mine == list(range(40))


def test_killing_the_writer_loses_nothing_that_was_finished(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    ledger = Ledger(tmp_path)
    for round_ in range(10):
        writer = context.Process(target=_write, args=(tmp_path, f"r{round_}", 100_000))
        writer.start()
        while not (tmp_path / "machines.jsonl").exists():  # a slow machine is only beginning
            time.sleep(0.01)
        time.sleep(0.03)
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        lines = (tmp_path / "machines.jsonl").read_bytes().split(b"\n")[:-1]
        seen = sum(line.endswith(b"}") for line in lines)  # one that was cut off is no record
        ledger.append(machine(f"after-{round_}"))
        found = [record.id for record in ledger.machines(lambda text: None)]
        assert len(found) >= seen
        assert found[-1] == f"after-{round_}"


def _write_on_a_full_disk(folder: Path, room: int, refused: object) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    size = (folder / "machines.jsonl").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + room, size + room))
    try:
        Ledger(folder).append(machine("does-not-fit"))
    except OSError:
        refused.set()  # type: ignore[attr-defined]


@pytest.mark.parametrize("room", [0, 10])
def test_a_full_disk_refuses_the_record_and_keeps_the_others(tmp_path: Path, room: int) -> None:
    ledger = Ledger(tmp_path)
    ledger.append(machine("a"))
    context = multiprocessing.get_context("fork")
    refused = context.Event()
    writer = context.Process(target=_write_on_a_full_disk, args=(tmp_path, room, refused))
    writer.start()
    writer.join()
    assert refused.is_set()
    ledger.append(machine("b"))
    warnings: list[str] = []
    assert [found.id for found in ledger.machines(warnings.append)] == ["a", "b"]
    assert len(warnings) == (1 if room else 0)
