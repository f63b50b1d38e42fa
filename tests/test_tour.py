"""README's tour is played as it stands there: every command, every line of output."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.conftest import numbered
from tests.support.repo import RepoBuilder

README = Path(__file__).parents[1] / "README.md"
_TOUR = re.compile(r"<!-- tour -->\n```console\n(.*?)```", re.DOTALL)


def steps(text: str) -> list[tuple[str, str]]:
    """The commands of a console block with what stands under each."""
    found: list[tuple[str, str]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], ""))
        else:
            command, output = found[-1]
            found[-1] = (command, output + line.rstrip() + "\n")
    return found


def build_upstream(folder: Path) -> None:
    """Two releases of a small upstream; the second moves what the fork changes."""
    repo = RepoBuilder(folder)
    body = numbered(30)
    repo.commit("begin", {"engine.py": body, "server.py": b"def serve():\n    return 200\n"})
    repo.git("tag", "v1.0")
    moved = b"# engine\n" + body.replace(b"line 20\n", b"line twenty\n")
    repo.commit("Spell twenty", {"engine.py": moved})
    repo.git("tag", "v1.1")


def test_the_tour_in_the_readme_is_what_happens(tmp_path: Path) -> None:
    build_upstream(tmp_path / "upstream")
    fork = tmp_path / "fork"
    fork.mkdir()
    programs = tmp_path / "bin"
    programs.mkdir()
    stack = programs / "stack"
    stack.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m stack "$@"\n')
    stack.chmod(0o755)
    env = {
        **os.environ, "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(README.parent),
    }
    match = _TOUR.search(README.read_text())
    assert match, "README.md has no tour"
    played = []
    for command, _ in steps(match[1]):
        done = subprocess.run(
            ["/bin/sh", "-c", command], cwd=fork, env=env, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        text = done.stdout.decode().replace(str(tmp_path), "/home/ann")
        played.append((command, "".join(f"{line.rstrip()}\n" for line in text.splitlines())))
    assert [masked(*step) for step in played] == [masked(*step) for step in steps(match[1])]


def masked(command: str, output: str) -> tuple[str, str]:
    """A step without the ids that hang on a new patch's own Patch-Id."""
    return command, re.sub(r"\b[0-9a-f]{12}\b", "ID", output)
