"""`stack doctor --profile`: the shipped profiles on machines made of small programs on PATH."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.host.tiny_wheels import make_wheel
from tests.support.cli import Stack
from tests.support.repo import RepoBuilder

ROOT = Path(__file__).parents[2]
ONEAPI = "/opt/intel/oneapi/compiler/2025.3/bin"
ICPX = "Intel(R) oneAPI DPC++/C++ Compiler {0} ({0}.20260112)\nTarget: x86_64-unknown-linux-gnu"
CARD = "Intel(R) Arc(TM) Pro B70 Graphics"
PYTHON = '{"path": "/usr/bin/python3.12", "version": "3.12.9", "platform": "linux-x86_64"}'


class Machine:
    """A machine with nothing but git, and what a test puts on it."""

    def __init__(self, stack: Stack, tmp_path: Path) -> None:
        self.stack, self.tmp = stack, tmp_path
        self.bin = tmp_path / "bin"
        self.oneapi = tmp_path / "one api/compiler/2025.3/bin"
        self.bin.mkdir()
        for name in ("git", "sh", "cat"):
            (self.bin / name).symlink_to(str(shutil.which(name)))
        text = (ROOT / "stack.toml").read_text()
        assert ONEAPI in text
        (stack.folder / "stack.toml").write_text(text.replace(ONEAPI, str(self.oneapi)))
        for name in ("patches", "scripts"):
            (stack.folder / name).symlink_to(ROOT / name)

    def program(self, name: str, said: str, *, at: Path | None = None, more: str = "") -> None:
        """A program that prints a text; `more` are lines of shell before that."""
        path = (at or self.bin) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{more}\ncat <<'END'\n{said}\nEND\n")
        path.chmod(0o755)

    def compiler(self, version: str, libsycl: int | None) -> None:
        self.program("icpx", ICPX.format(version), at=self.oneapi)
        lib = self.oneapi.parent / "lib"
        lib.mkdir(exist_ok=True)
        for old in lib.iterdir():
            old.unlink()
        if libsycl is not None:
            (lib / f"libsycl.so.{libsycl}").touch()

    def cards(self, count: int, gib: float = 32) -> None:
        listed = [{"device_id": at, "device_name": CARD} for at in range(count)]
        one = json.dumps({"memory_physical_size_byte": str(int(gib * 2**30))})
        self.program(
            "xpu-smi", json.dumps({"device_list": listed}),
            more=f"[ \"$2\" = -d ] && {{ echo '{one}'; exit; }}",
        )

    def model(self, sizes: dict[str, int], *, absent: str | None = None) -> Path:
        """A checkpoint of sparse files."""
        folder = self.tmp / "model"
        folder.mkdir()
        for name, size in sizes.items():
            with open(folder / name, "wb") as file:
                file.truncate(size)
        names = [*sizes, *([absent] if absent else [])]
        index = {"weight_map": {f"w{at}": name for at, name in enumerate(names)}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        (folder / "config.json").write_text(json.dumps({
            "num_hidden_layers": 62, "num_key_value_heads": 8, "head_dim": 128,
        }))
        return folder

    def doctor(self, profile: str, *arguments: str | Path) -> dict[str, dict[str, Any]]:
        """The checks by what they are of; the exit code says whether something is missing."""
        output = self.stack(
            "doctor", "--profile", profile, *arguments, "--json", env={"PATH": str(self.bin)}
        )
        data = output.json["data"]
        assert output.code == (1 if data["missing"] else 0), output
        assert all(one["hint"] for one in data["checks"] if one["result"] == "missing")
        return {one["what"]: one for one in data["checks"]}


@pytest.fixture
def machine(stack: Stack, tmp_path: Path) -> Machine:
    return Machine(stack, tmp_path)


def test_a_bare_machine_hears_everything_that_is_missing(machine: Machine) -> None:
    found = machine.doctor("xpu-b70")
    missing = {what for what, one in found.items() if one["result"] == "missing"}
    wanted = {"icpx", "ocloc", "checkpoint"}
    if sys.version_info[:2] != (3, 12):
        wanted |= {"python"}
    if not list(Path("/dev/dri").glob("renderD*")):
        wanted |= {"devices"}
        assert "4 needed" in found["devices"]["text"]
    assert wanted <= missing
    assert str(machine.oneapi) in found["icpx"]["text"]
    assert "2025 (not a later one)" in found["icpx"]["hint"]
    assert "ocloc" in found["ocloc"]["hint"]
    assert found["needs"]["result"] == "ok"


def test_a_whole_machine_lacks_nothing(machine: Machine) -> None:
    machine.compiler("2025.3.2", 8)
    machine.cards(4)
    for name, said in {"python3.12": PYTHON, "ocloc": "", "sycl-ls": ""}.items():
        machine.program(name, said)
    folder = machine.model({"a.safetensors": 60 * 10**9, "b.safetensors": 60 * 10**9})
    found = machine.doctor("xpu-b70", "--model", folder)
    assert {what for what, one in found.items() if one["result"] == "missing"} == set()
    assert "links libsycl.so.8, as the profile's torch loads" in found["icpx"]["text"]
    assert found["devices"]["text"] == f"4 x {CARD}, 32.0 GiB each (by xpu-smi)"
    assert "weights 120.0 GB (the size of 2 files in" in found["memory"]["text"]
    assert "KV cache 0.52 GB (2048 tokens) on 4 = 28.1 GiB each" in found["memory"]["text"]


def test_the_declared_size_is_a_formula_that_agrees_with_the_measured_28_gib(
    machine: Machine,
) -> None:
    found = machine.doctor("xpu-b70")
    text = found["memory"]["text"]
    assert "(227.4e9 x (4 bits + 16/128) + 1.28e9 x 16 bits)" in text
    assert "= 28.0 GiB each, of 29.4 usable (0.92 of 32.0 GiB, as declared)" in text
    machine.cards(4, gib=24)
    found = machine.doctor("xpu-b70")
    assert found["memory"]["result"] == "missing"
    assert "of 22.1 usable (0.92 of 24.0 GiB): 5.9 GiB too much" in found["memory"]["text"]


@pytest.mark.parametrize(
    ("version", "libsycl", "result"),
    [("2025.3.2", 8, "ok"), ("2025.3.2", None, "ok"), ("2026.0.0", 9, "missing"),
     ("2026.0.0", None, "missing"), ("2024.2.1", 7, "missing"), ("2026.0.0", 8, "ok")],
)
def test_the_compiler_must_link_what_torch_loads(
    machine: Machine, version: str, libsycl: int | None, result: str
) -> None:
    machine.compiler(version, libsycl)
    found = machine.doctor("xpu-b70")["icpx"]
    assert found["result"] == result
    assert version in found["text"]
    if result == "missing":
        links = f"libsycl.so.{libsycl}" if libsycl else "another libsycl.so"
        assert f"links {links}, but the profile's torch loads libsycl.so.8" in found["text"]
        assert "crashes at import" in found["text"]
        assert "compiler 2025 (not a later one)" in found["hint"]
        assert "[recipe.moe-int4-ops]" in found["hint"]


def test_a_missing_card_is_counted(machine: Machine) -> None:
    machine.cards(3)
    found = machine.doctor("xpu-b70")["devices"]
    assert found["result"] == "missing"
    assert found["text"].endswith("(by xpu-smi): 4 needed")


def test_other_programs_are_asked_when_xpu_smi_is_absent(machine: Machine) -> None:
    line = f"[level_zero:gpu][level_zero:{{}}] Intel(R) Level-Zero, {CARD} 20.2.0 [1.6.33578]"
    rows = [line.format(at) for at in range(4)]
    machine.program("sycl-ls", "\n".join([*rows, "[opencl:cpu][opencl:0] Intel(R) OpenCL, Xeon"]))
    found = machine.doctor("xpu-b70")
    assert found["devices"]["result"] == "ok"
    assert "(by sycl-ls)" in found["devices"]["text"]
    assert found["xpu-smi"]["result"] == "note"
    (machine.bin / "sycl-ls").unlink()
    devices = "\n".join(f" +-- Device #{at}: {CARD}" for at in range(4))
    machine.program("clinfo", f"Platform #0: Intel(R) OpenCL Graphics\n{devices}")
    found = machine.doctor("xpu-b70")
    assert "(by clinfo)" in found["devices"]["text"]
    assert found["devices"]["result"] == "ok"


def test_a_checkpoint_that_is_not_whole_is_named(machine: Machine) -> None:
    folder = machine.model({"a.safetensors": 1000}, absent="b.safetensors")
    found = machine.doctor("xpu-b70", "--model", folder)["checkpoint"]
    assert found["result"] == "missing"
    assert "1 files of its index are not there: b.safetensors" in found["text"]
    assert "no such folder" in machine.doctor("xpu-b70", "--model", "nowhere")["checkpoint"]["text"]


def test_cuda_wants_a_device_and_a_driver(machine: Machine) -> None:
    assert machine.doctor("cuda")["devices"]["result"] == "missing"
    machine.program("nvidia-smi", "NVIDIA H200, 143771, 570.86.15")
    found = machine.doctor("cuda")
    assert found["devices"]["text"] == "1 x NVIDIA H200, 140.4 GiB each (by nvidia-smi)"
    assert found["driver"]["result"] == "missing"
    machine.program("nvidia-smi", "NVIDIA H200, 143771, 580.65.06")
    assert machine.doctor("cuda")["driver"]["result"] == "ok"


def test_cpu_smoke_wants_what_every_machine_has(machine: Machine) -> None:
    found = machine.doctor("cpu-smoke")
    assert found["devices"]["result"] == "ok"
    assert "processor" in found["devices"]["text"]


def test_flags_that_mean_nothing_are_refused(machine: Machine) -> None:
    assert machine.stack("doctor", "--model", "x").code == 2
    output = machine.stack("doctor", "--profile", "xpu-b7")
    assert output.code == 2
    assert "xpu-b70" in output.err


BUILT = """schema = 1
[upstream.demo]
git = "{url}"
[profile.card]
packages = ["torch==1.0"]
lines = ["demo/1.0"]
recipes = ["part"]
[profile.card.hardware]
device = "xpu"
libsycl = 7
[recipe.part]
upstream = "demo"
reads = ["src"]
outputs = ["src"]
path = ["{oneapi}"]
toolchain = [["icpx", "--version"]]
"""


def test_a_built_base_tells_which_libsycl_its_torch_carries(
    machine: Machine, upstream: RepoBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    links = machine.tmp / "links"
    make_wheel(links, "torch", "1.0", {"torch/__init__.py": b"", "torch/lib/libsycl.so.8": b""})
    for name, text in {"NO_INDEX": "1", "FIND_LINKS": str(links)}.items():
        monkeypatch.setenv(f"PIP_{name}", text)
    monkeypatch.setenv("STACK_INSTALLER", "pip")
    folder = machine.stack.folder
    (folder / "patches").unlink()
    (folder / "stack.toml").write_text(BUILT.format(url=upstream.url, oneapi=machine.oneapi))
    machine.compiler("2025.3.2", 8)
    machine.stack.ok("line", "add", "demo@v1.0")
    assert "libsycl.so.7" in machine.doctor("card")["icpx"]["text"]
    machine.stack.ok("build", "--profile", "card", env={"PATH": os.environ["PATH"]})
    found = machine.doctor("card")
    assert found["base"]["result"] == "ok"
    assert found["icpx"]["result"] == "ok"
    assert "links libsycl.so.8, as torch in" in found["icpx"]["text"]
