"""`stack status`: the workspaces against the patch files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from stack import options
from stack.console import Console
from stack.context import Answer, Context, Verb
from stack.flows.line import status as flow
from stack.store.project import Project

if TYPE_CHECKING:
    from stack.flows import upstream_news
    from stack.flows.builds import running


SHOWN = 6


@click.command(short_help="Compare the workspaces with the patch files")
@options.choose_line
@click.option("--check", is_flag=True, help="Exit 1 unless every workspace that exists is clean")
@click.option("--news", is_flag=True, help="Say what upstream did since each pin (no network)")
def command(upstream: str | None, line: str | None, check: bool, news: bool) -> Verb:
    """Compare the workspaces with the patch files.

    clean: they say the same. edited: uncommitted work. ahead: commits to export. behind: patch
    files to apply. diverged: both. editing: it stands at a patch that is being edited. absent:
    never applied here. Behind them stands what each environment runs (stack use, stack install),
    and whether its files were edited since. --news looks into the repositories at hand for newer
    releases, and for upstream's commits to the files that the patches change.
    """

    def run(ctx: Context) -> Answer:
        project = ctx.project
        if line or (upstream and "@" in upstream):
            series = options.find_line(project, upstream, line).series
            rows = [flow.line_status(project, series.upstream, series.pin.label)]
        else:
            rows = flow.status(project, (project.upstream(upstream)[0],) if upstream else None)
        told = [_news(project, row.line) for row in rows] if news else []
        served = [] if line or upstream else _environments(project)
        cut_off = flow.pending(project.paths)
        off = cut_off or any(row.state not in ("clean", "absent") for row in rows)

        def show(console: Console) -> None:
            width = max((len(row.line) for row in rows), default=0)
            for row in rows:
                word = row.state if row.state == "absent" else f"{row.state}, {row.applied} applied"
                text = f"{row.line.ljust(width)}  {row.pin}  {word}"
                console.out(text + "".join(f"\n    {note}" for note in row.notes))
            for one_news in told:
                _show_news(console, one_news)
            for one in served:
                number = f" (number {one.number})" if one.number else ""
                console.out(f"{one.kind} {one.name}  runs {one.runs}{number}  {one.state}")
                for name in one.edited[:SHOWN]:
                    console.out(f"    {name}")
                if len(one.edited) > SHOWN:
                    console.out(f"    ... and {len(one.edited) - SHOWN} more")
                if one.state == "edited":
                    what = f"--venv {one.name}" if one.kind == "venv" else f"--profile {one.name}"
                    where = one.runs.partition(":")[0]
                    console.say(f"    stack capture {what} --line {where} NAME keeps the edits")
            if not rows:
                console.say("no lines yet: stack line add NAME@REV")
            if cut_off:
                console.warn("a command was killed here; the next change completes what it began")

        data = {
            "lines": msgspec.to_builtins(rows), "news": msgspec.to_builtins(told),
            "environments": msgspec.to_builtins(served),
            "cut_off": cut_off,
        }
        return Answer(data=data, show=show, exit_code=1 if check and off else 0)

    return run


def _environments(project: Project) -> list[running.Running]:
    """What environments run; where nothing was ever served, the modules for that stay away."""
    state = project.paths.state
    if not (state / "active").is_dir() and not (state / "installed").is_dir():
        return []
    from stack.flows.builds import running

    return running.environments(project)


def _news(project: Project, line: str) -> upstream_news.News:
    from stack.flows import upstream_news

    return upstream_news.news(project, project.find(line))


def _show_news(console: Console, news: upstream_news.News) -> None:
    parts = [f"{news.commits} commits behind {news.newest}"] if news.commits is not None else []
    if news.releases:
        more = f"{len(news.releases)} newer releases, the last {news.releases[-1]}"
        parts.append(more if len(news.releases) > 1 else f"newer release {news.releases[-1]}")
    if news.unknown:
        parts.append(news.unknown)
    console.out(f"{news.line}: {'; '.join(parts) or 'nothing newer is at hand'}")
    for one in news.touched:
        console.out(
            f"    {one.path}  {one.commits} commits, last {one.last[:12]} {one.subject}"
        )
