"""The benchmark wrapper's command, environment and outcomes, with a real program as the engine."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "bench_minimax_xpu.py"
KNOBS = {
    "DTYPE": "--dtype",
    "INPUT_LEN": "--input-len",
    "OUTPUT_LEN": "--output-len",
    "MAX_MODEL_LEN": "--max-model-len",
    "MAX_BATCHED_TOKENS": "--max-num-batched-tokens",
    "MAX_NUM_SEQS": "--max-num-seqs",
    "NUM_PROMPTS": "--num-prompts",
    "TP": "--tensor-parallel-size",
    "PP": "--pipeline-parallel-size",
    "DECODE_CONTEXT_PARALLEL_SIZE": "--decode-context-parallel-size",
    "SPECULATIVE_CONFIG": "--speculative-config",
    "KV_CACHE_DTYPE": "--kv-cache-dtype",
    "KV_CACHE_MEMORY_BYTES": "--kv-cache-memory-bytes",
    "ATTENTION_BACKEND": "--attention-backend",
    "BLOCK_SIZE": "--block-size",
}
SWITCHES = {
    "NO_ENABLE_PREFIX_CACHING": "--no-enable-prefix-caching",
    "ASYNC_ENGINE": "--async-engine",
    "DISABLE_DETOKENIZE": "--disable-detokenize",
}
PASSED_ON = (
    "CCL_TOPO_P2P_ACCESS",
    "CCL_TOPO_FABRIC_VERTEX_CONNECTION_CHECK",
    "VLLM_XPU_ENABLE_XPU_GRAPH",
)


def bench(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        env={"PATH": os.environ["PATH"], "MODEL": "/models/minimax", **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def printed(*arguments: str, **env: str) -> list[str]:
    done = bench("--print", *arguments, **env)
    assert done.returncode == 0, done.stderr
    return shlex.split(done.stdout)


def option(words: list[str], name: str) -> str:
    return words[words.index(name) + 1]


def test_the_defaults_are_the_measured_profile() -> None:
    assert printed() == shlex.split(
        "env -u CCL_ZE_IPC_EXCHANGE VLLM_XPU_USE_LLM_SCALER_MOE=0 vllm bench throughput"
        " --model /models/minimax --dtype float16 --input-len 512 --output-len 128"
        " --max-model-len 2048 --max-num-batched-tokens 1024 --max-num-seqs 1 --num-prompts 1"
        " --tensor-parallel-size 4 --pipeline-parallel-size 1"
    )


@pytest.mark.parametrize(("knob", "to"), KNOBS.items())
def test_each_knob_is_a_variable_and_a_flag(knob: str, to: str) -> None:
    flag = "--" + knob.lower().replace("_", "-")
    assert option(printed(**{knob: "7"}), to) == "7"
    assert option(printed(flag, "8"), to) == "8"
    assert option(printed(flag, "8", **{knob: "7"}), to) == "8"


@pytest.mark.parametrize(("knob", "to"), SWITCHES.items())
def test_each_switch_is_a_variable_and_a_flag(knob: str, to: str) -> None:
    flag = "--" + knob.lower().replace("_", "-")
    assert to not in printed()
    assert to not in printed(**{knob: "0"})
    assert to in printed(**{knob: "1"})
    assert to in printed(flag)


@pytest.mark.parametrize("name", PASSED_ON)
def test_environment_knobs_reach_the_engine_only_when_given(name: str) -> None:
    assert not any(word.startswith(name) for word in printed())
    assert f"{name}=0" in printed(**{name: "0"})


def test_the_kernel_and_the_ipc_exchange() -> None:
    words = printed(USE_LLM_SCALER_MOE="1", CCL_IPC="pidfd")
    assert "VLLM_XPU_USE_LLM_SCALER_MOE=1" in words
    assert "CCL_ZE_IPC_EXCHANGE=pidfd" in words
    assert "-u" not in words
    assert bench(CCL_IPC="pigeon").returncode == 2


def test_json_survives_the_shell_and_extra_arguments_follow() -> None:
    spec = '{"method":"ngram_gpu","num_speculative_tokens":4}'
    words = printed("--speculative-config", spec, "--", "--enforce-eager")
    assert option(words, "--speculative-config") == spec
    assert words[-1] == "--enforce-eager"


def test_a_model_is_required() -> None:
    done = bench("--print", MODEL="")
    assert done.returncode == 2
    assert "set MODEL" in done.stderr


@pytest.fixture
def engine(tmp_path: Path):
    """Write a program that stands for the engine; return the ENGINE command."""

    def write(body: str) -> str:
        program = tmp_path / "engine.py"
        program.write_text(textwrap.dedent(body))
        return shlex.join([sys.executable, str(program)])

    return write


WORKS = """
    import json, os, sys
    print("ipc", os.environ.get("CCL_ZE_IPC_EXCHANGE"))
    print("Throughput: 0.14 requests/s, 103.73 total tokens/s, 34.58 output tokens/s")
    path = sys.argv[sys.argv.index("--output-json") + 1]
    result = {"elapsed_time": 4.0, "num_requests": 1, "total_num_tokens": 640}
    json.dump(result | {"requests_per_second": 0.25, "tokens_per_second": 160.0}, open(path, "w"))
"""


def test_a_run_ends_with_one_object_of_unrounded_rates(engine, tmp_path: Path) -> None:
    log = tmp_path / "log"
    kept = tmp_path / "result.json"
    done = bench(
        "--log",
        str(log),
        "--result",
        str(kept),
        ENGINE=engine(WORKS),
        CCL_ZE_IPC_EXCHANGE="sockets",
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert kept.read_text() == done.stdout
    assert result["outcome"] == "ok"
    assert result["output_tokens_per_second"] == 32.0
    assert result["total_tokens_per_second"] == 160.0
    assert result["knobs"]["OUTPUT_LEN"] == "128"
    assert result["env"]["CCL_ZE_IPC_EXCHANGE"] is None
    assert "ipc None" in done.stderr
    assert log.read_text() == done.stderr


def test_without_a_result_file_the_printed_rates_count(engine) -> None:
    body = 'print("Throughput: 0.14 requests/s, 103.73 total tokens/s, 34.58 output tokens/s")'
    result = json.loads(bench(ENGINE=engine(body)).stdout)
    assert (result["outcome"], result["output_tokens_per_second"]) == ("ok", 34.58)


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        ("raise RuntimeError('cancelled')", "RuntimeError: cancelled"),
        ("print('nothing measured')", "nothing measured"),
        ("", "no output"),
        ("print('Throughput: 1 requests/s, 2 total tokens/s, 3 output tokens/s'); exit(3)", "Thr"),
    ],
)
def test_a_failed_engine_cannot_tell(engine, body: str, cause: str) -> None:
    done = bench(ENGINE=engine(body))
    assert done.returncode == 125
    result = json.loads(done.stdout)
    assert result["outcome"] == "blocked"
    assert result["cause"].startswith(cause)
    assert "output_tokens_per_second" not in result


def test_an_engine_that_is_not_there_cannot_tell() -> None:
    done = bench(ENGINE="/nowhere/vllm bench throughput")
    assert done.returncode == 125
    assert "/nowhere/vllm" in json.loads(done.stdout)["cause"]


def test_a_hung_engine_and_its_workers_are_ended(engine, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    body = f"""
        import subprocess, sys, time
        worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        open({str(pid)!r}, "w").write(str(worker.pid))
        time.sleep(600)
    """
    done = bench("--timeout", "5", ENGINE=engine(body))
    assert done.returncode == 125
    assert json.loads(done.stdout)["outcome"] == "stalled"
    status = Path(f"/proc/{pid.read_text()}/status")
    assert not status.exists() or "State:\tZ" in status.read_text()
