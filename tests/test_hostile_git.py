"""A project, its workspace and its upstream with git configurations that start programs: none runs.

`status`, `list`, `show`, `lint`, `forecast`, `report` and their like only look. What they look at
may have come from anywhere, `.stack/` with it, so nothing in it that git would run is run.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.cli import Stack
from tests.support.faults import Server
from tests.support.project import Demo

LOOKING = [
    ("status",), ("list",), ("show", "edit-0"), ("lint",), ("forecast", "--onto", "demo@v1.1"),
    ("report",), ("log",), ("export", "--check"), ("apply", "--dry-run"), ("upstream", "list"),
    ("line", "list"), ("range-diff", "demo/1.0", "demo/1.0"), ("doctor",),
    ("show", "--for-upstream", "edit-0"), ("export", "--format", "squashed"), ("upstreamed",),
    ("ci", "--no-forecast"), ("import", "--dry-run", "../demo-upstream"),
]  # fmt: skip
# Attributes that name a filter, a diff and a merge driver for every file.
ATTRIBUTES = "* filter=evil diff=evil merge=evil\n"
# What git would run, each in a configuration of its own; RUN is the program.
KEYS: dict[str, str] = {
    "fsmonitor": "[core]\n\tfsmonitor = RUN\n\tuntrackedCache = true\n",
    "hooks": "[core]\n\thooksPath = HOOKS\n",
    "clean": '[filter "evil"]\n\tclean = RUN\n\trequired = true\n',
    "smudge": '[filter "evil"]\n\tsmudge = RUN\n\trequired = true\n',
    "process": '[filter "evil"]\n\tprocess = RUN\n\trequired = true\n',
    "textconv": '[diff "evil"]\n\ttextconv = RUN\n\tcachetextconv = false\n',
    "diff-command": '[diff "evil"]\n\tcommand = RUN\n',
    "external-diff": "[diff]\n\texternal = RUN\n",
    "merge-driver": '[merge "evil"]\n\tdriver = RUN %O %A %B\n[merge]\n\tdefault = evil\n',
    "ssh": '[core]\n\tsshCommand = RUN\n[remote "origin"]\n\turl = ssh://h.invalid/x\n',
    "gpg": "[gpg]\n\tprogram = RUN\n[commit]\n\tgpgSign = true\n[log]\n\tshowSignature = true\n",
    "credential": "[credential]\n\thelper = !RUN\n[core]\n\taskPass = RUN\n",
    "pager": "[core]\n\tpager = RUN\n[pager]\n\tstatus = RUN\n\tdiff = RUN\n\tlog = RUN\n",
    "editor": "[core]\n\teditor = RUN\n[sequence]\n\teditor = RUN\n",
    "alias": "[alias]\n\tstatus = !RUN\n\tcat-file = !RUN\n\trev-parse = !RUN\n",
    "transport": '[protocol]\n\tallow = always\n[url "ext::RUN "]\n\tinsteadOf = /\n',
    "promisor": '[extensions]\n\tpartialClone = evil\n[remote "evil"]\n\turl = ext::RUN\n'
    '\tpromisor = true\n\tuploadpack = RUN\n[protocol "ext"]\n\tallow = always\n',
    "alternates": "[core]\n\talternateRefsCommand = RUN\n",
    "include": "[include]\n\tpath = ALL\n",
    "includeIf": '[includeIf "gitdir:**"]\n\tpath = ALL\n',
}  # fmt: skip


class Trap:
    """A program that leaves a mark when it is run, and configurations that name it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.mark = folder / "it-ran"
        self.program = folder / "run.sh"
        self.program.write_text(f'#!/bin/sh\necho "$0 $@" >>{self.mark}\ncat\n')
        self.program.chmod(0o755)
        hooks = folder / "hooks"
        hooks.mkdir()
        for name in (
            "post-checkout", "pre-commit", "post-index-change", "reference-transaction",
            "fsmonitor-watchman", "post-rewrite", "pre-auto-gc",
        ):  # fmt: skip
            (hooks / name).symlink_to(self.program)
        self.hooks, self.all = hooks, folder / "all"
        self.all.write_text("".join(self.text(key) for key in KEYS if "include" not in key))

    def text(self, key: str) -> str:
        said = KEYS[key].replace("RUN", str(self.program)).replace("HOOKS", str(self.hooks))
        return said.replace("ALL", str(self.all))

    def set(self, config: Path, key: str) -> None:
        with config.open("a") as file:
            file.write(self.text(key))


@pytest.fixture
def demo(stack: Stack, tmp_path: Path) -> Demo:
    """A project that is a repository itself, applied; every file has the evil attributes."""
    made = Demo(stack, tmp_path)
    made.upstream.commit("attributes", {".gitattributes": ATTRIBUTES.encode()})
    made.upstream.git("tag", "-f", "v1.0")
    stack.ok("line", "remove", "demo/1.0")
    stack.ok("line", "add", "demo@v1.0")
    made.base = made.upstream.head()
    made.patches(2)
    made.upstream.commit("Go on", {"README": b"on\n"})
    made.upstream.git("tag", "v1.1")
    made.apply()
    subprocess.run(["git", "init", "-q"], cwd=stack.folder, check=True)
    (stack.folder / ".gitattributes").write_text(ATTRIBUTES)
    made.write({"src/f0.py": b"changed by hand\n", "src/unknown.py": b"1\n"})
    made.upstream.write({"README": b"off\n", "src/unknown.py": b"1\n"})
    # As if copied: no index knows the files, so that git has to read each of them.
    for path in made.tree.rglob("*"):
        if path.is_file():
            os.utime(path, (1, 1))
    return made


def configs(demo: Demo) -> Mapping[str, Path]:
    folder = demo.stack.folder
    return {
        "project": folder / ".git/config",
        "workspace": folder / ".stack/repos/demo.git/config",
        "upstream": demo.upstream.folder / ".git/config",
    }


@pytest.mark.timeout(1200)
def test_looking_runs_nothing(demo: Demo, tmp_path: Path, server: Server) -> None:
    """Each key alone, in all three places; one warm process, since they are many."""
    before = {config: config.read_bytes() for config in configs(demo).values()}
    ran: list[str] = []
    for key in KEYS:
        trap = Trap(tmp_path / f"trap-{key}")
        for config, data in before.items():
            config.write_bytes(data)
            trap.set(config, key)
        for arguments in LOOKING:
            for path in (demo.tree / "src/f1.py", demo.tree / ".gitattributes"):
                os.utime(path, (len(ran) + 1, 1))  # so that git has to read it again
            done = server.run(demo.stack.folder, *arguments)
            assert done.code in (0, 1, 2, 3), (key, done)
            if trap.mark.exists():
                ran.append(f"{key}: {' '.join(arguments)}: {trap.mark.read_text().splitlines()[0]}")
                trap.mark.unlink()
    assert not ran, "\n".join(ran)
    # The traps are real: git itself walks into one of them, when it is the only one.
    for config, data in before.items():
        config.write_bytes(data)
    trap = Trap(tmp_path / "trap")
    trap.set(configs(demo)["workspace"], "clean")
    os.utime(demo.tree / "src/f1.py", (2, 2))
    demo.git("status")
    assert trap.mark.exists()
