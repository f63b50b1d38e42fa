"""What a line and its workspace are, to be compared, and plain git as the judge of both."""

from __future__ import annotations

import os
import subprocess
import tempfile
import tomllib
from pathlib import Path

from tests.support.project import Demo

State = tuple[dict[str, bytes], str, str, str]


def state_of(demo: Demo) -> State:
    """The line's files, and HEAD, changes and unknown files of its workspace."""
    return demo.files(), demo.head(), demo.git("diff", "HEAD"), demo.git("status", "--porcelain")


def same_as_git_am(demo: Demo) -> None:
    """`git am` of the active patch files, one after the other, gives the workspace's tree."""
    assert am_tree(demo.upstream.folder, demo.base, demo.line) == demo.tree_id()


def am_tree(upstream: Path, base: str, line: Path) -> str:
    """The tree that plain git makes of a line's files."""
    document = tomllib.loads((line / "series.toml").read_text())
    mails = [
        line / f"{patch['name']}.patch"
        for patch in document.get("patch", [])
        if patch["state"] == "active"
    ]
    with tempfile.TemporaryDirectory() as folder:

        def git(*arguments: str | Path) -> str:
            done = subprocess.run(
                ["git", *arguments], cwd=folder, capture_output=True, check=False, env=os.environ
            )
            assert done.returncode == 0, (done.stdout + done.stderr).decode("utf-8", "replace")
            return done.stdout.decode().strip()

        git("clone", "--quiet", "--shared", "--no-checkout", upstream, folder)
        git("checkout", "--quiet", "--detach", base)
        if mails:
            git("am", "--quiet", "--keep-non-patch", "--no-3way", *mails)
        return git("rev-parse", "HEAD^{tree}")
