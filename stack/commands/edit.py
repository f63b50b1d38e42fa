"""`stack edit`: stand at a patch, change it, and replay what stands above."""

from __future__ import annotations

from pathlib import Path

import click

from stack import options
from stack.console import Console
from stack.context import Answer, Context, Verb
from stack.errors import UsageError
from stack.flows.line import edit as flow
from stack.flows.line import restack_state
from stack.flows.line.edit_message import edit_message


@click.command(short_help="Change a patch where it stands")
@click.argument("patch", required=False)
@click.option("--message", "reword", is_flag=True, help="Edit its message in $EDITOR, nothing else")
@click.option("-m", "text", multiple=True, metavar="TEXT",
              help="With --message: this text, again for further paragraphs; trailers stay")
@options.choose_line
@options.going_on
@options.dry_run
def command(
    patch: str | None, reword: bool, text: tuple[str, ...], upstream: str | None,
    line: str | None, continue_: bool, abort_: bool, dry_run: bool,
) -> Verb:
    """Bring the workspace to PATCH; change it there with git or an editor, then --continue.

    Changes that are not committed go into the patch; commits may be amended, split, reordered, new
    or gone. What stands above is replayed on top. --abort gives back what was, and keeps the
    edit's commits under a ref.
    """

    def run(ctx: Context) -> Answer:
        project, emit = ctx.project, ctx.console.emit
        chosen = options.find_line(project, upstream, line)
        if continue_ or abort_:
            if patch or reword:
                raise UsageError("--continue and --abort name nothing", hint="stack status")
            if restack_state.load(project) and (continue_ or not flow.editing(project, chosen)):
                return options.go_on(ctx, abort=abort_, given=False)
            if abort_:
                return _answer(flow.abort(project, chosen, emit, command=ctx.command), begun=False)
            done = flow.finish(project, chosen, emit, dry_run=dry_run, command=ctx.command)
            return options.restacked(ctx, done)
        if patch is None or (text and not reword):
            raise UsageError(
                "no patch named", hint="stack edit PATCH, --continue or --abort; PATCH --message"
            )
        if reword:
            done = edit_message(
                project, chosen, patch, lambda old: _ask(old, text), emit, dry_run=dry_run,
                command=ctx.command,
            )
            return options.restacked(ctx, done)
        began = flow.start(project, chosen, patch, emit, dry_run=dry_run, command=ctx.command)
        return _answer(began, begun=True, dry_run=dry_run)

    return run


def _ask(old: str, text: tuple[str, ...]) -> str | None:
    """The new message: the given paragraphs over the old trailers, or what the editor gives."""
    if text:
        from stack.model.mail.mail import render_message, split_message

        trailers = split_message(old.encode())[2]
        return render_message(text[0], "\n\n".join(text[1:]), trailers).decode()
    return click.edit(old, extension=".txt") or old


def _answer(done: flow.Edited, *, begun: bool, dry_run: bool = False) -> Answer:
    def show(console: Console) -> None:
        if begun:
            console.out(str(Path(done.tree)))
            word = "would stand" if dry_run else "stands"
            console.say(
                f"{done.line}: the workspace {word} at `{done.patch}` ({done.head[:12]}), "
                f"{len(done.above)} patches wait above; then stack edit --continue, or --abort"
            )
            return
        kept = f"; what was made is kept as {done.kept[:12]}" if done.kept else ""
        console.say(f"{done.line}: gave up the edit of `{done.patch}`{kept}")

    data = {
        "line": done.line, "patch": done.patch, "head": done.head, "workspace": done.tree,
        "above": list(done.above), "kept": done.kept, "editing": begun and not dry_run,
    }
    return Answer(data=data, show=show)
