"""Command-line options that several verbs share, and what they mean."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from stack import quick
from stack.console import Console
from stack.context import Answer, Context
from stack.errors import Untrusted, UsageError
from stack.store.project import Line, Project

if TYPE_CHECKING:
    from stack.flows.cluster.clustering import Where
    from stack.flows.line.restack import Restacked

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def complete_lines(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The lines that begin with what is typed."""
    root = quick.find_root(".")
    found = quick.lines(root) if root else []
    return [CompletionItem(line) for line in found if line.startswith(incomplete)]


def choose_line(function: F) -> F:
    """`--upstream NAME[@REV]` and `--line UPSTREAM/LABEL`."""
    function = click.option(
        "--line", "line", metavar="UPSTREAM/LABEL", shell_complete=complete_lines,
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


def end_on_term() -> None:
    """Let SIGTERM end a run as Ctrl-C does, so that the engine under test is ended too."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


trust = click.option(
    "--trust", is_flag=True, help="Allow the commands of this project's stack.toml from now on"
)


def trusting(ctx: Context, run: Callable[[], T], *, trust: bool) -> T:
    """What `run` gives; it stops where it would run the project's commands and may not yet.

    They are allowed then by `--trust` or by the answer of a person, and it runs again. Raises
    `Untrusted`, with the commands, where nobody can be asked or the answer is no.
    """
    try:
        return run()
    except Untrusted as wrong:
        if not (trust or ctx.console.confirm(wrong, "allow them from now on?")):
            raise
    allow(ctx)
    return run()


def allow(ctx: Context) -> None:
    """Remember that the project's commands as they are now may run."""
    from stack.flows import trust as flow

    ctx.console.say(f"allowed: {flow.allow(ctx.project)}")


def on_cluster(function: F) -> F:
    """`--on` and `--address`: where trials run."""
    for option in (
        click.option(
            "--address", metavar="HOST:PORT",
            help="The Ray cluster [default: the one that this machine is in]",
        ),
        click.option(
            "--on", type=click.Choice(["here", "ray"]), default="here", show_default=True,
            help="Run the trials on this machine, or on the hosts of a Ray cluster",
        ),
    ):
        function = option(function)
    return function


def where(on: str, address: str | None, machines: int | None = None) -> Where | None:
    """Where trials run, as the options of `on_cluster` say."""
    from stack.flows.cluster.clustering import Where

    if on == "ray":
        return Where(address=address, machines=machines or 1)
    if address or machines:
        raise UsageError(
            f"{'--address' if address else '--machines'} is of a cluster, and the trials run here",
            hint="--on ray",
        )
    return None


dry_run = click.option("--dry-run", is_flag=True, help="Say what would be done, and write nothing")


def find_line(project: Project, upstream: str | None, line: str | None) -> Line:
    """The line that `--upstream` or `--line` names."""
    if upstream and line:
        raise UsageError("--upstream and --line both name a line", hint="give one of them")
    if line and "/" not in line:
        raise UsageError(f"`{line}` is not a line", hint="--line UPSTREAM/LABEL; stack list")
    return project.find(line or upstream)


def going_on(function: F) -> F:
    """`--continue` and `--abort` of the verbs that replay patches."""
    function = click.option(
        "--abort", "abort_", is_flag=True, help="Give the change up; everything is as it was"
    )(function)
    return click.option(
        "--continue", "continue_", is_flag=True,
        help="Go on with what stands in the worktree of the conflict",
    )(function)


def go_on(ctx: Context, *, abort: bool, given: bool) -> Answer:
    """Continue or give up whatever change of a line has stopped."""
    from stack.flows.line import restack_resume

    if given:
        raise UsageError("--continue and --abort name nothing", hint="stack status")
    if abort:
        state = restack_resume.abort(ctx.project, ctx.console.emit)
        text = f"gave up `{state.what}` in {state.line}; nothing was changed"
        return Answer(data={"aborted": state.what}, show=lambda console: console.say(text))
    return restacked(ctx, restack_resume.resume(ctx.project, ctx.console.emit))


def restacked(ctx: Context, done: Restacked) -> Answer:
    """What a verb that replays patches answers; `Conflict` where it has stopped."""
    from stack.flows.line import restack_show

    data = restack_show.data(done)
    if done.finished is None and not done.dry_run:
        raise restack_show.stopped(ctx.project, done)

    def show(console: Console) -> None:
        for word, name in restack_show.rows(done):
            console.out(f"{word:8} {name}")
        console.say(restack_show.summary(done))

    return Answer(data=data, show=show, exit_code=3 if done.finished is None else 0)
