"""Run vLLM's own throughput benchmark in this process, with the arguments as given.

Runs in the engine's Python, not in the tool's: only the standard library and vllm are imported.
`vllm bench throughput` is the same code behind a console script, but the script of the CPU wheel
fails (`No package metadata was found for vllm`), so the entry point is called directly. Results
go where `--output-json` says; the log line is `Throughput: ... total tokens/s, ...`.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import signal


def tell_of_crashes() -> None:
    """Have Python print where a native crash happened, and end at once.

    tvm_ffi, which vLLM loads, has a handler of its own that allocates memory: behind a corrupted
    heap it can wait for ever. Loaded first, it is replaced here; else Python's own would hand over
    to it.
    """
    with contextlib.suppress(ImportError):
        importlib.import_module("tvm_ffi")
    for fatal in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL):
        signal.signal(fatal, signal.SIG_DFL)
    faulthandler.enable()


def main() -> None:
    """Parse the command line as `vllm bench throughput` does and run it."""
    # Imported here: spawned workers import this file again and must not pay for the benchmark.
    from vllm.benchmarks import throughput
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    tell_of_crashes()
    parser = FlexibleArgumentParser(description=__doc__)
    throughput.add_cli_args(parser)
    throughput.main(parser.parse_args())


if __name__ == "__main__":  # workers are spawned and import this file
    main()
