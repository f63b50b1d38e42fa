"""`stack refresh`: put what is changed in the workspace into a patch."""

from __future__ import annotations

import click

from stack import options
from stack.console import Console
from stack.context import Answer, Context, Verb
from stack.errors import UsageError
from stack.flows.line import absorb, edit
from stack.flows.line import refresh as flow


@click.command(short_help="Put what is changed in the workspace into a patch")
@click.argument("patch", required=False)
@click.option(
    "--absorb", "absorbs", is_flag=True, help="Send each hunk to the patch that owns its lines"
)
@options.choose_line
@options.going_on
@options.dry_run
def command(
    patch: str | None, absorbs: bool, upstream: str | None, line: str | None, continue_: bool,
    abort_: bool, dry_run: bool,
) -> Verb:
    """Put what is changed in the workspace and not committed into PATCH, new files too.

    Without PATCH it is the last applied one, or the one being edited, which ends the edit. With
    --absorb each hunk goes to the patch that last touched its lines; what belongs to no patch, or
    to several, is said and stays in the workspace.
    """

    def run(ctx: Context) -> Answer:
        project, emit = ctx.project, ctx.console.emit
        if continue_ or abort_:
            return options.go_on(ctx, abort=abort_, given=bool(patch or absorbs))
        if patch and absorbs:
            raise UsageError("--absorb finds the patches itself", hint="stack refresh --absorb")
        chosen = options.find_line(project, upstream, line)
        edited = edit.editing(project, chosen)
        if edited and not absorbs and patch in (None, edited):
            done = edit.finish(project, chosen, emit, dry_run=dry_run, command=ctx.command)
            return options.restacked(ctx, done)
        if not absorbs:
            done = flow.refresh(
                project, chosen, patch, emit, dry_run=dry_run, command=ctx.command
            )
            return options.restacked(ctx, done)
        taken = absorb.absorb(project, chosen, emit, dry_run=dry_run, command=ctx.command)
        rows = [{"path": one.path, "line": one.line, "patch": one.patch, "why": one.why}
                for one in taken.hunks]

        def show(console: Console) -> None:
            for one in taken.hunks:
                console.out(f"{one.patch or '-':24} {one.path}:{one.line}" + (
                    f"  {one.why}" if one.why else ""))
            left = sum(one.patch is None for one in taken.hunks)
            word = "would be absorbed" if dry_run else "absorbed"
            console.say(
                f"{chosen.id}: {len(rows) - left} hunks {word}"
                + (f", {left} stay in the workspace" if left else "")
            )

        code = 1 if taken.hunks and all(one.patch is None for one in taken.hunks) else 0
        return Answer(data={"line": chosen.id, "hunks": rows, "head": taken.head}, show=show,
                      exit_code=code)

    return run
