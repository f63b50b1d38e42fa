"""What a profile needs of this machine: Python, compilers, devices, memory; each gap by name."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from stack.bench.render import render, render_all
from stack.errors import StackError
from stack.flows import needs
from stack.flows.builds import environment
from stack.flows.builds.environment import Base
from stack.flows.builds.jobs import Job, jobs
from stack.flows.doctor import devices as on_machine
from stack.flows.doctor.checks import Check
from stack.flows.doctor.memory import check_memory
from stack.host import pythons
from stack.host.process import capture
from stack.model.hardware import Hardware
from stack.model.project.settings import Profile
from stack.store.project import Project

# The release of oneAPI whose compiler links libsycl.so.N.
RELEASES = {7: 2024, 8: 2025}
GET = {
    "icpx": "install Intel's oneAPI DPC++/C++ compiler",
    "ocloc": "install intel-ocloc from Intel's graphics packages; kernels for a card need it",
    "xpu-smi": "install xpu-smi from Intel's graphics packages",
    "nvidia-smi": "install NVIDIA's driver",
    "gcc": "apt install gcc", "g++": "apt install g++", "cmake": "apt install cmake",
}


def examine_profile(project: Project, name: str, model: Path | None) -> Iterator[Check]:
    """Every check of a profile; `model` is a checkpoint's folder to weigh."""
    profile = project.settings.profile[name]
    yield _python(profile, name)
    base = None
    with suppress(StackError):  # said already: no such Python
        base = environment.find(project, environment.wanted(project, name, profile))
    yield _base(base, name)
    try:
        listed = jobs(project, name, profile)
        chosen = needs.lines_of(project, name)
    except StackError as wrong:
        yield Check(what=name, result="missing", text=wrong.message, hint=wrong.hint)
        return
    lacking = list(needs.missing(project, name, chosen))
    for one in lacking:
        yield Check(what="needs", result="missing", text=str(one), hint=one.hint)
    if not lacking:
        count = sum(len(member.needs) for _, members in chosen for member in members)
        yield _ok("needs", f"{count} between the lines of {name}, all met")
    for job in listed:
        yield from _tools(project, job, profile.hardware, base)
    found = on_machine.look(profile.hardware)
    yield from _devices(profile.hardware, found)
    memory = next((one.memory for one in found if one.memory), None)
    yield from _memory(project, name, profile, model, memory)


def _python(profile: Profile, name: str) -> Check:
    try:
        found = pythons.find(profile.python, f"profile {name}")
    except StackError as wrong:
        return Check(what="python", result="missing", text=wrong.message, hint=wrong.hint)
    return _ok("python", f"{found.version} at {found.path} for {profile.python}")


def _base(base: Base | None, name: str) -> Check:
    if base is None:
        return Check(
            what="base", result="note", text="not built yet", hint=f"stack build --profile {name}"
        )
    return _ok("base", f"{base.venv}, torch {base.record.torch or '(none)'}")


def _tools(project: Project, job: Job, hardware: Hardware, base: Base | None) -> Iterator[Check]:
    """The programs of a recipe; for a SYCL compiler, whether torch can load what it makes."""
    values = {"root": str(project.paths.root)}
    plain = [text for text in job.recipe.path if "{{" not in text.replace("{{ root }}", "")]
    folders = render_all(plain, values, f"{job.where}.path")
    path = os.pathsep.join([*folders, os.environ.get("PATH", os.defpath)])
    wanted = [argv[0] for argv in (*job.recipe.toolchain, job.recipe.command) if argv]
    sycl = "icpx" in wanted
    for tool in dict.fromkeys([*wanted, *(["ocloc"] if sycl else [])]):
        if "{{" in tool:
            continue
        found = shutil.which(tool, path=path)
        if found is None:
            where = f"; expected in {', '.join(folders)}" if folders else ""
            yield Check(
                what=tool, result="missing",
                text=f"not found, and recipe `{job.name}` needs it{where}",
                hint=_get(tool, hardware),
            )
        elif tool == "icpx":
            yield _compiler(found, job, hardware, base)
        else:
            yield _ok(tool, found)


def _get(tool: str, hardware: Hardware) -> str:
    text = GET.get(tool, f"install {tool} and put it on PATH")
    release = RELEASES.get(hardware.libsycl or 0)
    return f"{text} {release} (not a later one)" if tool == "icpx" and release else text


def _compiler(icpx: str, job: Job, hardware: Hardware, base: Base | None) -> Check:
    """The compiler's libsycl against torch's: with two in one process, an import crashes."""
    out = capture([icpx, "--version"], timeout=60)[1].decode("utf-8", "replace")
    match = re.search(r"Compiler (\d{4})\.(\d+)\S*", out)
    version = match[0].removeprefix("Compiler ") if match else "of an unknown version"
    links = _sycl([Path(icpx).resolve().parent.parent / "lib"])
    loads, source = hardware.libsycl, "the profile's torch"
    if base is not None and (held := _sycl([base.venv / "lib", base.site_packages / "torch/lib"])):
        loads, source = held, f"torch in {base.venv}"
    text = f"{version} at {icpx}"
    if loads is None or (links is None and match is None):
        text += "; which libsycl.so it links is not known"
        return Check(what="icpx", result="note", text=text)
    year = int(match[1]) if match else None
    if links == loads if links else year == RELEASES.get(loads):
        return _ok("icpx", f"{text} links libsycl.so.{loads}, as {source} loads")
    made_for = f"libsycl.so.{links}" if links else "another libsycl.so"
    place = f", and its folder into `path` of [recipe.{job.name}]"
    return Check(
        what="icpx", result="missing",
        text=f"{text} links {made_for}, but {source} loads libsycl.so.{loads}: what it builds "
        "crashes at import",
        hint=f"{_get('icpx', Hardware(libsycl=loads))}{place}",
    )


def _sycl(folders: Sequence[Path]) -> int | None:
    """The highest N of the files `libsycl.so.N` in some folders."""
    names = [path.name for folder in folders for path in folder.glob("libsycl.so.*")]
    found = [match[1] for name in names if (match := re.match(r"libsycl\.so\.(\d+)", name))]
    return max(map(int, found), default=None)


def _devices(hardware: Hardware, found: Sequence[on_machine.Devices]) -> Iterator[Check]:
    tool = {"xpu": "xpu-smi", "cuda": "nvidia-smi"}.get(hardware.device, "")
    kind = {"xpu": "Intel GPU", "cuda": "NVIDIA GPU"}.get(hardware.device, "processor")
    if not found:
        others = ", sycl-ls, clinfo and /dev/dri" if hardware.device == "xpu" else ""
        yield Check(
            what="devices", result="missing",
            text=f"no {kind} can be seen ({tool}{others} said nothing), {hardware.count} needed",
            hint=f"{GET[tool]} on the machine with the devices",
        )
        return
    if tool and found[0].by != tool:
        text = f"tells nothing; asked {found[0].by}"
        yield Check(what=tool, result="note", text=text, hint=GET[tool])
    for node in on_machine.forbidden_nodes() if hardware.device == "xpu" else ():
        hint = "add yourself to the group `render`, then log in again"
        yield Check(what=node, result="missing", text="you may not open it", hint=hint)
    best = max(found, key=lambda one: len(one.names))
    names = ", ".join(f"{best.names.count(name)} x {name}" for name in dict.fromkeys(best.names))
    enough = hardware.device == "cpu" or len(best.names) >= hardware.count
    each = "" if hardware.device == "cpu" else " each"
    size = f", {best.memory:.1f} GiB{each}" if best.memory else ""
    yield Check(
        what="devices", result="ok" if enough else "missing",
        text=f"{names or 'none'}{size} (by {best.by})"
        + ("" if enough else f": {hardware.count} needed"),
        hint=None if enough else "check cables, driver and permissions of the missing ones",
    )
    driver = next((one.driver for one in found if one.driver), None)
    if hardware.driver and driver:
        old = _numbers(driver) < _numbers(hardware.driver)
        yield Check(
            what="driver", result="missing" if old else "ok",
            text=f"{driver}, {hardware.driver} or later is needed",
            hint="install a newer driver" if old else None,
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def _memory(
    project: Project, name: str, profile: Profile, model: Path | None, memory: float | None
) -> Iterator[Check]:
    folder, checkpoint = model, profile.checkpoint
    if folder is not None and not folder.is_dir():
        yield Check(
            what="checkpoint", result="missing", text=f"{folder}: no such folder",
            hint="--model DIR: the folder with config.json and *.safetensors",
        )
        return
    if folder is None and checkpoint is not None and checkpoint.path:
        values = {
            "root": str(project.paths.root), "models": str(environment.models(project)),
            "profile": name,
        }
        at = Path(render(checkpoint.path, values, f"stack.toml: profile.{name}.checkpoint.path"))
        if at.is_dir():
            folder = at
        else:
            yield Check(
                what="checkpoint", result="missing", text=f"{project.shown(at)} is not there",
                hint="put the checkpoint or a link to it there, or weigh another with --model DIR",
            )
    yield from check_memory(profile.hardware, checkpoint, folder, memory)


def _ok(what: str, text: str) -> Check:
    return Check(what=what, result="ok", text=text)
