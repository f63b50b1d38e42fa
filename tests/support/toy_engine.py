"""A project whose engine is a package of a few lines and behaves as real ones do on a bad day."""

from __future__ import annotations

import contextlib
import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.host.tiny_wheels import make_wheel
from tests.support.cli import Stack
from tests.support.repo import RepoBuilder

CORE = """
    import os, time
    from toy import speed

    def worker():
        os.write(2, b"free(): invalid size\\n")
        os.abort()

    def select(scoring):
        assert scoring == "softmax"

    def run(scoring):
        select(scoring)
        time.sleep(float(os.environ.get("TOY_SECONDS", "0")))
        hold = os.environ.get("TOY_HOLD")
        while hold and os.path.exists(hold):
            open(f"{hold}-{os.getpid()}", "w").close()
            time.sleep(0.05)
        if os.fork() == 0:
            worker()
        if os.wait()[1]:
            print("ERROR Worker proc VllmWorker-0 died unexpectedly, shutting down executor.")
            raise RuntimeError("cancelled")
        return speed.rate()
"""
SPEED = """
    import os

    def rate():
        return 100.0 + os.getpid() % 3 / 100
"""
ENGINE = """
    import json, sys
    from toy import core
    scoring, out = sys.argv[1:]
    rate = core.run(scoring)
    if out == "gate":
        print(json.dumps({"sha256": "feed" * 16, "repeat_equal": True}))
    else:
        print(f"Throughput: 1.00 requests/s, {rate:.2f} total tokens/s, 5.00 output tokens/s")
        json.dump({"rate": rate}, open(out, "w"))
"""
TOML = """schema = 1
[defaults]
upstream = "toy"
profile = "tiny"
[upstream.toy]
git = "{url}"
packages = ["src/toy"]
[profile.tiny]
packages = ["toy-engine==1.0"]
lines = ["toy/1.0"]
"""
BENCH = """
[bench.{name}]
command = ["{{{{ python }}}}", "{{{{ root }}}}/engine.py", "{name}", "{{{{ out }}}}/result.json"]
metric = "rate"
unit = "tok/s"
minimum-effect = 0.02
log-pattern = 'Throughput: .* ([0-9.]+) total tokens/s'
pairs = 2
limit = {limit}
stall = {limit}
env = {{ TOY_SECONDS = "{seconds}", TOY_HOLD = "{hold}" }}
[bench.{name}.gate]
command = ["{{{{ python }}}}", "{{{{ root }}}}/engine.py", "{name}", "gate"]
field = "sha256"
"""
SERIES = {
    "keep-the-heap-whole": 'bench = ["softmax"]\nclaim = "unblocked"\n',
    "route-sigmoid": 'bench = ["sigmoid"]\nclaim = "unblocked"\n',
    "time-the-steps": 'bench = ["softmax"]\nclaim = "same"\nenv = { TOY_TIMING = "1" }\n',
}


def text(code: str) -> bytes:
    return textwrap.dedent(code).lstrip().encode()


def bench_of(name: str, seconds: float = 0, hold: Path | None = None) -> str:
    """A bench in TOML; its trials wait while the file `hold` is there."""
    limit = 240.0 if hold else 30.0
    return BENCH.format(name=name, seconds=seconds, hold=hold or "", limit=limit)


class Toy:
    """Three patches: two make a model run, one must cost nothing."""

    def __init__(self, stack: Stack, upstream: RepoBuilder, links: Path) -> None:
        self.stack, self.url = stack, upstream.url
        files = {"toy/__init__.py": b"", "toy/core.py": text(CORE), "toy/speed.py": text(SPEED)}
        make_wheel(links, "toy-engine", "1.0", files)
        upstream.commit("begin", {f"src/{name}": data for name, data in files.items()})
        upstream.git("tag", "begin")
        whole = text(CORE).replace(b"        worker()", b"        os._exit(0)")
        upstream.commit("Keep the heap whole", {"src/toy/core.py": whole})
        routed = whole.replace(b'assert scoring == "softmax"', b"return scoring")
        upstream.commit("Route sigmoid", {"src/toy/core.py": routed})
        timed = text(SPEED) + b'\nTIMING = os.environ.get("TOY_TIMING")\n'
        upstream.commit("Time the steps", {"src/toy/speed.py": timed})
        mails = upstream.patches("begin", links / "mails")
        (stack.folder / "engine.py").write_bytes(text(ENGINE))
        self.configure()
        stack.ok("line", "add", "toy@begin", "--label", "1.0")
        stack.ok("import", "--upstream", "toy@1.0", *mails)
        series = self.series.read_text()
        for name, said in SERIES.items():
            line = f'name = "{name}"\n'
            assert line in series, series
            series = series.replace(line, line + said)
        self.series.write_text(series)

    @property
    def series(self) -> Path:
        return self.stack.folder / "patches/toy/1.0/series.toml"

    @property
    def state(self) -> Path:
        return self.stack.folder / ".stack"

    @property
    def holding(self) -> Path:
        """While this file is there, trials that can be held go no further."""
        return self.stack.folder / "hold"

    def configure(self, *, seconds: float = 0, hold: bool = False) -> None:
        """How long a trial takes; whether it can be held."""
        where = self.holding if hold else None
        benches = "".join(bench_of(name, seconds, where) for name in ("softmax", "sigmoid"))
        (self.stack.folder / "stack.toml").write_text(TOML.format(url=self.url) + benches)

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Hold every trial that is under way or begins."""
        self.holding.touch()
        try:
            yield
        finally:
            self.holding.unlink()

    def held(self) -> set[int]:
        """The processes that were held, be they alive or not."""
        return {int(path.name.partition("-")[2]) for path in self.stack.folder.glob("hold-*")}

    def trials(self) -> list[dict[str, Any]]:
        """Every whole line of the ledger's trials."""
        path = self.state / "ledger/trials.jsonl"
        if not path.exists():
            return []
        lines = path.read_bytes().split(b"\n")[:-1]
        return [json.loads(line) for line in lines if line]
