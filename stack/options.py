"""Command-line options that several verbs share, and what they mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from stack import quick
from stack.errors import UsageError
from stack.store.project import Line, Project

F = TypeVar("F", bound=Callable[..., Any])


def _complete_lines(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    root = quick.find_root(".")
    found = quick.lines(root) if root else []
    return [CompletionItem(line) for line in found if line.startswith(incomplete)]


def choose_line(function: F) -> F:
    """`--upstream NAME[@REV]` and `--line UPSTREAM/LABEL`."""
    function = click.option(
        "--line", "line", metavar="UPSTREAM/LABEL", shell_complete=_complete_lines,
        help="The line of that name",
    )(function)
    return click.option(
        "--upstream", metavar="NAME[@REV]",
        help="The line of that upstream pinned at REV (commit prefix, tag or label), or its "
        "default line",
    )(function)


def choose_patches(function: F) -> F:
    """`--to`, `--with` and `--without`."""
    for option in (
        click.option("--without", multiple=True, metavar="PATCH", help="Leave this patch out"),
        click.option(
            "--with", "with_", multiple=True, metavar="PATCH", help="Take this parked patch as well"
        ),
        click.option("--to", metavar="PATCH", help="Stop after this patch"),
    ):
        function = option(function)
    return function


dry_run = click.option("--dry-run", is_flag=True, help="Say what would be done, and write nothing")


def find_line(project: Project, upstream: str | None, line: str | None) -> Line:
    """The line that `--upstream` or `--line` names."""
    if upstream and line:
        raise UsageError("--upstream and --line both name a line", hint="give one of them")
    if line and "/" not in line:
        raise UsageError(f"`{line}` is not a line", hint="--line UPSTREAM/LABEL; stack list")
    return project.find(line or upstream)
