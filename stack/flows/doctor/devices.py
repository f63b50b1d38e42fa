"""Devices and their memory, as the vendors' own programs tell; each answer says who told."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from stack.host.process import capture
from stack.model.hardware import GIB, Hardware


class Devices(msgspec.Struct, frozen=True, kw_only=True):
    """What a program saw: names of devices, GiB of the smallest one's memory, the driver."""

    by: str
    names: tuple[str, ...]
    memory: float | None = None
    driver: str | None = None


def look(hardware: Hardware) -> list[Devices]:
    """What each program that is here says, the one that knows most first; [] where none is."""
    programs: dict[str, tuple[Callable[[], Devices | None], ...]] = {
        "xpu": (_xpu_smi, _sycl_ls, _clinfo, _render_nodes), "cuda": (_nvidia_smi,),
        "cpu": (_processor,),
    }
    return [found for ask in programs[hardware.device] if (found := ask()) is not None]


def _said(*argv: str) -> str | None:
    """The output of a program, None where it is absent or fails."""
    if shutil.which(argv[0]) is None:
        return None
    code, out, _ = capture(argv, timeout=60)
    return out.decode("utf-8", "replace") if code == 0 else None


def _xpu_smi() -> Devices | None:
    text = _said("xpu-smi", "discovery", "-j")
    if text is None:
        return None
    listed = [one for one in _json(text).get("device_list", []) if isinstance(one, dict)]
    sizes: list[float] = []
    for one in listed:
        more = _json(_said("xpu-smi", "discovery", "-d", str(one.get("device_id")), "-j") or "")
        try:
            sizes.append(float(more["memory_physical_size_byte"]) / GIB)
        except (KeyError, TypeError, ValueError):
            continue
    names = tuple(str(one.get("device_name", "?")) for one in listed)
    return Devices(by="xpu-smi", names=names, memory=min(sizes, default=None))


def _json(text: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _sycl_ls() -> Devices | None:
    text = _said("sycl-ls")
    if text is None:
        return None
    names = re.findall(r"^\[(?:ext_oneapi_)?level_zero:gpu\S*\s*(.*)$", text, re.MULTILINE)
    return Devices(by="sycl-ls", names=tuple(name.strip() for name in names))


def _clinfo() -> Devices | None:
    text = _said("clinfo", "-l")
    if text is None:
        return None
    names = re.findall(r"Device #\d+:\s*(.*Intel.*(?:Graphics|GPU|Arc).*)$", text, re.MULTILINE)
    return Devices(by="clinfo", names=tuple(name.strip() for name in names))


def _render_nodes() -> Devices | None:
    nodes = _nodes()
    if not nodes:
        return None
    usable = [node for node in nodes if os.access(node, os.R_OK | os.W_OK)]
    return Devices(by="/dev/dri", names=tuple(usable))


def _nvidia_smi() -> Devices | None:
    query = "--query-gpu=name,memory.total,driver_version"
    text = _said("nvidia-smi", query, "--format=csv,noheader,nounits")
    if text is None:
        return None
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    rows = [row for row in rows if len(row) == 3]
    sizes = [float(row[1]) / 1024 for row in rows if row[1].isdigit()]
    return Devices(
        by="nvidia-smi", names=tuple(row[0] for row in rows), memory=min(sizes, default=None),
        driver=rows[0][2] if rows else None,
    )


def _processor() -> Devices | None:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    cores = len(os.sched_getaffinity(0))
    return Devices(by="the system", names=("processor",) * cores, memory=total)


def _nodes() -> list[str]:
    return sorted(map(str, Path("/dev/dri").glob("renderD*")))


def forbidden_nodes() -> Iterator[str]:
    """Render nodes that are there but that this user may not open."""
    for node in _nodes():
        if not os.access(node, os.R_OK | os.W_OK):
            yield node
