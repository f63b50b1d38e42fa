"""Run vLLM's throughput benchmark on MiniMax-M2 INT4 with one knob for each thing we vary.

Each knob is an environment variable and a flag; a flag wins. `--print` shows the exact command
and environment and runs nothing. A run sends the engine's output to stderr (and `--log FILE`) and
ends with one JSON object on stdout. What stands after `--` goes to vLLM as it is.

Exit codes: 0 measured, 2 usage, 125 the engine failed or hung, so the run cannot tell.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, NamedTuple

CANNOT_TELL = 125
THROUGHPUT = re.compile(
    r"Throughput: (?P<requests_per_second>[0-9.]+) requests/s, "
    r"(?P<total_tokens_per_second>[0-9.]+) total tokens/s, "
    r"(?P<output_tokens_per_second>[0-9.]+) output tokens/s"
)


class Knob(NamedTuple):
    """One thing to vary: `to` is a vLLM option, or NAME= for an environment variable."""

    env: str
    to: str
    default: str | None
    help: str
    switch: bool = False

    @property
    def flag(self) -> str:
        """The flag of this script."""
        return "--" + self.env.lower().replace("_", "-")


KNOBS = (
    Knob("MODEL", "--model", None, "checkpoint directory or name"),
    Knob("USE_LLM_SCALER_MOE", "VLLM_XPU_USE_LLM_SCALER_MOE=", "0", "1: u4 kernel for decode"),
    Knob("DTYPE", "--dtype", "float16", "float16 or bfloat16"),
    Knob("INPUT_LEN", "--input-len", "512", "prompt tokens"),
    Knob("OUTPUT_LEN", "--output-len", "128", "generated tokens"),
    Knob("MAX_MODEL_LEN", "--max-model-len", "2048", "context; 1024 and 4096 were slower"),
    Knob("MAX_BATCHED_TOKENS", "--max-num-batched-tokens", "1024", "tokens of one step"),
    Knob("MAX_NUM_SEQS", "--max-num-seqs", "1", "requests at once"),
    Knob("NUM_PROMPTS", "--num-prompts", "1", "requests in all"),
    Knob("TP", "--tensor-parallel-size", "4", "tensor-parallel ranks"),
    Knob("PP", "--pipeline-parallel-size", "1", "pipeline stages"),
    Knob("DECODE_CONTEXT_PARALLEL_SIZE", "--decode-context-parallel-size", None, "ranks"),
    Knob("CCL_IPC", "CCL_ZE_IPC_EXCHANGE=", "default", "default leaves it unset; pidfd diagnoses"),
    Knob("CCL_TOPO_P2P_ACCESS", "CCL_TOPO_P2P_ACCESS=", None, "0: USM instead of P2P"),
    Knob(
        "CCL_TOPO_FABRIC_VERTEX_CONNECTION_CHECK",
        "CCL_TOPO_FABRIC_VERTEX_CONNECTION_CHECK=",
        None,
        "0: no fabric check",
    ),
    Knob("VLLM_XPU_ENABLE_XPU_GRAPH", "VLLM_XPU_ENABLE_XPU_GRAPH=", None, "1: ask for XPU graphs"),
    Knob("SPECULATIVE_CONFIG", "--speculative-config", None, "JSON for speculative decoding"),
    Knob("KV_CACHE_DTYPE", "--kv-cache-dtype", None, "dtype of the KV cache"),
    Knob("KV_CACHE_MEMORY_BYTES", "--kv-cache-memory-bytes", None, "fixed KV cache, such as 256M"),
    Knob("ATTENTION_BACKEND", "--attention-backend", None, "such as TRITON_ATTN"),
    Knob("BLOCK_SIZE", "--block-size", None, "tokens of a KV block"),
    Knob("NO_ENABLE_PREFIX_CACHING", "--no-enable-prefix-caching", None, "switch", switch=True),
    Knob("ASYNC_ENGINE", "--async-engine", None, "switch", switch=True),
    Knob("DISABLE_DETOKENIZE", "--disable-detokenize", None, "switch", switch=True),
)


def parse(arguments: list[str], env: Mapping[str, str]) -> argparse.Namespace:
    """Parse the command line over the environment's knobs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    for knob in KNOBS:
        text = f"{knob.env}: {knob.help}" + (f" ({knob.default})" if knob.default else "")
        value = env.get(knob.env, knob.default)
        if knob.switch:
            on = value not in (None, "", "0")
            parser.add_argument(
                knob.flag, dest=knob.env, default=on, action="store_true", help=text
            )
        else:
            parser.add_argument(knob.flag, dest=knob.env, default=value or None, help=text)
    parser.add_argument(
        "--engine",
        default=env.get("ENGINE", "vllm bench throughput"),
        help="ENGINE: the benchmark's command (vllm bench throughput)",
    )
    parser.add_argument("--timeout", type=float, default=float(env.get("TIMEOUT_S", "3600")))
    parser.add_argument("--log", type=Path, help="also write the engine's output here")
    parser.add_argument("--result", type=Path, help="also write the JSON object here")
    parser.add_argument("--print", action="store_true", help="show what would run, run nothing")
    parser.add_argument("extra", nargs="*", help="after --: for vLLM as they are")
    options = parser.parse_args(arguments)
    if not options.MODEL:
        parser.error("no model: give --model or set MODEL")
    if options.CCL_IPC not in ("default", "pidfd", "drmfd", "sockets"):
        parser.error(f"CCL_IPC: {options.CCL_IPC!r} is not default, pidfd, drmfd or sockets")
    return options


def command_of(options: argparse.Namespace) -> list[str]:
    """Return the engine's command line without its result file."""
    command = shlex.split(options.engine)
    for knob in KNOBS:
        value = getattr(options, knob.env)
        if not knob.to.startswith("--") or value in (None, False):
            continue
        command += [knob.to] if knob.switch else [knob.to, value]
    return [*command, *options.extra]


def settings_of(options: argparse.Namespace) -> dict[str, str | None]:
    """Return the environment variables that the run fixes; None stands for unset."""
    settings: dict[str, str | None] = {}
    for knob in KNOBS:
        value = getattr(options, knob.env)
        if knob.to.endswith("=") and value is not None:
            unset = knob.env == "CCL_IPC" and value == "default"
            settings[knob.to.removesuffix("=")] = None if unset else value
    return settings


def shown(command: list[str], settings: Mapping[str, str | None]) -> str:
    """Return the run as one line for a shell."""
    words = ["env", *(f"-u {name}" for name, value in settings.items() if value is None)]
    words += [f"{name}={shlex.quote(value)}" for name, value in settings.items() if value]
    return " ".join([*words, shlex.join(command)])


def run(
    command: list[str], env: Mapping[str, str], timeout: float, log: Path | None
) -> tuple[int | None, list[str]]:
    """Run the engine in its own process group; return (exit code, lines), None when it hung."""
    engine = subprocess.Popen(
        command,
        env=env,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    lines: list[str] = []

    def copy(source: IO[str], to: IO[str] | None) -> None:
        for line in source:
            lines.append(line.rstrip("\n"))
            sys.stderr.write(line)
            if to:
                to.write(line)

    with log.open("w", encoding="utf-8") if log else open(os.devnull, "w") as kept:
        assert engine.stdout is not None
        reader = threading.Thread(target=copy, args=(engine.stdout, kept))
        reader.start()
        code: int | None
        try:
            code = engine.wait(timeout)
        except subprocess.TimeoutExpired:
            code = None
        # Workers may outlive the engine and keep its output open
        with contextlib.suppress(ProcessLookupError):
            os.killpg(engine.pid, signal.SIGKILL)
        engine.wait()
        reader.join()
    return code, lines


def judged(code: int | None, lines: list[str], timeout: float) -> dict[str, object]:
    """Return the outcome, its cause and the rates that the engine printed."""
    if code is None:
        return {"outcome": "stalled", "cause": f"no end after {timeout:g} s"}
    found = [match for line in lines if (match := THROUGHPUT.search(line))]
    if code or not found:
        errors = [line for line in lines if re.search(r"\b\w*(Error|Exception)\b", line)]
        last = next((line for line in reversed(lines) if line.strip()), "")
        why = (errors or [last])[-1].strip()
        return {"outcome": "blocked", "cause": why or "no output", "exit_code": code}
    return {"outcome": "ok", **{name: float(v) for name, v in found[-1].groupdict().items()}}


def exact(result: Path, options: argparse.Namespace) -> dict[str, float]:
    """Return unrounded rates from vLLM's own result file, where it wrote one."""
    if not result.exists():
        return {}
    read = json.loads(result.read_text())
    output = int(options.OUTPUT_LEN) * int(read["num_requests"])
    return {
        "elapsed_s": read["elapsed_time"],
        "requests_per_second": read["requests_per_second"],
        "total_tokens_per_second": read["tokens_per_second"],
        "output_tokens_per_second": output / read["elapsed_time"],
    }


def main() -> int:
    """Print or run one configuration."""
    options = parse(sys.argv[1:], os.environ)
    command, settings = command_of(options), settings_of(options)
    if options.print:
        print(shown(command, settings))
        return 0
    env = {name: value for name, value in os.environ.items() if name not in settings}
    env |= {name: value for name, value in settings.items() if value is not None}
    with tempfile.TemporaryDirectory(prefix="bench-minimax-") as scratch:
        result = Path(scratch) / "throughput.json"
        try:
            code, lines = run(
                [*command, "--output-json", str(result)], env, options.timeout, options.log
            )
        except OSError as error:
            judgement: dict[str, object] = {"outcome": "blocked", "cause": str(error)}
        else:
            judgement = judged(code, lines, options.timeout)
        if judgement["outcome"] == "ok":
            judgement |= exact(result, options)
    knobs = {knob.env: getattr(options, knob.env) for knob in KNOBS}
    found = json.dumps({**judgement, "command": command, "env": settings, "knobs": knobs})
    if options.result:
        options.result.write_text(found + "\n", encoding="utf-8")
    print(found)
    return 0 if judgement["outcome"] == "ok" else CANNOT_TELL


if __name__ == "__main__":
    sys.exit(main())
