"""Piles of diffs: an upstream, a worktree that somebody edits, and the files that it leaves."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.cli import Output, Stack
from tests.support.repo import RepoBuilder

Files = Mapping[str, bytes | None]


def unified(old: bytes, new: bytes, path: str, scratch: Path, *options: str) -> bytes:
    """The hunks of `git diff` between two contents, under any name, without its head."""
    scratch.mkdir(parents=True, exist_ok=True)
    for name, data in (("old", old), ("new", new)):
        (scratch / name).write_bytes(data)
    done = subprocess.run(
        ["git", "diff", "--no-index", "--no-color", *options, "old", "new"], cwd=scratch,
        capture_output=True, check=False,
    )
    text = done.stdout
    return text[text.index(b"@@") :]


class Pile:
    """The upstream `demo` with a base, its worktree, a project, and a folder of diffs."""

    def __init__(self, folder: Path, base: Files, *, later: Files | None = None) -> None:
        self.folder = folder
        self.upstream = RepoBuilder(folder / "upstream")
        self.upstream.commit("begin", {"BEGIN": b"1\n"})
        self.upstream.commit("base", base)
        self.upstream.git("tag", "v1.0")
        if later is not None:
            self.upstream.commit("later", later)
            self.upstream.git("tag", "v2.0")
            self.upstream.git("checkout", "-q", "--detach", "v1.0")
        self.inputs = folder / "pile"
        self.inputs.mkdir()
        (folder / "project").mkdir()
        self.stack = Stack(folder / "project")
        self.stack.ok("init")
        self.stack.ok("upstream", "add", "demo", self.upstream.folder)
        self.stack.ok("line", "add", "demo@v1.0")

    def add(self, name: str, data: bytes) -> Path:
        path = self.inputs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    def edit(self, files: Files) -> None:
        """Change the worktree."""
        self.upstream.write(files)

    def read(self, name: str) -> bytes:
        return (self.upstream.folder / name).read_bytes()

    def snapshot(self, *options: str) -> bytes:
        """`git diff` of the worktree against the base, new files and all."""
        self.upstream.git("add", "--all")
        return self.upstream.git("diff", "--cached", "v1.0", *options)

    def snap(self, name: str, files: Files, *options: str) -> None:
        """Edit the worktree and leave a snapshot."""
        self.edit(files)
        self.add(name, self.snapshot(*options))

    def step(self, name: str, files: Files, *options: str) -> None:
        """Edit the worktree and leave what changed since the last edit."""
        self.upstream.git("add", "--all")
        self.edit(files)
        self.upstream.git("add", "--all", "-N")
        self.add(name, self.upstream.git("diff", *options))

    def tree(self) -> str:
        """The tree of the worktree as it stands."""
        self.upstream.git("add", "--all")
        return self.upstream.git("write-tree").decode().strip()

    def run(self, *options: str, code: int | None = 0) -> dict[str, Any]:
        """Import the pile; `data` of the answer."""
        output: Output = self.stack("import", self.inputs, "--json", *options)
        assert code is None or output.code == code, output
        return dict(output.json["data"])

    def rows(self, *options: str, code: int | None = 0) -> dict[str, dict[str, Any]]:
        """Import; the row of each file by its name."""
        return {Path(row["file"]).name: row for row in self.run(*options, code=code)["inputs"]}

    def results(self, *options: str, code: int | None = 0) -> dict[str, str]:
        return {name: row["result"] for name, row in self.rows(*options, code=code).items()}

    def applied(self) -> str:
        """The tree of the line, applied from its patch files."""
        return str(self.stack.ok("apply", "--line", "demo/1.0", "--json").json["data"]["tree"])

    def file(self, name: str) -> bytes:
        """A file of the applied line."""
        self.stack.ok("apply", "--line", "demo/1.0")
        return (self.stack.folder / ".stack/workspaces/demo/1.0/tree" / name).read_bytes()
