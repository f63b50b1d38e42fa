"""Every shipped signature is seen, and the innermost cause is found behind the wrappers."""

from __future__ import annotations

import tomllib
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stack.bench.logs import catalogue
from stack.model.log.findings import Diagnosis
from stack.model.log.signatures import Catalogue, classify

SHIPPED = catalogue()
ENGINE = "(EngineCore pid=4711) ERROR 11-30 07:40:12 [core.py:1374] "
WORKER = "(Worker_TP0 pid=4712) ERROR 11-30 07:40:11 [multiproc_executor.py:944] "
RESULT = "Throughput: 0.14 requests/s, 103.73 total tokens/s, 34.58 output tokens/s"


def diagnose(text: str, **known: Any) -> Diagnosis:
    """Classify a text with the shipped catalogue; failed with exit code 1 unless said otherwise."""
    known.setdefault("exit_code", 1)
    return classify([text.encode()], catalogue=SHIPPED, **known)


EXAMPLES: dict[str, dict[str, str]] = tomllib.loads(
    Path(__file__).with_name("signature_examples.toml").read_text(encoding="utf-8")
)
UNSEEN = {"prompts-advance", "compiled", "shard-loaded", "graph-captured", "no-tokens"}
"""Progress and the last resort: tested below."""


def test_every_shipped_signature_has_an_example() -> None:
    assert set(EXAMPLES) | UNSEEN == {s.name for s in SHIPPED.signatures}


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("prefix", ["", ENGINE, "\x1b[0;36m(Worker pid=9)\x1b[0;0m "])
def test_signature(name: str, prefix: str) -> None:
    expected, text = EXAMPLES[name]["class"], EXAMPLES[name]["log"]
    if name == "argument" and prefix:
        prefix = ""  # a parser writes before any engine has started
    kind = expected.partition(":")[0]
    good = kind in ("ok", "degraded", "warning")
    lines = "".join(prefix + line + "\n" for line in text.splitlines())
    found = diagnose(lines + (RESULT + "\n" if good else ""), exit_code=0 if good else 1)
    if kind == "warning":
        assert found.outcome == "ok"
        assert [f.signature for f in found.findings] == [name]
        assert found.findings[0].outcome == expected
    else:
        assert found.outcome == expected
        assert found.cause is None or "pid=" not in found.cause
        if kind != "ok":
            assert found.signature == name
            assert found.line == 1
            assert found.hint
            assert found.cause
            assert "\x1b" not in found.cause


def traceback(prefix: str, *, source: str, error: str) -> str:
    """A traceback as vLLM's logger writes it: every line with its prefix."""
    lines = [
        "EngineCore failed to start.",
        "Traceback (most recent call last):",
        '  File "/x/vllm/v1/engine/core.py", line 1365, in run_engine_core',
        "    engine_core = EngineCoreProc(*args, engine_index=dp_rank, **kwargs)",
        "                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
        '  File "/x/vllm/model_executor/layers/fused_moe/cpu.py", line 60, in select_experts',
        f"    {source}",
        error,
    ]
    return "".join(prefix + line + "\n" for line in lines)


WRAPPED = (
    "Traceback (most recent call last):\n"
    '  File "/x/vllm/v1/engine/utils.py", line 1315, in wait\n'
    '    raise RuntimeError("Engine core initialization failed. "\n'
    "RuntimeError: Engine core initialization failed. See root cause above. "
    "Failed core proc(s): {'EngineCore': 1}\n"
)


def test_worker_error_behind_wrapper() -> None:
    log = traceback(ENGINE, source="raise ValueError(x)", error="ValueError: bad routing bias")
    found = diagnose(log + WRAPPED)
    assert (found.outcome, found.cause, found.line) == (
        "blocked:exception", "ValueError: bad routing bias", 8)  # fmt: skip
    assert {f.signature for f in found.findings} == {"engine-dead", "engine-init"}


def test_exception_without_message_quotes_its_source() -> None:
    log = traceback(ENGINE, source='assert scoring_func == "softmax"', error="AssertionError")
    found = diagnose(log + WRAPPED)
    assert found.cause == 'AssertionError: assert scoring_func == "softmax"'


def test_traceback_with_torchs_rank_prefix() -> None:
    log = traceback("[rank0]: ", source='assert scoring_func == "softmax"', error="AssertionError")
    bar = "\rProcessed prompts:   0%|          | 0/2 [00:00<?, ?it/s]"
    log = bar + log[log.index("[rank0]: Traceback") :]
    found = diagnose(log + bar + "\nnanobind: leaked 4 instances!\n")
    assert found.cause == 'AssertionError: assert scoring_func == "softmax"'


def test_known_message_is_taken_from_the_exception_not_from_the_source_that_raises_it() -> None:
    log = traceback(
        ENGINE,
        source='raise ValueError("No available memory for the cache blocks. "',
        error="ValueError: No available memory for the cache blocks. Try increasing x.",
    )
    found = diagnose(log + WRAPPED)
    assert found.outcome == "blocked:kv_memory"
    assert found.cause == "No available memory for the cache blocks. Try increasing x."
    assert found.line == 8


def test_assertion_known_by_its_source_line() -> None:
    log = traceback(
        WORKER,
        source="assert isinstance(self.device_communicator, CudaCommunicator)",
        error="AssertionError",
    )
    found = diagnose(log + WRAPPED)
    assert found.outcome == "blocked:graph_capture"
    assert found.line == 7


def test_mixed_tracebacks_of_two_workers() -> None:
    first = traceback(WORKER, source="f()", error="KeyError: 'w13'").splitlines(keepends=True)
    second = traceback(
        "(Worker_TP1 pid=9) ERROR 11-30 07:40:11 [x.py:1] ", source="g()", error="KeyError: 'w2'"
    ).splitlines(keepends=True)
    mixed = "".join(a + b for a, b in zip(first, second, strict=True))
    found = diagnose(mixed + WRAPPED)
    assert found.cause == "KeyError: 'w13'"
    assert [f.text for f in found.findings if f.signature == "exception"] == ["KeyError: 'w2'"]


def test_handled_traceback_is_no_cause() -> None:
    warned = traceback(
        "WARNING 11-30 07:40:11 [x.py:1] ", source="h()", error="RuntimeError: optional part"
    ).replace("EngineCore failed to start.", "cannot import an optional part")
    found = diagnose(warned + "RuntimeError: cancelled\n")
    assert (found.outcome, found.signature) == ("blocked:cancelled", "cancelled")


@pytest.mark.parametrize("code", ["-6", "-11", "None"])
def test_native_crash_of_a_worker(code: str) -> None:
    died = (
        "(EngineCore pid=2) ERROR 11-30 07:40:12 [multiproc_executor.py:315] Worker proc "
        f"VllmWorker-0 died unexpectedly (exit code: {code}), shutting down executor.\n"
    )
    silent = diagnose(died + "concurrent.futures._base.CancelledError\nRuntimeError: cancelled\n")
    assert silent.outcome == "blocked:native_crash"
    assert silent.cause is not None
    assert silent.cause.startswith(f"Worker proc VllmWorker-0 died unexpectedly (exit code: {code}")
    spoken = diagnose("malloc(): unsorted double linked list corrupted\n" + died)
    assert spoken.cause == "malloc(): unsorted double linked list corrupted"
    assert spoken.outcome == "blocked:native_crash"


def test_worker_that_ended_by_itself_is_dug_through() -> None:
    died = "Worker proc VllmWorker-0 died unexpectedly (exit code: 1), shutting down executor.\n"
    log = traceback(WORKER, source="f()", error="RuntimeError: XPU out of memory. Tried to allocate"
                    " 1.00 GiB")  # fmt: skip
    assert diagnose(log + died + WRAPPED).outcome == "blocked:oom"


@pytest.mark.parametrize(
    ("ending", "outcome"),
    [
        ({"exit_code": -11}, "blocked:native_crash"),
        ({"exit_code": 139}, "blocked:native_crash"),
        ({"exit_code": None, "signal": 6}, "blocked:native_crash"),
        ({"exit_code": -9}, "blocked:killed"),
        ({"exit_code": -15}, "blocked:interrupted"),
        ({"exit_code": 3}, "blocked:exit"),
        ({"exit_code": 0}, "blocked:no_result"),
        ({"exit_code": None}, "blocked:no_result"),
        ({"exit_code": -15, "stalled": True}, "stalled:no_progress"),
        ({"exit_code": -9, "timed_out": True}, "stalled:timeout"),
        ({"exit_code": 0, "result": True}, "ok"),
    ],
)
@pytest.mark.parametrize("log", ["", "INFO 11-30 07:40:12 [core.py:114] Initializing\n\n"])
def test_silent_ending(ending: dict[str, Any], outcome: str, log: str) -> None:
    found = diagnose(log, **ending)
    assert found.outcome == outcome
    if outcome != "ok" and log:
        assert found.cause is not None
        assert "Initializing" in found.cause


def test_result_with_a_failed_exit_is_not_ok() -> None:
    assert diagnose(RESULT, exit_code=-11).outcome == "blocked:native_crash"
    assert diagnose(RESULT, exit_code=0).outcome == "ok"
    assert diagnose(RESULT, exit_code=None).outcome == "ok"
    assert diagnose(RESULT, exit_code=0, result=False).outcome == "blocked:no_result"


def shm(times: int) -> str:
    return times * (
        "(EngineCore pid=1) INFO 11-30 07:40:12 [shm_broadcast.py:681] No available shared memory "
        "broadcast block found in 60 seconds. This typically happens when some processes are "
        "hanging.\n"
    )


def test_shm_broadcast_needs_repetition_without_progress() -> None:
    compiled = "INFO 11-30 07:44:12 [monitor.py:48] torch.compile took 200.12 s in total\n"
    boom = traceback(WORKER, source="f()", error="KeyError: 'x'")
    assert diagnose(shm(5) + compiled + RESULT, exit_code=0).outcome == "ok"
    assert diagnose(shm(5) + compiled + "bye\n").outcome == "blocked:exit"
    assert diagnose(shm(2), exit_code=1).outcome == "blocked:exit"
    assert diagnose(shm(3), exit_code=1).outcome == "stalled:shm_broadcast"
    assert diagnose(shm(1), exit_code=-15, stalled=True).outcome == "stalled:shm_broadcast"
    assert diagnose(shm(1), exit_code=None).outcome == "stalled:shm_broadcast"
    assert diagnose(compiled + shm(4) + boom, stalled=True).cause == "KeyError: 'x'"


def test_no_prompt_was_finished() -> None:
    bar = "\rProcessed prompts:   0%|          | 0/1 [00:00<?, ?it/s, est. speed input: 0.00]"
    assert diagnose(bar, exit_code=-15, stalled=True).outcome == "stalled:no_tokens"
    assert diagnose(bar, exit_code=None).outcome == "stalled:no_tokens"
    done = bar + "\rProcessed prompts: 100%|####| 1/1 [00:01<00:00]\n" + RESULT
    good = diagnose(done, exit_code=0)
    assert (good.outcome, good.findings) == ("ok", ())


def test_rpc_timeout_is_dug_through() -> None:
    log = "TimeoutError: RPC call to sample_tokens timed out.\n"
    lost = "RuntimeError: UR_RESULT_ERROR_DEVICE_LOST\n"
    assert diagnose(log).outcome == "stalled:rpc_timeout"
    assert diagnose(log + lost, stalled=True).outcome == "blocked:device_lost"


def test_quality_before_degraded() -> None:
    log = "XPU Graph doesn't support capture communication ops, disabling cudagraph_mode.\n"
    assert diagnose(log + "token hash differs\n" + RESULT, exit_code=0).outcome == "quality:hash"


def test_message_behind_a_progress_bar() -> None:
    log = "Loading shards:  50%|##  | 1/2 [00:01<00:01](EngineCore pid=3) ERROR 11-30 07:40:12 "
    found = diagnose(log + "[x.py:1] RuntimeError: wedged")
    assert found.cause == "RuntimeError: wedged"


def test_extra_signatures_win_by_name() -> None:
    mine = {
        "signature": [
            {"name": "fan", "class": "blocked:fan", "pattern": "fan (?P<cause>stopped)",
             "priority": 99},
            {"name": "device-lost", "class": "warning:device", "pattern": "wedged"},
        ]
    }  # fmt: skip
    extended = catalogue(mine)
    log = [b"GPU is wedged\n", b"the fan stopped\n"]
    found = classify(log, catalogue=extended, exit_code=1)
    assert (found.outcome, found.cause, found.line) == ("blocked:fan", "stopped", 2)
    assert [f.outcome for f in found.findings] == ["warning:device"]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"name": "x", "class": "blocked:a", "pattern": "("}, "signature x: bad pattern"),
        ({"name": "x", "class": "broken", "pattern": "a"}, "signature x: no such class: broken"),
        ({"name": "x", "class": "ok"}, "signature x: .*pattern"),
        ({"name": "x", "class": "ok", "pattern": "a", "colour": 1}, "signature x: .*colour"),
        (3, "signature ?"),
    ],
)
def test_bad_signature_is_named(table: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Catalogue.load({"signature": [table]})


def test_memory_stays_bounded() -> None:
    line = b"(EngineCore pid=1) ERROR 11-30 07:40:12 [x.py:1] KeyError: %d\n"
    trace = b"Traceback (most recent call last):\n  File x\nKeyError: %d\n"

    def endless() -> Iterator[bytes]:
        for i in range(20_000):
            yield line % i + trace % i

    tracemalloc.start()
    found = classify(endless(), catalogue=SHIPPED, exit_code=1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.lines == 80_000
    assert len(found.findings) < 100
    assert peak < 16 << 20
