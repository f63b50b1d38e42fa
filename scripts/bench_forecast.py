"""Time `stack forecast` of a line over many releases against `git rebase --merge` to one of them.

Run it in a project whose releases are at hand (a first forecast fetches them). The rebases start
from the line's own commits in a fresh worktree; a patch that conflicts is skipped, so that every
patch is tried, as the forecast tries them. All take turns, so that a busy machine hurts all alike.

    python scripts/bench_forecast.py --line vllm/0.20.1 --runs 5 --where /dev/shm \
        --onto 0.20.2 0.21.0 0.22.0 0.23.0 0.24.0 0.25.0 0.26.0 0.27.0 0.28.0 0.29.0
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STACK = [sys.executable, "-P", "-m", "stack"]
ENV = {
    **os.environ, "PYTHONPATH": str(ROOT), "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1", "GIT_EDITOR": "true", "GIT_AUTHOR_NAME": "A",
    "GIT_AUTHOR_EMAIL": "a@example.com", "GIT_COMMITTER_NAME": "A",
    "GIT_COMMITTER_EMAIL": "a@example.com", "LC_ALL": "C.UTF-8",
}  # fmt: skip


def run(argv: list[str], folder: Path, *, check: bool = True) -> subprocess.CompletedProcess[str]:
    """One program to its end."""
    return subprocess.run(
        argv, cwd=folder, env=ENV, check=check, capture_output=True, text=True, timeout=600
    )


def stacked(project: Path, line: str, onto: list[str]) -> float:
    """Seconds of one forecast, the whole process."""
    name = line.partition("/")[0]
    begun = time.perf_counter()
    argv = [*STACK, "-q", "forecast", "--line", line, "--onto", *(f"{name}@{r}" for r in onto)]
    run(argv, project)
    return time.perf_counter() - begun


def rebased(tree: Path, head: str, base: str, onto: str) -> tuple[float, int]:
    """Seconds of one rebase with every patch tried, and how many conflicted."""
    run(["git", "checkout", "-q", "-f", "--detach", head], tree)
    run(["git", "status", "--short"], tree)
    begun = time.perf_counter()
    done = run(["git", "rebase", "-q", "--merge", "--onto", onto, base], tree, check=False)
    skipped = 0
    while done.returncode:
        if not (Path(git_dir(tree)) / "rebase-merge").exists():
            raise SystemExit(done.stderr)
        skipped += 1
        done = run(["git", "rebase", "--skip"], tree, check=False)
    return time.perf_counter() - begun, skipped


def git_dir(tree: Path) -> str:
    """The folder in which git keeps the worktree's state."""
    return run(["git", "rev-parse", "--absolute-git-dir"], tree).stdout.strip()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--project", type=Path, default=Path())
    parser.add_argument("--line", required=True)
    parser.add_argument("--onto", nargs="+", required=True)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--where", type=Path, default=Path(tempfile.gettempdir()))
    chosen = parser.parse_args()
    project = chosen.project.resolve()
    name, _, label = chosen.line.partition("/")
    with tempfile.TemporaryDirectory(prefix="bench-forecast-", dir=chosen.where) as scratch:
        copy = Path(scratch) / "project"
        ignore = shutil.ignore_patterns(".git", ".venv", "venvs", "layers", "logs", "work")
        shutil.copytree(project, copy, symlinks=True, ignore=ignore)
        stacked(copy, chosen.line, chosen.onto)
        said = json.loads(run([*STACK, "apply", "--line", chosen.line, "--json"], copy).stdout)
        repository = copy / f".stack/repos/{name}.git"
        base = ref(repository, label)
        tree = Path(scratch) / "tree"
        run(["git", "worktree", "add", "-q", "--detach", str(tree), said["data"]["head"]],
            repository)  # fmt: skip
        times: dict[str, list[float]] = {}
        for _ in range(chosen.runs):
            seconds = stacked(copy, chosen.line, chosen.onto)
            times.setdefault(f"stack forecast, {len(chosen.onto)} releases", []).append(seconds)
            for release in dict.fromkeys((chosen.onto[0], chosen.onto[len(chosen.onto) // 2],
                                          chosen.onto[-1])):  # fmt: skip
                target = ref(repository, release)
                seconds, skipped = rebased(tree, said["data"]["head"], base, target)
                key = f"git rebase --merge to {release}, {skipped} patches skipped"
                times.setdefault(key, []).append(seconds)
    first = statistics.median(next(iter(times.values())))
    for key, values in times.items():
        median = statistics.median(values)
        print(f"{median:7.3f} s  {first / median:5.2f}  {key}")


def ref(repository: Path, label: str) -> str:
    """The commit of a release in the project's repository."""
    found = run(
        ["git", "for-each-ref", "--format=%(objectname)", f"refs/stack/base/{label}/"], repository
    ).stdout.split()
    return found[0]


if __name__ == "__main__":
    main()
