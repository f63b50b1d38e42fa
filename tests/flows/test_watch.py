"""`stack watch` beside a real verify and a real screen, on a terminal and on a pipe."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.flows.test_screen import Lab
from tests.support import processes
from tests.support.cli import Stack
from tests.support.processes import until
from tests.support.repo import RepoBuilder
from tests.support.toy_engine import Toy


@pytest.fixture
def lab(toy: Toy, stack: Stack) -> Lab:
    made = Lab(toy)
    stack.ok("build")
    return made


class Terminal:
    """`stack watch` on a terminal of 24 lines of 100 columns."""

    def __init__(self, stack: Stack, *arguments: str) -> None:
        self.ours, theirs = pty.openpty()
        self.process = processes.start(
            stack.argv("watch", *arguments), cwd=stack.folder, stdin=theirs, stdout=theirs,
            stderr=theirs, env={**os.environ, "TERM": "xterm", "LINES": "24", "COLUMNS": "100"},
        )
        os.close(theirs)
        self.text = ""

    def read(self, seconds: float = 0.1) -> str:
        """What has come so far, without colours and cursor movements."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and select.select([self.ours], [], [], left)[0]:
            try:
                self.text += os.read(self.ours, 65536).decode("utf-8", "replace")
            except OSError:  # the other end is closed
                break
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.text)


def test_a_page_follows_a_verify_and_ends_with_it(lab: Lab) -> None:
    nobody = lab.stack("watch")
    assert (nobody.code, "nobody measures in this project now" in nobody.err) == (2, True)
    text = lab.config.read_text().replace('TOY_SECONDS = "0"', 'TOY_SECONDS = "3"')
    lab.config.write_text(text)
    verify = lab.stack.start("verify", "time-the-steps", "--pairs", "1")
    until(lambda: lab.stack("watch", "--json").code == 0)
    page = Terminal(lab.stack, "--interval", "0.2")
    until(lambda: "about " in page.read() and "trial " in page.read())
    shown = page.read()
    assert f"stack verify of tiny, process {verify.pid}" in shown
    assert re.search(r"time-the-steps: softmax (gate|warm-up|pair 1) \S+, \d+ s", shown)
    assert "keep-the-heap-whole" in shown
    until(lambda: "softmax gate time-the-steps: ok" in page.read(), said=page.read)
    data = lab.stack.ok("watch", "--json").json["data"]
    assert data["process"] == verify.pid
    assert [rung["name"] for rung in data["rungs"]] == [
        "keep-the-heap-whole", "route-sigmoid", "time-the-steps",
    ]
    assert data["planned"] >= data["done"] >= 1
    assert verify.wait(120) == 0
    page.read(5)
    assert page.process.wait(30) == 0
    assert "stack verify of tiny" in page.read().rpartition("\x1b")[2]


def test_a_page_of_a_screen_and_ctrl_c_ends_only_the_page(lab: Lab) -> None:
    lab.set('control.TOY_SECONDS = "2"')
    screen = lab.stack.start("screen", "batch")
    until(lambda: len(lab.trials()) >= 2)
    once = lab.stack.ok("watch", "--once").out
    assert f"stack screen batch of tiny, process {screen.pid}" in once
    for name in ("TOY_BATCH=8", "TOY_BATCH=16", "--block-size 32"):
        assert name in once
    assert "knobs gate" in once
    page = Terminal(lab.stack)
    until(lambda: "TOY_BATCH=8: knobs" in page.read())
    page.process.send_signal(signal.SIGINT)
    page.read(3)
    assert page.process.wait(30) == 0
    assert screen.poll() is None
