"""`stack export`: the workspace's commits go back to the patch files."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from stack import options
from stack.console import Console
from stack.context import Answer, Context, Verb
from stack.errors import UsageError
from stack.flows.line import export as flow
from stack.flows.sharing import publish, share
from stack.store import atomic
from stack.store.project import Line


@click.command(short_help="Write the workspace's commits back to the patch files")
@options.choose_line
@click.option("--check", is_flag=True, help="Write nothing; exit 1 where a file would change")
@click.option(
    "--force", is_flag=True,
    help="Overwrite patch files that changed since `apply`; a branch that others moved",
)
@click.option(
    "--format", "format_", type=click.Choice(share.FORMATS),
    help="Write the patches for others instead: one mailbox, a quilt folder, a branch, one diff",
)
@click.option(
    "-o", "--output", metavar="PATH", type=click.Path(path_type=Path),
    help="File, folder or repository for --format [default: stdout]",
)
@click.option("--branch", metavar="NAME", help="The branch for --push or --format branch")
@click.option("--push", "remote", metavar="REMOTE", help="Push the commits as --branch to REMOTE")
@click.option("--to", metavar="PATCH", help="Stop after this patch (--format, --push)")
@options.dry_run
def command(
    upstream: str | None, line: str | None, check: bool, force: bool, format_: str | None,
    output: Path | None, branch: str | None, remote: str | None, to: str | None, dry_run: bool,
) -> Verb:
    """Write the workspace's commits back to the patch files, all or nothing.

    Commits are matched to patches by id, `Patch-Id:`, subject, and content: most of a patch that
    was split keeps its name. One that matches none becomes a new patch, named after its subject. A
    file whose patch still gives the same commit keeps every byte. --dry-run shows what each commit
    is.

    With --format or --push the patch files are written for others, and the workspace is not asked:
    `git am --keep-non-patch` reads a mbox, quilt and `patch -p1` a quilt folder, `git apply` the
    squashed diff; --push publishes the commits on top of the upstream's own commit.
    """

    def run(ctx: Context) -> Answer:
        project = ctx.project
        chosen = options.find_line(project, upstream, line)
        if format_ or remote or branch or output or to:
            place = ctx.folder.absolute() / output if output is not None else None
            asked = _Shared(format_, place, branch, remote, to, force=force, dry_run=dry_run)
            return asked.answer(ctx, chosen)
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
            "plan": [
                {"commit": one.commit, "name": one.name, "matched": one.how} for one in done.plan
            ],
        }

        def show(console: Console) -> None:
            for one in done.plan if dry_run else ():
                word = dict(rows).get(one.name, "same")
                console.out(f"{one.commit[:12]} {word:8} {one.name} ({one.told})")
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


class _Shared:
    """The forms for others: what was asked for, and its answer."""

    def __init__(
        self, format_: str | None, output: Path | None, branch: str | None, remote: str | None,
        to: str | None, *, force: bool, dry_run: bool,
    ) -> None:
        if remote and (format_ not in (None, "branch") or output):
            raise UsageError("--push takes --branch and nothing else", hint="leave --format and -o")
        if bool(branch) != bool(remote or format_ == "branch"):
            raise UsageError(
                "--branch NAME goes with --push REMOTE or --format branch -o REPO, and they with it"
            )
        if not remote and (format_ is None or (format_ in ("quilt", "branch") and not output)):
            what = "FOLDER" if format_ == "quilt" else "REPO" if format_ else "PATH"
            hint = f"--format {format_ or 'mbox'} -o {what}"
            raise UsageError("nothing says where to", hint=hint)
        self.format, self.output, self.branch, self.remote = format_, output, branch, remote
        self.to, self.force, self.dry_run = to, force, dry_run

    def answer(self, ctx: Context, line: Line) -> Answer:
        project, emit = ctx.project, ctx.console.emit
        members = line.series.select(to=self.to)
        how = {"force": self.force, "dry_run": self.dry_run}
        if self.branch and self.remote:
            pushed = publish.publish(
                project, line, members, self.branch, self.remote, emit, **how
            )
            return _pushed(line, pushed, dry_run=self.dry_run)
        if self.branch and self.output:
            made = publish.branch_in(
                project, line, members, self.branch, self.output, emit, **how
            )
            return _pushed(line, made, dry_run=self.dry_run)
        with share.chain(project, line, members, emit) as found:
            data = {
                "line": line.id, "format": self.format, "base": found.replay.base,
                "head": found.head, "patches": [{"name": name} for name in found.names],
                "output": str(self.output) if self.output else None,
            }
            count = f"{line.id}: {len(found.names)} patches"
            if self.format == "quilt" and self.output:
                if not self.dry_run:
                    share.quilt(project, line, found, self.output, force=self.force)
                text = b""
            elif self.format == "mbox":
                text = share.mailbox(line, found, emit)
            else:
                text = share.squashed(found)
        if self.output is None:
            data["text"] = text.decode("utf-8", "replace")
            return Answer(data=data, show=lambda console: console.raw(text))
        if text and not self.dry_run:
            atomic.write(self.output, text)
        word = "would be written" if self.dry_run else "written"
        return Answer(
            data=data, show=lambda console: console.say(f"{count} {word} to {self.output}")
        )


def _pushed(line: Line, done: publish.Published, *, dry_run: bool) -> Answer:
    def show(console: Console) -> None:
        word = "would be pushed" if dry_run else "pushed" if done.changed else "there already"
        console.say(
            f"{line.id}: {len(done.patches)} commits on {done.base[:12]} {word}: branch "
            f"{done.branch} of {done.remote} at {done.head[:12]}"
        )

    return Answer(
        data={**msgspec.to_builtins(done), "line": line.id, "dry_run": dry_run}, show=show
    )
