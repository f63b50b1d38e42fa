"""Ends what carries a mark as soon as the process that started us is gone, however it ended.

Run as `python -m stack.host.guard NAME=VALUE` with a pipe as standard input, whose other end only
the guarded process holds: the kernel closes it with the process, also on SIGKILL.
"""

from __future__ import annotations

import os
import sys

from stack.host import survivors


def main(mark: str) -> None:
    """Wait for the end of standard input, then kill what carries the mark."""
    if os.fork():  # nobody's child, so that nobody who ends our parent's children ends us
        os._exit(0)
    os.setsid()
    while os.read(0, 1):
        pass
    survivors.end(mark.encode() + b"\0")


if __name__ == "__main__":
    main(sys.argv[1])
