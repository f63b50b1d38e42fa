"""Time small all-reduces between processes of one host, at a decode step's payload sizes.

Runs in the engine's Python: torch and the standard library. XCCL where torch has it, else NCCL
where CUDA is, else gloo. Before any timing every rank checks one sum. With XCCL the exchange of
IPC handles is forced to `pidfd` unless `--ccl-ipc default` is given: with oneCCL's own default a
stand-alone probe was seen to hang beside an engine that works with it.

Exit codes: 0 measured, 1 a sum was wrong, 125 nothing could be measured (a rank failed or hung).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

CANNOT_TELL = 125
WRONG_SUM = 3


class Payload(NamedTuple):
    """One all-reduce: its name, number of elements and torch dtype by name."""

    name: str
    elements: int
    dtype: str


PAYLOADS = (
    Payload("minimax_hidden_fp16", 3072, "float16"),
    Payload("minimax_hidden_fp32", 3072, "float32"),
    Payload("small_20kb_fp32", 5120, "float32"),
)


def backend_of(torch: Any, wanted: str | None) -> tuple[str, str]:
    """Return (torch.distributed backend, device type), `wanted` or the best there is."""
    xccl = getattr(torch.distributed, "is_xccl_available", lambda: False)()
    devices = {"xccl": "xpu", "nccl": "cuda", "gloo": "cpu"}
    if wanted:
        return wanted, devices[wanted]
    if xccl and torch.xpu.is_available():
        return "xccl", "xpu"
    if torch.distributed.is_nccl_available() and torch.cuda.is_available():
        return "nccl", "cuda"
    return "gloo", "cpu"


def measure(torch: Any, payload: Payload, device: str, warmup: int, repeats: int) -> dict[str, Any]:
    """Time one payload on this rank: each call to its end (ms), and the mean of a burst (ms)."""
    world = torch.distributed.get_world_size()
    rank = torch.distributed.get_rank()
    dtype = getattr(torch, payload.dtype)
    tensor = torch.full((payload.elements,), float(rank + 1), dtype=dtype, device=device)
    torch.distributed.all_reduce(tensor)
    if not bool((tensor == world * (world + 1) / 2).all()):
        sys.exit(WRONG_SUM)
    wait = getattr(torch, device).synchronize
    tensor.zero_()  # sums of ones would overflow FP16 while we repeat

    def call() -> float:
        begin = time.perf_counter()
        torch.distributed.all_reduce(tensor)
        wait()
        return (time.perf_counter() - begin) * 1e3

    for _ in range(warmup):
        call()
    torch.distributed.barrier()
    times = [call() for _ in range(repeats)]
    torch.distributed.barrier()
    begin = time.perf_counter()
    for _ in range(repeats):
        torch.distributed.all_reduce(tensor)
    wait()
    burst = (time.perf_counter() - begin) * 1e3 / repeats
    return {
        **payload._asdict(),
        "bytes": tensor.numel() * tensor.element_size(),
        "median_ms": statistics.median(times),
        "mean_ms": statistics.fmean(times),
        "burst_mean_ms": burst,
    }


def work(options: argparse.Namespace) -> None:
    """Be one rank; rank 0 writes what it measured as JSON to `--rank-result`."""
    import torch
    import torch.distributed

    torch.set_num_threads(1)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend, kind = backend_of(torch, options.backend)
    device = kind if kind == "cpu" else f"{kind}:{rank}"
    if kind != "cpu":
        getattr(torch, kind).set_device(rank)
    torch.distributed.init_process_group(backend, rank=rank, world_size=world)
    results = [
        measure(torch, payload, kind, options.warmup, options.repeats) for payload in PAYLOADS
    ]
    if rank == 0:
        name = getattr(torch, kind).get_device_name(0) if kind != "cpu" else "cpu"
        found = {"backend": backend, "device": device, "device_name": name, "results": results}
        Path(options.rank_result).write_text(json.dumps({**found, "torch": torch.__version__}))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def free_port() -> int:
    """Return a TCP port of the loopback interface that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def rank_environment(options: argparse.Namespace, rank: int, port: int) -> dict[str, str]:
    """Return the environment of one rank."""
    env = dict(os.environ)
    env.pop("CCL_ZE_IPC_EXCHANGE", None)
    if options.ccl_ipc != "default":
        env["CCL_ZE_IPC_EXCHANGE"] = options.ccl_ipc
    env |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(options.processes)}
    return env | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}


def run_ranks(options: argparse.Namespace, result: Path) -> str | None:
    """Run all ranks to their end; return why nothing was measured, or None."""
    port = free_port()
    command = [sys.executable, "-P", __file__, *sys.argv[1:], "--rank-result", str(result)]
    ranks = [
        subprocess.Popen(
            command,
            env=rank_environment(options, rank, port),
            start_new_session=True,
            stdout=sys.stderr,
        )
        for rank in range(options.processes)
    ]
    until = time.monotonic() + options.timeout
    try:
        # A rank that failed leaves the others waiting for it, so the first failure ends all.
        while any(rank.poll() is None for rank in ranks):
            failed = [rank.returncode for rank in ranks if rank.returncode]
            if failed:
                return f"a rank ended with exit code {failed[0]}"
            if time.monotonic() > until:
                return f"no end after {options.timeout:g} s"
            time.sleep(0.02)
    finally:
        for rank in ranks:
            if rank.poll() is None:
                os.killpg(rank.pid, signal.SIGKILL)
                rank.wait()
    failed = [rank.returncode for rank in ranks if rank.returncode]
    return f"a rank ended with exit code {failed[0]}" if failed else None


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--processes", type=int, default=4, help="ranks on this host (4)")
    parser.add_argument("--backend", choices=["xccl", "nccl", "gloo"], help="default: the best")
    parser.add_argument("--warmup", type=int, default=50, help="calls before timing (50)")
    parser.add_argument("--repeats", type=int, default=500, help="timed calls of each kind (500)")
    parser.add_argument("--ccl-ipc", choices=["pidfd", "default"], default="pidfd")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for all (300)")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--rank-result", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main() -> int:
    """Start the ranks, or be one of them."""
    options = parse(sys.argv[1:])
    if options.rank_result:
        work(options)
        return 0
    with tempfile.TemporaryDirectory(prefix="probe-allreduce-") as scratch:
        result = Path(scratch) / "rank0.json"
        why = run_ranks(options, result)
        found = {} if why else json.loads(result.read_text())
    wrong = why is not None and why.endswith(f"exit code {WRONG_SUM}")
    outcome = "wrong_sum" if wrong else "blocked" if why else "ok"
    for one in found.get("results", []):
        print(
            f"{one['name']}, {one['elements']} elements, {one['bytes']} bytes: "
            f"median {one['median_ms']:.6f} ms, mean {one['mean_ms']:.6f} ms, "
            f"burst mean {one['burst_mean_ms']:.6f} ms",
            file=sys.stderr if options.json else sys.stdout,
        )
    if options.json:
        print(json.dumps({"outcome": outcome, "cause": why, "ranks": options.processes, **found}))
    if why:
        print(f"probe_allreduce: {why}", file=sys.stderr)
        return 1 if wrong else CANNOT_TELL
    return 0


if __name__ == "__main__":
    sys.exit(main())
