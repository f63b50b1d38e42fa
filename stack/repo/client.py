"""The only place that knows GitPython: git commands with exact bytes and a sealed configuration.

Content commands (diff, checkout, pack) never see the user's or the system's configuration, since
several keys there change the bytes that git writes. Network commands need it: proxies,
credentials, URL rewrites.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, cast

import msgspec

from stack.errors import GitError, GitHeld, MissingTool
from stack.store import lock

# What a surrounding git (a hook, an alias, `rebase --exec`) leaves in the environment, and what
# would have a new repository keep its objects and refs in another form.
_LOCAL_VARIABLES = (
    "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_COMMON_DIR", "GIT_CONFIG", "GIT_CONFIG_COUNT",
    "GIT_CONFIG_PARAMETERS", "GIT_DEFAULT_HASH", "GIT_DEFAULT_REF_FORMAT", "GIT_DIR",
    "GIT_GRAFT_FILE", "GIT_IMPLICIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_NAMESPACE",
    "GIT_NO_REPLACE_OBJECTS", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX", "GIT_QUARANTINE_PATH",
    "GIT_REPLACE_REF_BASE", "GIT_SHALLOW_FILE", "GIT_WORK_TREE", "GIT_EXTERNAL_DIFF",
    "GIT_DIFF_OPTS",
)
_HELD = re.compile(
    rb"(?:Unable to create '(.+)\.lock'|could not lock config file (.+)): File exists"
)
_PATIENCE = 2.0  # seconds for which we wait for a git of the user's to let go of an index or a ref
_FILTER = ("clean", "smudge", "process")
_PIPE = -1  # the value of `subprocess.PIPE`, which GitPython hands on
_SEALED = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
}
# Without optional locks, what only looks (`git status`) is in no writer's way.
_ALWAYS = {
    "GIT_TERMINAL_PROMPT": "0", "GIT_NO_REPLACE_OBJECTS": "1", "LC_ALL": "C",
    "GIT_OPTIONAL_LOCKS": "0",
}
# Nothing in a repository may start a program of its own: no hook, monitor or automatic gc.
_QUIET = (
    "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "gc.auto=0",
    "-c", "maintenance.auto=false", "-c", "advice.detachedHead=false", "-c", "safe.directory=*",
)


def _missing() -> MissingTool:
    return MissingTool("`git` is not installed", hint="install git 2.34 or later")


def _gitpython() -> Any:
    """GitPython, which looks for the git program while it is imported."""
    try:
        import git.cmd
    except ImportError:
        raise _missing() from None
    return git


class Completed(msgspec.Struct, frozen=True):
    """Exit code, stdout and stderr of one git command, all bytes untouched."""

    command: tuple[str, ...]
    code: int
    out: bytes
    err: bytes

    @property
    def text(self) -> str:
        return self.out.decode("utf-8", "surrogateescape").strip()

    def checked(self, ok: Sequence[int] | None) -> Completed:
        """The same; `GitError` when the exit code is not in `ok` (None takes any)."""
        if ok is None or self.code in ok:
            return self
        pairs = zip(("", *self.command), self.command, strict=False)
        verb = next((b for a, b in pairs if a not in ("-c", "-C") and b[:1] != "-"), "")
        how = f"exit code {self.code}" if self.code >= 0 else f"signal {-self.code}"
        last = self.err.decode("utf-8", "replace").strip().splitlines()[-4:]
        raise GitError(
            f"git {verb} failed with {how}",
            context=[f"git {' '.join(self.command)}"[:300], *last],
        )


class Git:
    """Runs git on one repository (`git_dir`), or on none for commands that need no repository."""

    def __init__(self, git_dir: Path | None = None) -> None:
        self.git_dir = git_dir
        self._unfiltered: dict[str, str] | None = None
        self._beside: dict[str, str] = {}

    def run(
        self,
        *arguments: str | Path,
        stdin: bytes | None = None,
        ok: Sequence[int] | None = (0,),
        worktree: Path | None = None,
        env: Mapping[str, str] | None = None,
        user_config: bool = False,
        on_progress: Callable[[str], None] | None = None,
    ) -> Completed:
        """Run `git ARGUMENTS` to its end.

        Raises `GitError` when the exit code is not in `ok` (None takes any). With `user_config` the
        user's and the system's configuration apply. `on_progress` is given stderr line by line as
        it comes.
        """
        patient_until = time.monotonic() + _PATIENCE
        while True:
            process = self._start(arguments, worktree, env, user_config)
            code, out, err = _ended(process, stdin or b"", on_progress)
            held = _HELD.search(err) if code and not user_config else None  # not a remote's
            if held is None or time.monotonic() > patient_until:
                break
            time.sleep(0.05)  # git gave up before it changed anything
        if held is not None:
            raise GitHeld(
                f"{os.fsdecode(held[1] or held[2])}.lock: another git is at work, or one was "
                "killed here",
                hint="wait for it to end; where no git runs any more, remove that file",
            )
        return Completed(tuple(map(str, arguments)), code, out, err).checked(ok)

    def write_beside(self) -> bool:
        """Where the repository may only be read, let new objects go to a folder of this process.

        So what only looks works there too; whether that was needed, and is new.
        """
        if self.git_dir is None or self._beside or os.access(self.git_dir / "objects", os.W_OK):
            return False
        folder = tempfile.mkdtemp(prefix="stack-objects-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._beside = {
            "GIT_OBJECT_DIRECTORY": folder,
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(self.git_dir / "objects"),
        }
        return True

    def start(self, *arguments: str) -> _Process:
        """Start a long-lived git command with pipes; the caller talks to it and closes it."""
        return self._start(arguments, None, None, user_config=False)

    def _start(
        self,
        arguments: Sequence[str | Path],
        worktree: Path | None,
        env: Mapping[str, str] | None,
        user_config: bool,
    ) -> _Process:
        argv: list[str] = []
        if self._beside:
            env = {**self._beside, **(env or {})}
        if worktree is not None:
            env = {**self._without_filters(), **(env or {})}
        present = [name for name in _LOCAL_VARIABLES if name in os.environ]
        if present:
            argv = ["env", *(part for name in present for part in ("-u", name))]
            if env:  # after `env -u`, so that our own values win
                argv += [f"{key}={value}" for key, value in env.items()]
        argv += ["git", *_QUIET]
        if self.git_dir is not None:
            argv.append(f"--git-dir={self.git_dir}")
        if worktree is not None:
            argv.append(f"--work-tree={worktree}")
        argv += [str(argument) for argument in arguments]
        # Not for network commands: what they start (an ssh master, say) may stay for long.
        held = () if user_config else lock.handles()
        gitpython = _gitpython()
        runner = gitpython.cmd.Git(str(worktree or self.git_dir or "/"))
        try:
            process = runner.execute(
                argv,
                istream=_PIPE,
                as_process=True,
                env={**_ALWAYS, **({} if user_config else _SEALED), **(env or {})},
                pass_fds=held,
            )
        except gitpython.exc.GitCommandNotFound:
            raise _missing() from None
        return cast("_Process", process)

    def _without_filters(self) -> Mapping[str, str]:
        """What switches off the filters that this repository's own configuration names.

        Git would run their commands on every file that it reads or writes, and the configuration
        may have come with the project. There is no switch for all of them, so each is emptied.
        """
        if self._unfiltered is None:
            found = self.run("config", "-z", "--name-only", "--get-regexp", r"^filter\.", ok=(0, 1))
            keys = [os.fsdecode(key) for key in found.out.split(b"\0") if key.count(b".") > 1]
            names = sorted({key[len("filter.") : key.rindex(".")] for key in keys})
            off = [
                (f"filter.{name}.{key}", value) for name in names
                for key, value in (*((k, "") for k in _FILTER), ("required", "false"))
            ]
            self._unfiltered = {"GIT_CONFIG_COUNT": str(len(off))} if off else {}
            for at, (key, value) in enumerate(off):
                self._unfiltered |= {f"GIT_CONFIG_KEY_{at}": key, f"GIT_CONFIG_VALUE_{at}": value}
        return self._unfiltered


class _Process:
    """The part of a running command that we use (GitPython hands out a wrapper of Popen)."""

    stdin: IO[bytes]
    stdout: IO[bytes]
    stderr: IO[bytes]
    returncode: int
    proc: _Process

    def communicate(self, data: bytes) -> tuple[bytes, bytes]: ...  # type: ignore[empty-body]

    def wait(self) -> int: ...  # type: ignore[empty-body]


def _ended(
    process: _Process, stdin: bytes, on_progress: Callable[[str], None] | None
) -> tuple[int, bytes, bytes]:
    """Feed a command and wait for its end; exit code (minus the signal), stdout and stderr."""
    if on_progress is None:
        out, err = process.communicate(stdin)
        return process.returncode, out, err
    process.stdin.write(stdin)
    process.stdin.close()
    err = _follow(process.stderr, on_progress)
    out = process.stdout.read()
    code = process.proc.wait()  # GitPython's own wait() raises on any exit code but 0
    return code, out, err


def _follow(stream: IO[bytes], on_progress: Callable[[str], None]) -> bytes:
    """Hand each line of a progress stream on, whether it ends in a newline or a return."""
    kept, pending = b"", b""
    while chunk := os.read(stream.fileno(), 4096):
        kept = (kept + chunk)[-8192:]
        pending += chunk.replace(b"\r", b"\n")
        *lines, pending = pending.split(b"\n")
        for line in lines:
            if line.strip():
                on_progress(line.decode("utf-8", "replace").strip())
    return kept
