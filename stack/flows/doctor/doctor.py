"""Look at machine and project and name what is missing; changes nothing."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from stack.errors import MissingTool, StackError
from stack.flows.base import local_path
from stack.flows.doctor.checks import Check
from stack.flows.prefixes import items
from stack.host.process import capture
from stack.repo import mirror as mirrors
from stack.repo.client import Git
from stack.store.project import Project

OLDEST_GIT = (2, 34)


def examine(project: Project | None) -> Iterator[Check]:
    """Every check of the machine and, where there is one, of the project."""
    yield from _machine()
    if project is None:
        return
    yield from _project(project)
    for name in project.settings.upstream:
        with contextlib.suppress(MissingTool):  # git: said already
            yield from _sources(project, name)
    for name in project.settings.upstream:
        for label in project.labels(name):
            yield _line(project, name, label)


def _machine() -> Iterator[Check]:
    yield _ok("python", f"{platform.python_version()} at {sys.executable}")
    try:
        text = Git().run("version").text.removeprefix("git version ")
    except StackError as wrong:
        yield Check(what="git", result="missing", text=wrong.message, hint=wrong.hint)
    else:
        parts = tuple(int(part) for part in re.findall(r"\d+", text)[:2])
        if parts < OLDEST_GIT:
            yield Check(
                what="git", result="missing", text=f"{text} is older than 2.34",
                hint="install a newer git",
            )
        else:
            yield _ok("git", text)
    if uv := shutil.which("uv"):
        version = capture([uv, "--version"])[1].decode(errors="replace").strip()
        yield _ok("installer", f"{version} at {uv}")
    else:
        yield Check(
            what="installer", result="note", text="no uv on PATH; venv and pip make environments",
            hint="uv makes them faster",
        )
    for tool, why in (("nvidia-smi", "NVIDIA GPUs"), ("xpu-smi", "Intel GPUs"), ("icpx", "oneAPI")):
        if found := shutil.which(tool):
            yield _ok(tool, found)
        else:
            yield Check(
                what=tool, result="note", text=f"not found: {why} cannot be seen or used here"
            )


def _project(project: Project) -> Iterator[Check]:
    paths = project.paths
    settings = project.settings
    defaults = settings.defaults
    yield _ok(
        "stack.toml",
        f"{paths.config}; upstream {defaults.upstream or '(none)'}, profile "
        f"{defaults.profile or '(none)'}",
    )
    source = "STACK_CACHE_DIR" if os.environ.get("STACK_CACHE_DIR") else (
        "XDG_CACHE_HOME" if os.environ.get("XDG_CACHE_HOME") else "default"
    )
    for what, folder, text in (
        ("cache", paths.cache, f"{paths.cache} (from {source})"),
        ("state", paths.state, str(paths.state)),
    ):
        above = next(p for p in (folder, *folder.parents) if p.exists())
        free = shutil.disk_usage(above).free / 1e9
        if not os.access(above, os.W_OK):
            yield Check(what=what, result="missing", text=f"{above} cannot be written")
        elif free < 2:
            yield Check(
                what=what, result="note", text=f"{text}: {free:.1f} GB free", hint="stack gc"
            )
        else:
            yield _ok(what, f"{text}: {free:.0f} GB free")
    if (paths.state / "journal.json").exists():
        yield Check(
            what="journal", result="note", text="a command was killed in the middle of a change",
            hint="the next change completes it; stack status shows where things stand",
        )


def _sources(project: Project, name: str) -> Iterator[Check]:
    upstream = project.settings.upstream[name]
    found: list[str] = []
    lacking: list[str] = []
    if upstream.path:
        path = local_path(project, upstream)
        if path is not None and mirrors.objects_of(path) is not None:
            found.append(f"path {path}")
        else:
            lacking.append(f"path {upstream.path}" + ("" if path else " (not set)"))
    if upstream.git:
        mirror = mirrors.Mirror(project.paths.mirror(name), upstream.git)
        (found if mirror.exists else lacking).append(f"mirror of {upstream.git}")
    if upstream.sdist:
        held = sorted(p.name for p in project.paths.sdists.glob(f"{upstream.sdist}-*.tar.gz"))
        (found if held else lacking).append("sdists " + (" ".join(held) or "(none in the cache)"))
    text = "; ".join([*found, *(f"not here: {what}" for what in lacking)]) or "no source configured"
    yield Check(
        what=name, result="ok" if found else "note", text=text,
        hint=None if found else "what is not here is fetched when it is needed",
    )


def _line(project: Project, upstream: str, label: str) -> Check:
    """Whether a line's series and every patch file can be read."""
    what = f"{upstream}/{label}"
    try:
        line = project.line(upstream, label)
        count = len(items(line, line.series.patch, project))
    except StackError as wrong:
        return Check(what=what, result="missing", text=wrong.message, hint=wrong.hint)
    stray = sorted(
        path.name for path in Path(line.folder).glob("*.patch") if path.stem not in line.files
    )
    if stray:
        return Check(
            what=what, result="note", text=f"files that the series does not name: {' '.join(stray)}"
        )
    return _ok(what, f"{count} patches, all readable")


def _ok(what: str, text: str) -> Check:
    return Check(what=what, result="ok", text=text)
