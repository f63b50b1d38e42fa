"""The environment of a trial: little comes from the caller, and no cache is shared between arms."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

MARK = "STACK_TRIAL"
WATCHER = Path(__file__).with_name("drivers") / "watch"
"""Holds the module that Python imports at its start."""
PROJECT_MARK = "STACK_PROJECT"

# What a person's shell may decide: where programs are, who they are, how to reach the network.
_PERSONAL = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_.*|TZ|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE"
    r"|(?i:(https?|all|no)_proxy)|HF_(HOME|TOKEN|ENDPOINT|HUB_CACHE)"
)
# What chooses devices and libraries; it may change a number, so it is part of an arm.
_MACHINE = re.compile(
    r"LD_LIBRARY_PATH|LD_PRELOAD|CUDA_VISIBLE_DEVICES|NVIDIA_VISIBLE_DEVICES|ZE_AFFINITY_MASK"
    r"|ONEAPI_DEVICE_SELECTOR|(ROCR|HIP)_VISIBLE_DEVICES"
)
# What looks like a switch of an engine: left out, and said so.
_SWITCH = re.compile(
    r"(VLLM|CCL|LLM_SCALER|TORCH|TORCHINDUCTOR|SYCL|OMP|KMP|MKL|TRITON|NCCL|UR|IGC|NEO|CUDA)_.*"
)
_CACHES = {
    "VLLM_CACHE_ROOT": "vllm", "TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton",
    "XDG_CACHE_HOME": "xdg", "XDG_CONFIG_HOME": "config", "SYCL_CACHE_DIR": "sycl",
    "NEO_CACHE_DIR": "neo", "CUDA_CACHE_PATH": "cuda", "TORCH_EXTENSIONS_DIR": "torch-extensions",
    "FLASHINFER_WORKSPACE_BASE": "flashinfer", "NUMBA_CACHE_DIR": "numba",
}


class Watch(msgspec.Struct, frozen=True):
    """A JSON file whose keys are the files to report, and where they are reported."""

    files: Path
    report: Path


def machine_part(outer: Mapping[str, str]) -> dict[str, str]:
    """What the caller's environment says about devices and libraries; it belongs to an arm."""
    return {name: outer[name] for name in sorted(outer) if _MACHINE.fullmatch(name)}


def caches(root: Path) -> dict[str, str]:
    """The compile caches of engines below `root`; not the folders that a person has for more."""
    shared = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME")
    return {name: str(root / folder) for name, folder in _CACHES.items() if name not in shared}


def left_out(outer: Mapping[str, str], knobs: Iterable[str]) -> list[str]:
    """Switches of the caller's environment that no trial will see."""
    return sorted(
        name
        for name in outer
        if _SWITCH.fullmatch(name) and not _MACHINE.fullmatch(name) and name not in set(knobs)
    )


def compose(
    outer: Mapping[str, str], *, knobs: Mapping[str, str], layers: Iterable[Path], caches: Path,
    pyc: Path, temp: Path, mark: str, programs: Path, watch: Watch | None = None,
) -> dict[str, str]:
    """Every variable of a trial's process.

    `programs` is the folder of the base environment's programs, first on PATH; `caches` is the
    arm's own root of compile caches, `pyc` of its bytecode, `temp` this trial's temporary folder.
    Modules are found in `layers`, never in the working folder, and never in the person's own
    site-packages. `knobs` win over what is kept, not over the isolation. With `watch` every Python
    process says which of some files it loads.
    """
    env = {
        name: value
        for name, value in outer.items()
        if _PERSONAL.fullmatch(name) or _MACHINE.fullmatch(name) or name == PROJECT_MARK
    }
    home = Path(outer.get("XDG_CACHE_HOME") or Path(outer.get("HOME", "/"), ".cache"))
    env["PATH"] = os.pathsep.join([str(programs), outer.get("PATH", os.defpath)])
    env.setdefault("HF_HOME", str(home / "huggingface"))
    env |= {"PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1", "PYTHONHASHSEED": "0"}
    env |= knobs
    env |= {name: str(caches / folder) for name, folder in _CACHES.items()}
    first = [WATCHER] if watch else []
    if watch:
        env |= {"STACK_WATCHED": str(watch.files), "STACK_LOADED": str(watch.report)}
    env |= {
        "PYTHONPATH": os.pathsep.join(map(str, [*first, *layers])),
        "PYTHONPYCACHEPREFIX": str(pyc),
        "PYTHONSAFEPATH": "1", "PYTHONNOUSERSITE": "1", "TMPDIR": str(temp), MARK: mark,
    }
    if not env["PYTHONPATH"]:
        del env["PYTHONPATH"]
    return env
