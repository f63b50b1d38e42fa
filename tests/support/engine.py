"""The real engine and the real upstream sources, made once a run and shared by all tests."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from stack.flows.prefixes import replayed
from stack.store.paths import Paths, cache_home
from stack.store.project import Line, Project

ROOT = Path(__file__).parents[2]
# Before the seal: pip's cache, indexes and certificates. The checkout's own commands may run.
REAL_ENVIRONMENT = {**os.environ, "STACK_TRUST": "1"}
INNER = ("pytest", "gguf")  # what case files need beside the engine; gguf is vLLM 0.20.1's


@contextmanager
def alone(name: str) -> Iterator[None]:
    """One test process at a time makes what the others will use."""
    folder = ROOT / ".stack"
    folder.mkdir(exist_ok=True)
    with open(folder / f"test-{name}.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class Engine:
    """The base environment of `cpu-smoke` in the checkout's own `.stack/`."""

    def __init__(self, built: dict[str, object]) -> None:
        base = built["base"]
        assert isinstance(base, dict)
        self.built = built
        self.python = Path(base["python"])

    def pytest(self, cases: Path, path: Sequence[Path], env: dict[str, str], empty: Path) -> str:
        """Run a case file inside the engine's Python; its output. Fails the test where it fails."""
        result = empty / "result.xml"
        done = subprocess.run(
            [
                str(self.python),
                "-P",
                "-m",
                "pytest",
                "-q",
                "-p",
                "no:cacheprovider",
                "--rootdir",
                str(cases.parent),
                f"--confcutdir={cases.parents[1]}",
                "-c",
                os.devnull,
                "--import-mode=importlib",
                "-rs",
                str(cases),
                f"--junitxml={result}",
            ],
            cwd=empty,
            capture_output=True,
            check=False,
            timeout=900,
            env={
                **_plain(os.environ),
                **env,
                "PYTHONDONTWRITEBYTECODE": "1",
                "OMP_NUM_THREADS": "2",
                "PYTHONPATH": os.pathsep.join(map(str, [*path, _inner_site()])),
            },
        )
        text = (done.stdout + done.stderr).decode("utf-8", "replace")
        assert done.returncode == 0, text[-12000:]
        return text


def _plain(environment: os._Environ[str]) -> dict[str, str]:
    return {k: v for k, v in environment.items() if not k.startswith(("PYTEST_", "PYTHON", "COV_"))}


def build_engine() -> Engine:
    """`stack build --profile cpu-smoke` in the checkout; quick where it is built already."""
    with alone("engine"):
        done = subprocess.run(
            [sys.executable, "-m", "stack", "build", "--profile", "cpu-smoke", "--json"], cwd=ROOT,
            env=REAL_ENVIRONMENT, capture_output=True, check=False,
        )
    document = json.loads(done.stdout)
    if done.returncode:
        pytest.fail(json.dumps(document["errors"], indent=1))
    return Engine(document["data"])


def _inner_site() -> Path:
    """pytest and what old releases need, in a folder of their own, so that nothing is shadowed."""
    folder = ROOT / ".stack" / "test-site"
    with alone("site"):
        if not (folder / ".done").exists():
            subprocess.run(
                [
                    sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade",
                    "--target", str(folder), *INNER, "iniconfig", "pluggy", "packaging", "pygments",
                ],
                check=True, env=REAL_ENVIRONMENT, capture_output=True,
            )
            # Its PyPI build does not match the engine's torch, and breaks what imports it.
            (folder / "sitecustomize.py").write_text(
                'import sys\n\nsys.modules["torchvision"] = None\n'
            )
            (folder / ".done").touch()
    return folder


def real_project() -> Project:
    """The checkout as a project, with the cache that survives."""
    saved = {name: os.environ.get(name) for name in _REAL}
    for name in _REAL:
        if name in REAL_ENVIRONMENT:
            os.environ[name] = REAL_ENVIRONMENT[name]
        else:
            os.environ.pop(name, None)
    try:
        return Project(Paths(ROOT, cache_home()))
    finally:
        for name, value in saved.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


_REAL = ("HOME", "XDG_CACHE_HOME", "STACK_CACHE_DIR")


def patched_tree(line: Line, project: Project, names: Sequence[str], folder: Path) -> Path:
    """The whole tree of a line with these patches applied, written to `folder`."""
    members = [line.series.member(name) for name in names]
    with alone("sources"), replayed(project, line, members, lambda event: None) as found:
        found.odb.write()
        tree = found.prefixes[-1].tree
        env = {"GIT_INDEX_FILE": str(folder.with_suffix(".index"))}
        found.git.run("read-tree", tree, env=env)
        found.git.run(
            "checkout-index", "--all", f"--prefix={folder}/", env=env, worktree=folder.parent,
            ok=(0, 1),  # 1: a history without its largest files gives all the others
        )
    return folder


def git_history(variable: str) -> str:
    """The repository that a variable names; the test is skipped, saying so, without it."""
    found = REAL_ENVIRONMENT.get(variable)
    if not found:
        pytest.skip(f"{variable} is not set")
    return found
