"""Graph capture with a communicator that has no capture context of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from cpu_engine import applied
from vllm import envs
from vllm.distributed.device_communicators.cuda_communicator import CudaCommunicator
from vllm.distributed.device_communicators.xpu_communicator import XpuCommunicator
from vllm.distributed.parallel_state import GraphCaptureContext, GroupCoordinator

SWITCH = "VLLM_XPU_GRAPH_NOOP_COMM_CAPTURE"
PATCHED = applied("graph-comm-noop")


@pytest.fixture(autouse=True)
def _streams(monkeypatch: pytest.MonkeyPatch) -> None:
    # vLLM puts XPU's streams into these names; here there are none at all.
    monkeypatch.delenv(SWITCH, raising=False)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: "default")
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())


class CustomAllReduce:
    """Counts how often its capture context is entered."""

    entered = 0

    @contextmanager
    def capture(self) -> Iterator[None]:
        self.entered += 1
        yield


def make(cls: type | None, **attributes: Any) -> Any:
    if cls is None:
        return None
    communicator = cls.__new__(cls)
    communicator.__dict__.update(attributes)
    return communicator


def capture(communicator: Any) -> Any:
    """Enter graph_capture of a group with `communicator`; gives what it yields."""
    group = GroupCoordinator.__new__(GroupCoordinator)
    group.device_communicator = communicator
    stream: Any = SimpleNamespace(waits=[])
    stream.wait_stream = stream.waits.append
    context = GraphCaptureContext(stream)
    with group.graph_capture(context) as given:
        assert given is context
    assert stream.waits == ["default"]
    return given


@pytest.mark.parametrize("value", [None, "0"])
def test_off_the_assertion_stays(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if value is not None:
        monkeypatch.setenv(SWITCH, value)
    with pytest.raises(AssertionError):
        capture(make(XpuCommunicator))


def test_on_another_communicator_is_captured_without_a_context(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(SWITCH, "1")
    if PATCHED:
        capture(make(XpuCommunicator))
    else:
        with pytest.raises(AssertionError):
            capture(make(XpuCommunicator))


@pytest.mark.parametrize("value", ["0", "1"])
def test_cudas_communicator_keeps_its_capture_context(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH, value)
    all_reduce = CustomAllReduce()
    capture(make(CudaCommunicator, ca_comm=all_reduce))
    assert all_reduce.entered == 1
    capture(make(CudaCommunicator, ca_comm=None))
    capture(None)


@pytest.mark.skipif(not PATCHED, reason="the switch comes with the patch")
def test_the_switch_is_registered_and_off_by_default() -> None:
    assert envs.VLLM_XPU_GRAPH_NOOP_COMM_CAPTURE is False
    assert SWITCH in envs.compile_factors()
