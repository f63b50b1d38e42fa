"""Builds small real git repositories."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path


class RepoBuilder:
    """A git repository with a work tree, filled by the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.git("init", "--quiet", "--initial-branch=main")

    @property
    def url(self) -> str:
        return self.folder.as_uri()

    def git(self, *arguments: str | Path, stdin: bytes = b"", check: bool = True) -> bytes:
        """Run git here; its stdout."""
        done = subprocess.run(
            ["git", *map(str, arguments)], cwd=self.folder, input=stdin, capture_output=True,
            check=False, env=os.environ,
        )
        assert not check or done.returncode == 0, done.stderr.decode("utf-8", "replace")
        return done.stdout

    def write(self, files: Mapping[str, bytes | None]) -> None:
        """Write files (None removes one)."""
        for name, data in files.items():
            path = self.folder / name
            if data is None:
                path.unlink()
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)

    def commit(self, message: str, files: Mapping[str, bytes | None]) -> str:
        """Write files, commit everything, and give the commit's id."""
        self.write(files)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--file=-", stdin=message.encode())
        return self.head()

    def head(self) -> str:
        return self.git("rev-parse", "HEAD").decode().strip()

    def tree(self, revision: str = "HEAD") -> str:
        return self.git("rev-parse", f"{revision}^{{tree}}").decode().strip()

    def patches(self, base: str, folder: Path) -> list[Path]:
        """The commits after `base` as canonical mail files."""
        folder.mkdir(parents=True, exist_ok=True)
        listed = self.git(
            "format-patch", "--keep-subject", "--no-stat", "--no-signature", "--zero-commit",
            "--full-index", "--binary", "-o", str(folder), f"{base}..HEAD",
        )
        return [Path(name) for name in listed.decode().splitlines()]
