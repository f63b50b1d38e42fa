"""What a measured value depends on besides the code: processor, memory, kernel, cards, drivers."""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stack.host import process


def facts() -> Mapping[str, Any]:
    """A machine's fingerprint as JSON values; nothing in it changes from minute to minute."""
    return {
        "host": platform.node(),
        "processor": _processor(),
        "processors": len(os.sched_getaffinity(0)),
        "memory_gib": _memory(),
        "kernel": platform.release(),
        "governor": _text(Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")),
        "cards": _nvidia() + _drm(),
    }


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _processor() -> str:
    found = re.search(r"(?m)^model name\s*:\s*(.*)$", _text(Path("/proc/cpuinfo")) or "")
    return found[1] if found else platform.machine()


def _memory() -> int | None:
    found = re.search(r"MemTotal:\s*(\d+) kB", _text(Path("/proc/meminfo")) or "")
    return round(int(found[1]) / 2**20) if found else None


def _nvidia() -> list[dict[str, str]]:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    keys = ("name", "uuid", "driver_version", "power.limit", "vbios_version")
    query = [tool, f"--query-gpu={','.join(keys)}", "--format=csv,noheader"]
    code, out, _ = process.capture(query, timeout=20)
    lines = out.decode("utf-8", "replace").splitlines() if code == 0 else []
    return [dict(zip(keys, map(str.strip, line.split(",")), strict=False)) for line in lines]


def _drm() -> list[dict[str, str]]:
    """Intel and AMD cards as the kernel names them, with the driver and its power limit."""
    cards = []
    for card in sorted(Path("/sys/class/drm").glob("card[0-9]*")):
        device = card / "device"
        vendor = _text(device / "vendor")
        if not re.fullmatch(r"card\d+", card.name) or vendor not in ("0x8086", "0x1002"):
            continue
        driver = (device / "driver").resolve().name
        limits = sorted(device.glob("hwmon/hwmon*/power*_max")) or sorted(
            device.glob("hwmon/hwmon*/power*_cap")
        )
        found = {
            "vendor": vendor, "device": _text(device / "device"), "driver": driver,
            "driver_version": _text(Path("/sys/module") / driver / "version"),
            "power.limit": _text(limits[0]) if limits else None,
        }
        cards.append({key: value for key, value in found.items() if value})
    return cards
