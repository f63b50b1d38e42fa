"""An installer's log is turned into a reason, a hint and what was downloaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from stack.host.venv import explain, pins, pip_fetched, uv_fetched
from tests.host.tiny_wheels import make_wheel

PIP = """Looking in indexes: https://pypi.org/simple
Collecting tiny-flake==1.0
  Downloading tiny_flake-1.0-py3-none-any.whl.metadata (1.3 kB)
  Downloading tiny_flake-1.0-py3-none-any.whl (120.5 MB)
Collecting other
  Using cached other-2.0-py3-none-any.whl (1.7 MB)
Processing /opt/wheels/third-3.0-py3-none-any.whl
  Downloading https://index.example/whl/fourth-4.0%2Bcpu-py3-none-any.whl (9 kB)
"""


def test_what_pip_downloaded_is_counted_once_with_the_size_on_disk(tmp_path: Path) -> None:
    size = 0
    for name in ("tiny_flake-1.0", "other-2.0", "third-3.0", "fourth-4.0+cpu"):
        wheel = make_wheel(tmp_path, *name.split("-"), {})
        if name[:2] in ("ti", "fo"):
            size += wheel.stat().st_size
    found = pip_fetched(PIP, tmp_path)
    assert (found.count, found.size) == (2, size)
    assert pins(tmp_path) == ("fourth==4.0+cpu", "other==2.0", "third==3.0", "tiny-flake==1.0")


def test_what_uv_prepared() -> None:
    log = "Resolved 4 packages in 1s\nDownloading a (1.5MiB)\nDownloading b (1.0GiB)\n"
    found = uv_fetched(f"{log} Downloaded a\nPrepared 4 packages in 2s\n")
    assert (found.count, found.size) == (4, 3 * 2**19 + 2**30)
    nothing = uv_fetched("Resolved 4 packages in 1s\nInstalled 4 packages in 1ms\n")
    assert (nothing.count, nothing.size) == (0, 0)


@pytest.mark.parametrize(
    ("log", "reason", "hint"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
         "the disk is full", "free some space"),
        ("ERROR: No matching distribution found for torch==2.13.0+cpu\n",
         "there is no torch==2.13.0+cpu", "check `packages`"),
        ("error: Failed to fetch: `https://pypi.org/simple/x/`\n  Caused by: dns error: failed",
         "the package index cannot be reached", "check the network"),
        ("The virtual environment was not created because ensurepip is not\navailable.",
         "this Python cannot make virtual environments", "apt install python3-venv"),
        ("error: No solution found\n  cause: Because there is no version of tiny==9 and you",
         "there is no tiny==9", "check `packages`"),
        ("error: No solution found\n  cause: Because tiny was not found in the cache and you need",
         "there is no tiny", "check `packages`"),
        ("error: Failed to parse: `a b`\n  cause: x", "not a requirement: a b", "correct `pack"),
        ("ERROR: Invalid requirement: 'a b'", "not a requirement: a b", "correct `packages`"),
        ("one\nERROR: something new\ntwo", "ERROR: something new", None),
        ("", "no output", None),
    ],
)
def test_reasons(log: str, reason: str, hint: str | None) -> None:
    found, next_step = explain(log)
    assert found == reason
    assert (next_step or "").startswith(hint or "")
    assert (next_step is None) == (hint is None)
