"""The command group, the global flags, and the one boundary where errors become exit codes."""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from stack import __version__
from stack.console import Color, Console, error_document
from stack.context import Answer, Context
from stack.errors import ConfigError, StackError, SystemFailure, UsageError
from stack.model.line.records import Result
from stack.store import paths
from stack.verbs import GROUPS

BUG, INTERRUPTED = 70, 130


class Flags(msgspec.Struct):
    """The global flags; they may stand before or after the verb."""

    folder: str = "."
    json: bool = False
    color: Color = "auto"
    quiet: bool = False


class Verbs(click.Group):
    """Imports a verb's module only when that verb runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for verbs in GROUPS.values() for name in verbs]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(f"stack.commands.{_module(name)}")
        command: click.Command = module.command
        add_global_flags(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.list_commands(ctx):
            from stack.model.line.line import near

            hint = near(args[0], self.list_commands(ctx), "stack --help")
            raise UsageError(f"no verb `{args[0]}`", hint=hint)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for group, verbs in GROUPS.items():
            with formatter.section(group):
                formatter.write_dl(list(verbs.items()))


def _module(verb: str) -> str:
    return {"import": "import_"}.get(verb, verb.replace("-", "_"))


def add_global_flags(command: click.Command) -> None:
    """Let a verb (and its sub-verbs) take the global flags as well."""
    if any(param.name == "global_json" for param in command.params):
        return
    for make in _GLOBAL:
        make(command)
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            add_global_flags(inner)


def _store(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value is not None and value is not False:
        flags = ctx.find_object(Flags)
        if flags is not None:
            setattr(flags, str(param.name).removeprefix("global_"), value)


_GLOBAL = (
    click.option(
        "-C", "global_folder", metavar="DIR", expose_value=False, callback=_store,
        help="Run as if started in DIR",
    ),
    click.option(
        "--json", "global_json", is_flag=True, expose_value=False, callback=_store,
        help="Print one JSON document on stdout",
    ),
    click.option(
        "--color", "global_color", type=click.Choice(["auto", "always", "never"]),
        expose_value=False, callback=_store, help="When to colour",
    ),
    click.option(
        "-q", "--quiet", "global_quiet", is_flag=True, expose_value=False, callback=_store,
        help="Only data, warnings and errors",
    ),
)


@click.group(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 the answer is no, 2 usage, configuration or state, 3 conflict, "
    "4 build, 5 nothing could be measured, 70 bug, 130 interrupted",
)
@click.version_option(__version__, prog_name="stack")
def root() -> None:
    """Keep an ordered series of patches alive on top of somebody else's repository."""


add_global_flags(root)


def main(argv: Sequence[str]) -> int:
    """Run one command line; the exit code. Nothing below this function exits or prints errors."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a locale without our letters is no bug of ours
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = _run(argv)
        Console().flush()
    except OSError as wrong:
        return output_failed(wrong)
    return code


def output_failed(wrong: OSError) -> int:
    """The exit code where stdout cannot be written: nobody reads it any more, or it is full."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is still held back would fail once more
    if isinstance(wrong, BrokenPipeError):
        return 0
    error = SystemFailure(f"stdout: {wrong.strerror}", hint=_system_hint(wrong))
    Console().error(error)
    return error.exit_code


def _run(argv: Sequence[str]) -> int:
    flags = Flags()
    command = _verb_of(argv)
    console = Console()
    try:
        answer = root.main(list(argv), prog_name="stack", standalone_mode=False, obj=flags)
        console = Console(flags.color, quiet=flags.quiet)
        if isinstance(answer, int):  # --help, --version
            return answer
        done = answer(_context(flags, console, argv)) if callable(answer) else None
        if not isinstance(done, Answer):
            return 0
        if flags.json:
            console.json(
                Result(
                    command=command, status="partial" if done.partial else "success",
                    exit_code=done.exit_code, data=done.data,
                )
            )
        else:
            done.show(console)
        return done.exit_code
    except click.ClickException as wrong:
        where = getattr(wrong, "ctx", None)
        hint = f"{where.command_path if where else 'stack'} --help"
        return _fail(_usage(wrong, hint), flags, argv, command)
    except StackError as wrong:
        return _fail(wrong, flags, argv, command)
    except (KeyboardInterrupt, click.Abort):
        error = StackError("interrupted; what was finished is kept", hint="run it again to go on")
        return _fail(error, flags, argv, command, code="interrupted", exit_code=INTERRUPTED)
    except OSError as wrong:
        if isinstance(wrong, BrokenPipeError) and console.unread():
            raise
        console.flush()  # fails once more where it was stdout, which is another matter
        where = f"{wrong.filename}: " if wrong.filename else ""
        failure = SystemFailure(f"{where}{wrong.strerror or wrong}", hint=_system_hint(wrong))
        return _fail(failure, flags, argv, command)
    except RecursionError:
        error = ConfigError(
            "a file of this project, or one that was named, is nested too deeply to be read",
            hint="restore it from git",
        )
        return _fail(error, flags, argv, command)
    except Exception as wrong:  # noqa: BLE001 - the boundary
        return _bug(wrong, flags, argv, command)


def _context(flags: Flags, console: Console, argv: Sequence[str]) -> Context:
    folder = Path(flags.folder)
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder", hint="-C DIR names a folder that exists")
    return Context(folder, console, tuple(argv))


def _verb_of(argv: Sequence[str]) -> tuple[str, ...]:
    return tuple(argv)


def _usage(wrong: click.ClickException, hint: str) -> StackError:
    message = " ".join(wrong.format_message().split())  # click lists choices on lines of their own
    return UsageError(message.removesuffix("."), hint=hint)


def _fail(
    error: StackError, flags: Flags, argv: Sequence[str], command: tuple[str, ...], *,
    code: str | None = None, exit_code: int | None = None,
) -> int:
    """Show an error; the exit code, which is the error's own unless another is given."""
    console = Console(flags.color)
    exit_code = error.exit_code if exit_code is None else exit_code
    if flags.json or "--json" in argv:
        console.json(
            Result(
                command=command, status="error", exit_code=exit_code,
                data=getattr(error, "data", {}),
                errors=({**error_document(error), "code": code or error.code},),
            )
        )
    else:
        console.error(error)
    return exit_code


def _system_hint(wrong: OSError) -> str:
    import errno

    hints = {
        errno.ENOSPC: "free some disk space (stack gc), then run the same command again",
        errno.EACCES: "check the permissions, then run the same command again",
        errno.EROFS: "the file system is read-only",
    }
    return hints.get(wrong.errno or 0, "nothing was changed; run the same command again")


def _bug(wrong: Exception, flags: Flags, argv: Sequence[str], command: tuple[str, ...]) -> int:
    """Keep the traceback where it can be sent from, and say so in one line."""
    import datetime
    import platform
    import traceback

    root_folder = paths.find_root(Path(flags.folder))
    logs = (root_folder / ".stack" if root_folder else paths.cache_home()) / "logs"
    stamp = datetime.datetime.now().strftime("%Y%m%dT%H%M%S")  # noqa: DTZ005 - a file name
    text = (
        f"stack {__version__}, Python {platform.python_version()}, {platform.platform()}\n"
        f"command: stack {' '.join(argv)}\n\n{''.join(traceback.format_exception(wrong))}"
    )
    log = logs / f"bug-{stamp}-{os.getpid()}.txt"
    try:
        logs.mkdir(parents=True, exist_ok=True)
        log.write_text(text)
        where = str(log)
    except OSError:
        where = "nowhere (the log folder cannot be written)"
    error = StackError(
        f"a bug in stack: {type(wrong).__name__}: {wrong}", context=[f"traceback: {where}"],
        hint="please send that file with what you did",
    )
    return _fail(error, flags, argv, command, code="bug", exit_code=BUG)
