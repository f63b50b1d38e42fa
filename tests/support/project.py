"""A small project with an upstream, a line and patches, for tests of whole flows."""

from __future__ import annotations

import os
import subprocess
import tomllib
from collections.abc import Mapping
from pathlib import Path

from tests.conftest import numbered
from tests.support.cli import Stack
from tests.support.repo import RepoBuilder


class Demo:
    """The line demo/1.0 of an upstream with a README and ten files `src/fN.py`."""

    def __init__(self, stack: Stack, tmp_path: Path, *, source: str = "path") -> None:
        self.stack = stack
        self.scratch = tmp_path
        self.upstream = RepoBuilder(tmp_path / "demo-upstream")
        files = {f"src/f{n}.py": numbered(20) for n in range(10)}
        self.base = self.upstream.commit("begin", {"README": b"demo\n", **files})
        self.upstream.git("tag", "v1.0")
        stack.ok("init")
        where = self.upstream.url if source == "git" else str(self.upstream.folder)
        stack.ok("upstream", "add", "demo", where)
        stack.ok("line", "add", "demo@v1.0")
        self.line = stack.folder / "patches/demo/1.0"
        self.tree = stack.folder / ".stack/workspaces/demo/1.0/tree"

    def patches(self, count: int) -> None:
        """Import `edit-0`, `edit-1`, ...; each changes line 7 of its own file."""
        for number in range(count):
            data = numbered(20).replace(b"line 7\n", b"changed %d\n" % number)
            message = f"[Core] Edit {number}\n\nText.\n\nWhy: reason {number}\n goes on\n"
            self.upstream.commit(message, {f"src/f{number % 10}.py": data})
        mails = self.upstream.patches("v1.0", self.scratch / "mails")
        self.upstream.git("reset", "--quiet", "--hard", "v1.0")
        self.stack.ok("import", *mails)

    def more(self, subject: str, files: Mapping[str, bytes | None]) -> Path:
        """Import one more patch; its mail."""
        self.upstream.commit(subject, files)
        (mail,) = self.upstream.patches("HEAD~1", self.scratch / "more")
        self.upstream.git("reset", "--quiet", "--hard", "v1.0")
        self.stack.ok("import", mail)
        return mail

    def apply(self) -> None:
        self.stack.ok("apply")

    def fresh_apply(self) -> None:
        """Apply from nothing but the project's own files."""
        subprocess.run(["rm", "-rf", self.stack.folder / ".stack"], check=True)
        self.stack.ok("apply")

    def files(self) -> dict[str, bytes]:
        """Every file of the line, by name."""
        files = (path for path in sorted(self.line.iterdir()) if path.is_file())
        return {path.name: path.read_bytes() for path in files}

    def names(self) -> list[str]:
        document = tomllib.loads((self.line / "series.toml").read_text())
        return [patch["name"] for patch in document.get("patch", [])]

    def park(self, name: str) -> None:
        """Park a patch as neutral."""
        series = self.line / "series.toml"
        head, *entries = series.read_text().split("[[patch]]")
        parked = 'state = "parked"\nreason = "neutral"'
        entries = [
            entry.replace('state = "active"', parked) if f'name = "{name}"' in entry else entry
            for entry in entries
        ]
        series.write_text("[[patch]]".join([head, *entries]))

    def id_of(self, name: str) -> str:
        for row in (self.line / f"{name}.patch").read_text().splitlines():
            if row.startswith("Patch-Id: "):
                return row.removeprefix("Patch-Id: ")
        raise AssertionError(name)

    def git(self, *arguments: str, stdin: bytes = b"") -> str:
        """Run git in the workspace, as its owner would."""
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.tree,
            input=stdin,
            capture_output=True,
            check=False,
            env=os.environ,
        )
        assert done.returncode == 0, done.stderr.decode("utf-8", "replace")
        return done.stdout.decode().strip()

    def head(self) -> str:
        return self.git("rev-parse", "HEAD")

    def tree_id(self) -> str:
        return self.git("rev-parse", "HEAD^{tree}")

    def write(self, files: Mapping[str, bytes]) -> None:
        for name, data in files.items():
            (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
            (self.tree / name).write_bytes(data)

    def commit(self, message: str, files: Mapping[str, bytes]) -> None:
        """Commit everything in the workspace."""
        self.write(files)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--cleanup=verbatim", "--file=-", stdin=message.encode())

    def commit_only(self, message: str, files: Mapping[str, bytes]) -> None:
        """Commit these files and nothing else."""
        self.write(files)
        self.git("add", *files)
        self.git("commit", "--quiet", "-m", message)

    def edit_commit(self, number: int, name: str, data: bytes, *, hooks: bool = True) -> None:
        """Amend commit `number` (from 0) and put the ones after it on top again."""
        off = [] if hooks else ["-c", "core.hooksPath=/dev/null"]
        after = self.git("rev-list", "--reverse", f"{self.base}..HEAD").split()
        self.git(*off, "checkout", "--quiet", "--detach", after[number])
        self.write({name: data})
        self.git(*off, "commit", "--quiet", "--amend", "--no-edit", "--all")
        if after[number + 1 :]:
            self.git(*off, "cherry-pick", *after[number + 1 :])
