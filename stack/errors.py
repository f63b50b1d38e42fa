"""Every way in which a command can fail, with its exit code; nothing here prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar


class StackError(Exception):
    """A failure that a user can act on: what and where in one line, then the next step.

    `message` is one line, `context` the indented lines under it, `hint` the command to type next.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 2

    def __init__(
        self, message: str, *, context: Sequence[str] = (), hint: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.context = tuple(context)
        self.hint = hint


class UsageError(StackError):
    """What was typed names nothing that exists, or contradicts itself."""

    code = "usage"


class ConfigError(StackError):
    """A file of the project is wrong; the message begins with its path and line."""

    code = "config"


class BadPatch(StackError):
    """A patch file is damaged, truncated, not a patch, or reaches outside its tree."""

    code = "bad-patch"


class StateError(StackError):
    """The project is in a state in which this verb would lose something."""

    code = "state"


class Locked(StateError):
    """Another process holds the project."""

    code = "locked"


class Untrusted(StateError):
    """The project's own commands would run, and nobody has allowed that on this machine."""

    code = "untrusted"


class SchemaTooNew(StateError):
    """A document was written by a newer release than this one."""

    code = "schema-too-new"


class SourceError(StackError):
    """No source can serve a pin, or what it served is not what the pin names."""

    code = "source"


class GitError(StackError):
    """Git itself failed; `context` carries the command and its last words."""

    code = "git"


class GitHeld(GitError):
    """Another git holds the lock that git needs; this one gave up before it changed anything."""


class MissingTool(StackError):
    """A program that this verb needs is not installed."""

    code = "missing-tool"


class SystemFailure(StackError):
    """The operating system refused: disk full, permission, input or output error."""

    code = "system"


class Conflict(StackError):
    """A patch does not apply; everything is as it was before."""

    code = "conflict"
    exit_code = 3


class BuildFailed(StackError):
    """A base environment or a layer could not be made."""

    code = "build"
    exit_code = 4


class BenchFailed(StackError):
    """Nothing could be measured."""

    code = "bench"
    exit_code = 5
