"""`stack run`: a command in a prefix."""

from __future__ import annotations

import os

import click

from stack.context import Answer, Context, Verb
from stack.flows.builds import launch as flow
from stack.host import process
from stack.store import lock


@click.command(
    short_help="Run a command in a prefix", context_settings={"ignore_unknown_options": True},
)
@click.option("--profile", metavar="NAME", help="A profile of stack.toml [default: its default]")
@click.option(
    "--line", metavar="LINE[:PATCH]",
    help="This prefix, just once [default: what `stack use` chose, else the whole profile]",
)
@click.option("--on", "switched_on", is_flag=True, help="Set the `env` that turns its patches on")
@click.option("--print", "print_", is_flag=True, help="Write the environment, and run nothing")
@click.argument("argv", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
def command(
    profile: str | None, line: str | None, switched_on: bool, print_: bool, argv: tuple[str, ...]
) -> Verb:
    """Run a command in a prefix: `stack run -- vllm serve MODEL`.

    The profile's programs come first on PATH and the layers first on PYTHONPATH; each prefix has
    compile caches of its own. The command takes the place of stack: signals, input, output and
    exit code are its own.
    """

    def run(ctx: Context) -> Answer:
        if not print_:  # nobody takes the base away while the program runs
            ctx.project.paths.ensure_state()
            lock.share(ctx.project.paths.serving, f"stack run -- {argv[0]}")
        found = flow.launch(
            ctx.project, argv, ctx.console.emit, profile=profile, line=line,
            switched_on=switched_on, outer=os.environ, folder=ctx.folder,
        )
        if not print_:
            process.become(found.argv, env=found.env, cwd=ctx.folder)
        changed = {
            name: text for name, text in sorted(found.env.items()) if os.environ.get(name) != text
        }
        return Answer(
            data={"argv": list(argv), "env": changed, "prefix": found.serving.chosen()},
            show=lambda console: console.out("\n".join(f"{k}={v}" for k, v in changed.items())),
        )

    return run
