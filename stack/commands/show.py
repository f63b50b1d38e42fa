"""`stack show`: one patch, its header, its size and its diff."""

from __future__ import annotations

import click
import msgspec
from unidiff.patch import PatchSet

from stack import options
from stack.console import Console
from stack.context import Answer, Context, Verb
from stack.errors import UsageError
from stack.model.diff.parse import parse_diff
from stack.model.line.line import near
from stack.model.mail.mail import parse_mail
from stack.store.project import Line, Project


@click.command(short_help="Show a patch")
@click.argument("patch")
@options.choose_line
@click.option("--stat", is_flag=True, help="Only the header and the files it touches")
@click.option("--raw", is_flag=True, help="The patch file's own bytes")
@click.option(
    "--for-upstream", "for_upstream", is_flag=True,
    help="The commit as upstream wants it: alone, signed off, without our trailers",
)
@click.option("--onto", metavar="REV", help="For --for-upstream: on this revision")
def command(
    patch: str, upstream: str | None, line: str | None, stat: bool, raw: bool, for_upstream: bool,
    onto: str | None,
) -> Verb:
    """Show a patch: state, reason, trailers, files and diff.

    PATCH is a name, or UPSTREAM/LABEL:NAME. Without a line it is looked for in the default line,
    then in all others. With --for-upstream the patch is carried alone to the newest revision of
    upstream that is at hand, or to its own pin, and written as a mail for `git am`.
    """
    if onto and not for_upstream:
        raise UsageError("--onto goes with --for-upstream")

    def run(ctx: Context) -> Answer:
        project = ctx.project
        chosen, name = _find(project, patch, upstream, line)
        if for_upstream:
            return _for_upstream(ctx, chosen, name, onto)
        member = chosen.series.member(name)
        data = chosen.files[name]
        where = project.shown(chosen.patch_path(name))
        mail = parse_mail(data, where)
        parse_diff(mail.diff, where, first=mail.diff_line)
        files = [
            {"path": file.path, "added": file.added, "removed": file.removed}
            for file in PatchSet(mail.diff.decode("utf-8", "replace"))
        ]
        shown = {
            "line": chosen.id, "file": where, **msgspec.to_builtins(member),
            "subject": mail.subject, "author": mail.author.name.decode("utf-8", "replace"),
            "body": mail.body, "trailers": [list(pair) for pair in mail.trailers], "files": files,
        }

        def show(console: Console) -> None:
            if raw:
                console.raw(data)
                return
            state = member.state + (f" ({member.reason})" if member.reason else "")
            console.out(f"{chosen.id}: {name}  {member.kind}, {state}")
            console.out(f"{mail.subject}\n")
            if mail.body:
                console.out(mail.body + "\n")
            for key, value in mail.trailers:
                console.out(f"{key}: {value}")
            for key, said in (
                ("env", member.env),
                ("needs", member.needs),
                ("bench", member.bench),
                ("claim", member.claim),
            ):
                if said:
                    console.out(f"{key}: {_plain(said)}")
            console.out()
            for file in files:
                console.out(f" {file['path']}  +{file['added']} -{file['removed']}")
            if not stat:
                console.out()
                console.raw(mail.diff)

        return Answer(data=shown, show=show)

    return run


def _for_upstream(ctx: Context, line: Line, name: str, onto: str | None) -> Answer:
    from stack.flows.sharing import upstreaming  # replays and merges, which plain `show` does not

    found = upstreaming.for_upstream(ctx.project, line, name, ctx.console.emit, onto=onto)

    def show(console: Console) -> None:
        console.raw(found.mail)
        for reason in found.reasons:
            console.say(reason)
        below = f" on top of {', '.join(found.needs)}, which it needs" if found.needs else ", alone"
        console.say(f"{line.id}: {name} stands on {found.revision}{below}")

    data = {
        "line": line.id, "patch": name, "revision": found.revision, "needs": list(found.needs),
        "reasons": list(found.reasons), "subject": found.subject,
        "mail": found.mail.decode("utf-8", "replace"), "pin": msgspec.to_builtins(found.pin),
    }
    return Answer(data=data, show=show)


def _find(
    project: Project, patch: str, upstream: str | None, line: str | None
) -> tuple[Line, str]:
    """The line and the patch that were named."""
    where, colon, name = patch.rpartition(":")
    if colon:
        return project.find(where), name
    if line or upstream:
        return options.find_line(project, upstream, line), patch
    every: list[str] = []
    for each in project.settings.upstream:
        labels = project.labels(each)
        default = project.settings.upstream[each].default
        for label in sorted(labels, key=lambda label: label != default):
            series = project.series(each, label)
            names = [member.name for member in series.patch]
            if patch in names:
                return project.line(each, label), patch
            every += names
    raise UsageError(f"no line has a patch `{patch}`", hint=near(patch, every, "stack list"))


def _plain(said: object) -> str:
    if isinstance(said, dict):
        return " ".join(f"{key}={value}" for key, value in said.items())
    return " ".join(said) if isinstance(said, tuple) else str(said)
