"""`stack completion`: the script that a shell loads."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from stack.console import Console
from stack.context import Answer, Context, Verb
from stack.errors import UsageError


@click.command(short_help="Print the shell completion script")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> Verb:
    """Print the completion script of a shell, for example `eval "$(stack completion bash)"`."""

    def run(ctx: Context) -> Answer:
        kind = get_completion_class(shell)
        if kind is None:
            raise UsageError(f"no completion for {shell}")
        script = kind(click.Command("stack"), {}, "stack", "_STACK_COMPLETE").source()

        def show(console: Console) -> None:
            console.out(script)

        return Answer(data={"shell": shell, "script": script}, show=show)

    return run
