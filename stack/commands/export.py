"""`stack export`: the workspace's commits go back to the patch files."""

from __future__ import annotations

import click

from stack import options
from stack.console import Console
from stack.context import Answer, Context, Verb
from stack.flows import export as flow


@click.command(short_help="Write the workspace's commits back to the patch files")
@options.choose_line
@click.option("--check", is_flag=True, help="Write nothing; exit 1 where a file would change")
@click.option("--force", is_flag=True, help="Overwrite patch files that changed since `apply`")
@options.dry_run
def command(
    upstream: str | None, line: str | None, check: bool, force: bool, dry_run: bool
) -> Verb:
    """Write the workspace's commits back to the patch files, all or nothing.

    Commits are matched to patches by their `Patch-Id:`, then by id, then by subject; one that
    matches none becomes a new patch, named after its subject. A file whose patch still gives the
    same commit keeps every byte.
    """

    def run(ctx: Context) -> Answer:
        project = ctx.project
        chosen = options.find_line(project, upstream, line)
        done = flow.export(
            project, chosen, ctx.console.emit, check=check or dry_run, force=force,
            command=ctx.command,
        )
        rows = [
            *((name, "changed") for name in done.written), *((name, "new") for name in done.added),
            *((name, "removed") for name in done.removed),
        ]
        data = {
            "line": chosen.id, "differs": done.differs, "reordered": done.reordered,
            "uncommitted": list(done.uncommitted),
            "patches": [{"name": name, "change": change} for name, change in rows],
        }

        def show(console: Console) -> None:
            for name, change in rows:
                console.out(f"{change:8} {project.shown(chosen.patch_path(name))}")
            if done.reordered:
                console.out(f"{'reorder':8} {project.shown(chosen.folder / 'series.toml')}")
            if not done.differs:
                console.say(f"{chosen.id}: the patch files say what the workspace has")
            elif check or dry_run:
                console.say(f"{chosen.id}: nothing written; stack export writes these")

        return Answer(data=data, show=show, exit_code=1 if check and done.differs else 0)

    return run
