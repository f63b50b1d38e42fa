"""The machine and the software under a trial, so that only like is compared with like."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from stack.host import process

_CPUINFO = Path("/proc/cpuinfo")
_MEMINFO = Path("/proc/meminfo")
_GOVERNORS = Path("/sys/devices/system/cpu")
# What may differ between two trials of one machine without making them another experiment.
_NOT_IDENTITY = ("kernel",)


class Fingerprint(msgspec.Struct, frozen=True, kw_only=True):
    """What a trial ran on. `memory_mib` is the machine's, `cpus` what this process may use."""

    machine: str
    cpu: str
    cores: int
    cpus: int
    memory_mib: int
    kernel: str
    governor: str | None
    gpus: tuple[str, ...]
    python: str
    packages: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Sixteen hex digits, the same as long as trials may be compared.

        The kernel's release is recorded but left out: a reboot must not orphan a history.
        """
        said = {k: v for k, v in msgspec.to_builtins(self).items() if k not in _NOT_IDENTITY}
        return hashlib.sha256(msgspec.json.encode(said, order="sorted")).hexdigest()[:16]


def read(python: str, packages: Sequence[str]) -> Fingerprint:
    """Describe this machine with a base's Python version and its `name==version` packages.

    Of the packages those are kept that decide what is computed: engines, torch, kernel libraries.
    """
    return Fingerprint(
        machine=platform.machine(), cpu=cpu_model(), cores=os.cpu_count() or 1,
        cpus=len(os.sched_getaffinity(0)), memory_mib=_memory(), kernel=platform.release(),
        governor=_governor(), gpus=gpus(), python=python,
        packages=tuple(name for name in packages if _DECIDING.match(name)),
    )


_DECIDING = re.compile(
    r"(vllm|torch|triton|numpy|intel|onemkl|mkl|nvidia|flashinfer|xgrammar|transformers|auto.round)"
    r"[\w.-]*==", re.IGNORECASE,
)


def cpu_model() -> str:
    """The name that the processor gives itself, or its architecture."""
    try:
        text = _CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor() or platform.machine()
    found = re.search(r"^(?:model name|Model|cpu)\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else platform.machine()


def _memory() -> int:
    try:
        found = re.search(r"^MemTotal:\s+(\d+) kB", _MEMINFO.read_text(), re.MULTILINE)
    except OSError:
        found = None
    if found:
        return int(found[1]) // 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20


def _governor() -> str | None:
    """The frequency governors of the cores, None where the system does not say (in most clouds)."""
    found = set()
    for path in _GOVERNORS.glob("cpu[0-9]*/cpufreq/scaling_governor"):
        try:
            found.add(path.read_text().strip())
        except OSError:
            continue
    return ",".join(sorted(found)) or None


def gpus() -> tuple[str, ...]:
    """Accelerators with driver, identity and power limit, as far as the vendors' tools tell.

    Empty without a tool. Two cards of one model differ, and a card under another limit is another.
    """
    found: list[str] = []
    if shutil.which("nvidia-smi"):
        asked = "name,driver_version,memory.total,uuid,power.limit"
        code, out, _ = process.capture(
            ["nvidia-smi", f"--query-gpu={asked}", "--format=csv,noheader"], timeout=20
        )
        if code == 0:
            found += [line.strip() for line in out.decode("utf-8", "replace").splitlines() if line]
    if shutil.which("xpu-smi"):
        for listed in _xpu_smi("discovery").get("device_list", ()):
            number = str(listed.get("device_id", ""))
            card = {
                **_xpu_smi("discovery", "-d", number), **listed, **_xpu_smi("config", "-d", number),
            }
            said = [str(card[key]) for key in _XPU_FACTS if card.get(key) not in (None, "")]
            if "power_limit" in card:
                said.append(f"{card['power_limit']} W")
            found.append(", ".join(said))
    return tuple(found)


_XPU_FACTS = ("device_name", "driver_version", "uuid")


def _xpu_smi(*words: str) -> dict[str, Any]:
    """What `xpu-smi WORDS -j` prints; nothing where it fails or prints something else."""
    code, out, _ = process.capture(["xpu-smi", *words, "-j"], timeout=20)
    try:
        said = msgspec.json.decode(out) if code == 0 else {}
    except msgspec.DecodeError:
        said = {}
    return said if isinstance(said, dict) else {}
