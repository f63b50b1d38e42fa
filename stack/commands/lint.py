"""`stack lint`: the text of patches, reviewed."""

from __future__ import annotations

import click
import msgspec

from stack import options
from stack.console import Console
from stack.context import Answer, Context, Verb
from stack.flows.sharing import lint as flow
from stack.model.line.lint import CODES, Finding


@click.command(short_help="Review the text of patches")
@click.argument("patches", nargs=-1, metavar="[PATCH]...")
@options.choose_line
@click.option("--codes", is_flag=True, help="List the codes")
def command(patches: tuple[str, ...], upstream: str | None, line: str | None, codes: bool) -> Verb:
    """Review the text of patches, of all lines or of one, on the prefix where each applies.

    Output like a linter's, `file:line: CODE message`; exit 1 where there is something to mend.
    """

    def run(ctx: Context) -> Answer:
        if codes:
            return Answer(
                data={"codes": dict(CODES)},
                show=lambda console: console.out("\n".join(f"{k}  {v}" for k, v in CODES.items())),
            )
        project = ctx.project
        if upstream or line or patches:
            chosen = [options.find_line(project, upstream, line)]
            for name in patches:
                chosen[0].series.member(name)
        else:
            chosen = [
                project.line(name, label)
                for name in project.settings.upstream
                for label in project.labels(name)
            ]
        found: list[Finding] = []
        skipped: list[str] = []
        for one in chosen:
            review = flow.lint(project, one, ctx.console.emit, only=patches)
            found += review.findings
            if review.unserved:
                skipped.append(f"{one.id}: {review.unserved}")

        def show(console: Console) -> None:
            for finding in found:
                console.out(str(finding))
            for text in skipped:
                console.warn(f"only the text was reviewed, not on its prefix: {text}")
            count = len(patches) or sum(len(one.series.patch) for one in chosen)
            console.say(f"{len(found)} findings in {count} patches of {len(chosen)} lines")

        data = {"findings": msgspec.to_builtins(found), "not_reviewed": skipped}
        return Answer(data=data, show=show, exit_code=1 if found else 0, partial=bool(skipped))

    return run
