"""Making a virtual environment and filling it, with pip or with uv; copies, never hard links."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote

from packaging.utils import canonicalize_name, parse_wheel_filename

from stack.host.indexes import Sources
from stack.host.process import Finished, capture, run
from stack.model.project.build import Fetched, Interpreter

Tick = Callable[[float, int], None]

# What a person's shell may carry that would send an installation elsewhere.
_ASTRAY = (
    "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "VIRTUAL_ENV", "CONDA_PREFIX", "PIP_TARGET",
    "PIP_PREFIX", "PIP_ROOT", "PIP_REQUIRE_VIRTUALENV", "PIP_REPORT", "PIP_DRY_RUN", "PIP_LOG",
    "PIP_NO_DEPS", "PIP_REQUIREMENT", "UV_PROJECT_ENVIRONMENT", "UV_TARGET", "UV_SYSTEM_PYTHON",
)
# Ends the installer when we are killed (Linux). Without it the next build still is right, as it
# works in a folder of another name, but it would share disk and processor with the orphan.
_BOUND = """
import os, sys
try:
    import ctypes
    ctypes.CDLL(None).prctl(1, 9)
except (OSError, AttributeError, ImportError):
    pass
os.execv(sys.argv[1], sys.argv[1:])
"""


class Installer:
    """One attempt at an environment: where it stands, who fills it, and the log of both.

    uv fills it when it is on PATH, unless `STACK_INSTALLER=pip` is set.
    """

    def __init__(
        self, venv: Path, log: Path, tick: Tick, env: Mapping[str, str] | None = None
    ) -> None:
        self.venv = venv
        self.log = log
        self.tick = tick
        self.env = dict(env or {})  # while packages are fetched and built, VLLM_TARGET_DEVICE=xpu
        self.uv = None if os.environ.get("STACK_INSTALLER") == "pip" else shutil.which("uv")
        self._pip: tuple[str, ...] = (str(self.python), "-m", "pip")

    @property
    def python(self) -> Path:
        return self.venv / "bin" / "python"

    @property
    def name(self) -> str:
        return "uv" if self.uv else "pip"

    def create(self, interpreter: Interpreter) -> Finished:
        """Make the environment; without a pip of its own where the interpreter's can fill it.

        That pip is started with the new Python in the way of `pip --python` (22.3 and later),
        which saves the seconds of ensurepip, and Debian's Pythons have no ensurepip.
        """
        if self.uv:
            argv = [self.uv, "venv", "--offline", "--python", interpreter.path, str(self.venv)]
            return self._run(argv, {})
        argv = [interpreter.path, "-I", "-m", "venv", str(self.venv)]
        code, out, _ = capture([interpreter.path, "-I", "-c", "import pip; print(pip.__file__)"])
        runner = Path(os.fsdecode(out.strip())).parent / "__pip-runner__.py"
        if code == 0 and runner.is_file():
            argv.insert(-1, "--without-pip")
            self._pip = (str(self.python), "-I", str(runner))
        return self._run(argv, {})

    def fetch(self, packages: Sequence[str], sources: Sources, wheels: Path, to: Path) -> Finished:
        """Resolve `packages`, and put the wheels of the whole closure into the folder `to`.

        What the folder `wheels` holds already is not downloaded again. Only for pip; uv has a
        cache of its own.
        """
        argv = [*self._pip, "wheel", "--wheel-dir", str(to), "--find-links", str(wheels)]
        return self._run([*argv, *packages], {**_pip(sources), **self.env})

    def install(
        self, packages: Sequence[str], sources: Sources, wheels: Path | None = None
    ) -> Finished:
        """Fill the environment: from the folder `wheels` alone, or (uv) from the sources."""
        if self.uv is None:
            bare = Sources(indexes=(), constraints=sources.constraints)
            argv = [*self._pip, "install", "--no-deps", "--find-links", str(wheels), *packages]
            return self._run(argv, _pip(bare))
        argv = [
            self.uv, "pip", "install", "--python", str(self.python), "--link-mode", "copy",
            "--compile-bytecode", "--index-strategy", "unsafe-best-match",
        ]
        for constraint in sources.constraints:
            argv += ["--constraint", constraint]
        for links in sources.find_links:
            argv += ["--find-links", links]
        return self._run([*argv, *_uv_indexes(sources), *packages], {**_uv(sources), **self.env})

    def remove(self, names: Sequence[str]) -> Finished:
        """Take distributions out again; only for uv, since pip never installs them."""
        assert self.uv is not None
        argv = [self.uv, "pip", "uninstall", "--python", str(self.python), *names]
        return self._run(argv, {})

    def _run(self, argv: Sequence[str], env: Mapping[str, str]) -> Finished:
        kept = {name: value for name, value in os.environ.items() if name not in _ASTRAY}
        return run(
            [sys.executable, "-I", "-c", _BOUND, *argv], log=self.log, cwd=self.log.parent,
            env={**kept, "PYTHONNOUSERSITE": "1", **env}, on_tick=self.tick,
        )


def _pip(sources: Sources) -> dict[str, str]:
    """Our settings for pip, as variables: those outrank its files, where flags only add to them.

    An empty variable counts as unset, so the list of further indexes is never empty.
    """
    env = {
        "PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_PROGRESS_BAR": "off",
        "PIP_USER": "0", "PIP_RETRIES": "2",
    }
    if sources.indexes:
        env["PIP_INDEX_URL"] = sources.indexes[0]
        env["PIP_EXTRA_INDEX_URL"] = " ".join(sources.indexes[1:] or sources.indexes)
    else:
        env["PIP_NO_INDEX"] = "1"
    return env


def _uv_indexes(sources: Sources) -> list[str]:
    if not sources.indexes:
        return ["--offline"]
    argv = ["--default-index", sources.indexes[0]]
    for index in sources.indexes[1:]:
        argv += ["--index", index]
    return argv


def _uv(sources: Sources) -> dict[str, str]:
    """What pip is configured with and uv does not read; uv's own variables win."""
    env = {"UV_LINK_MODE": "copy", "UV_NO_PROGRESS": "1"}
    if sources.certificates and "SSL_CERT_FILE" not in os.environ:
        env["SSL_CERT_FILE"] = sources.certificates
    if sources.proxy and "ALL_PROXY" not in os.environ:
        env["ALL_PROXY"] = sources.proxy
    return env


def pins(wheels: Path) -> tuple[str, ...]:
    """`name==version` of every wheel in a folder."""
    found = [parse_wheel_filename(path.name) for path in sorted(wheels.glob("*.whl"))]
    return tuple(f"{name}=={version}" for name, version, _, _ in found)


def without(exact: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """The pins but those of the distributions `names`."""
    left_out = {canonicalize_name(name) for name in names}
    return tuple(pin for pin in exact if canonicalize_name(pin.partition("==")[0]) not in left_out)


def pip_fetched(log: str, wheels: Path) -> Fetched:
    """What pip's log says it downloaded; sizes are those of the wheels that it kept."""
    names = re.findall(r"^\s*Downloading (\S+)", log, re.MULTILINE)
    files = {unquote(name.rpartition("/")[2]) for name in names if not name.endswith(".metadata")}
    sizes = [path.stat().st_size for name in files if (path := wheels / name).exists()]
    return Fetched(count=len(files), size=sum(sizes))


def uv_fetched(log: str) -> Fetched:
    """What uv's log says it brought into its cache."""
    prepared = re.search(r"^Prepared (\d+) packages?", log, re.MULTILINE)
    sizes = re.findall(r"^Downloading \S+ \(([\d.]+)([KMG])iB\)$", log, re.MULTILINE)
    size = sum(float(number) * 1024 ** "_KMG".index(unit) for number, unit in sizes)
    return Fetched(count=int(prepared[1]) if prepared else 0, size=round(size))


def explain(log: str) -> tuple[str, str | None]:
    """The reason in an installer's log, and what to do about it."""
    for pattern, text, hint in _REASONS:
        if match := re.search(pattern, log, re.MULTILINE):
            return text.format(next(filter(None, match.groups()), "")), hint
    words = [line.strip() for line in log.splitlines() if line.strip()]
    last = next((line for line in reversed(words) if line.lower().startswith("error")), None)
    return last or (words[-1] if words else "no output"), None


_REASONS: tuple[tuple[str, str, str | None], ...] = (
    (
        r"No space left on device|os error 28|Disk quota exceeded", "the disk is full",
        "free some space (stack gc), then run the same command again",
    ),
    (
        r"ensurepip is not\s+available|No module named (?:venv|ensurepip)",
        "this Python cannot make virtual environments", "apt install python3-venv, or install uv",
    ),
    (
        (
            r"No matching distribution found for (.+)$|[Bb]ecause\s+there\s+is\s+no\s+version\s+of"
            r"\s+(\S+)|[Bb]ecause\s+(\S+)\s+was\s+not\s+found"
        ),
        "there is no {}",
        "check `packages` and `indexes` of the profile in stack.toml",
    ),
    (
        r"^ERROR: (Cannot install .+) because", "{}: they ask for different versions",
        "correct `packages` of the profile in stack.toml",
    ),
    (
        r"Invalid requirement: '?([^'\n]+)|Failed to parse: `([^`]+)`", "not a requirement: {}",
        "correct `packages` of the profile in stack.toml",
    ),
    (
        (
            r"dns error|[Nn]ame resolution|Name or service not known|Network is unreachable|"
            r"NewConnectionError|ConnectTimeoutError|Connection refused"
        ),
        "the package index cannot be reached", "check the network, then run the same command again",
    ),
)
