"""One answer for a pull request: do the patch files hold, read well, and have a future?"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from stack.errors import StackError, StateError
from stack.flows import needs
from stack.flows.events import Emit, Progress
from stack.flows.line.apply import outcome_counts
from stack.flows.line.export import export
from stack.flows.pins import newest_release
from stack.flows.prefixes import Replayed, replayed
from stack.flows.rebase import forecast as forecasts
from stack.flows.sharing import lint
from stack.flows.sharing.share import patch_texts
from stack.flows.upstream_news import is_older
from stack.model.line.line import Member
from stack.model.line.outcome import Outcome
from stack.store import atomic
from stack.store.project import Line, Project, names

DIFF = "export.diff"
_PLACE = re.compile(r"\A([^\s:]+):(\d+): (.*)\Z", re.DOTALL)
Result = Literal["ok", "failed", "note", "skipped"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something to mend, at a line (from 1) of a file of the project where it has one."""

    text: str
    file: str | None = None
    at: int | None = None


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One question to one line (or profile) and its answer; only `failed` turns the whole red."""

    name: str
    subject: str
    result: Result
    text: str
    findings: tuple[Finding, ...] = ()
    hint: str | None = None


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """Every step, and the fixed files that were written below `artifact`."""

    steps: tuple[Step, ...]
    artifact: str | None
    fixed: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return all(step.result != "failed" for step in self.steps)


def judge(
    project: Project, lines: Sequence[Line], emit: Emit, *, artifact: Path | None = None,
    forecast: bool = True, strict: bool = False,
) -> Judged:
    """Ask everything of every line; nothing of the project is written.

    A forecast tells, and fails only with `strict`; where no source names or serves a release it is
    skipped. With `artifact` the files that export would write otherwise are put there, at their
    paths in the project, with a diff for `git apply`.
    """
    steps: list[Step] = []
    fixed: dict[str, tuple[bytes, bytes]] = {}
    newest: dict[str, str | StackError] = {}
    for line in lines:
        emit(Progress("ci", detail=line.id))
        members = line.series.select()
        try:
            with replayed(project, line, members, emit) as found:
                counts = outcome_counts(found.steps)
                steps.append(_applied(project, line, found, counts))
                steps.append(_exported(project, line, found, fixed))
        except StackError as wrong:
            steps += [_failed("apply", line.id, wrong), _linted(project, line, emit)]
            continue
        steps += _workspace(project, line, emit)
        steps.append(_linted(project, line, emit))
        if forecast and members:
            steps.append(_forecast(project, line, members, newest, emit, strict=strict))
    steps += _needs(project)
    written: tuple[str, ...] = ()
    if artifact is not None and fixed:
        written = _write(artifact, fixed)
    return Judged(
        steps=tuple(steps), artifact=str(artifact) if written else None, fixed=tuple(fixed)
    )


def _failed(name: str, subject: str, wrong: StackError) -> Step:
    found = _PLACE.match(wrong.message)
    rest = "; ".join(wrong.context)
    first = Finding(
        text=(found[3] if found else wrong.message) + (f": {rest}" if rest else ""),
        file=found[1] if found else None, at=int(found[2]) if found else None,
    )
    return Step(
        name=name, subject=subject, result="failed", text=wrong.message, hint=wrong.hint,
        findings=(first,),
    )


def _applied(project: Project, line: Line, found: Replayed, counts: str) -> Step:
    bad = [
        Finding(
            text=f"{step.name}: {step.outcome.value}" + "".join(f"; {o}" for o in step.offsets),
            file=project.shown(line.patch_path(step.name)), at=1,
        )
        for step in found.steps
        if step.outcome is not Outcome.CLEAN
    ]
    return Step(
        name="apply", subject=line.id, result="note" if bad else "ok",
        text=f"{counts}; base from the {found.source}", findings=tuple(bad),
    )


def _exported(
    project: Project, line: Line, found: Replayed, fixed: dict[str, tuple[bytes, bytes]]
) -> Step:
    """Whether every active patch file is as `stack export` would write it."""
    try:
        texts = patch_texts(line, found)
    except StackError as wrong:
        return _failed("export", line.id, wrong)
    different: list[Finding] = []
    for name, text in texts.items():
        path = project.shown(line.patch_path(name))
        held = line.files[name]
        if held != text:
            fixed[path] = (held, text)
            different.append(Finding(text="not as stack export writes it", file=path,
                                     at=_first_difference(held, text)))
    if not different:
        return Step(name="export", subject=line.id, result="ok", text=f"{len(texts)} files hold")
    return Step(
        name="export", subject=line.id, result="failed", findings=tuple(different),
        text=f"{len(different)} of {len(texts)} files differ from what stack export writes",
        hint="stack apply && stack export --force, or git apply the artefact's export.diff",
    )


def _workspace(project: Project, line: Line, emit: Emit) -> Iterator[Step]:
    """A workspace, where there is one, has nothing that the files lack."""
    try:
        done = export(project, line, emit, check=True)
    except StateError:  # none, or in the middle of something: a fresh clone has none
        return
    except StackError as wrong:
        yield _failed("workspace", line.id, wrong)
        return
    if done.differs:
        yield Step(
            name="workspace", subject=line.id, result="failed",
            text="its commits are not in the patch files", hint="stack export",
            findings=tuple(Finding(text=name) for name in (*done.written, *done.added)),
        )


def _linted(project: Project, line: Line, emit: Emit) -> Step:
    try:
        review = lint.lint(project, line, emit)
    except StackError as wrong:
        return _failed("lint", line.id, wrong)
    found = review.findings
    text = f"{len(found)} findings in {len(line.series.patch)} patches"
    if review.unserved:
        text += f"; only the text was reviewed: {review.unserved}"
    return Step(
        name="lint", subject=line.id, result="failed" if found else "ok", text=text,
        findings=tuple(
            Finding(text=f"{one.code} {one.message}", file=one.file, at=one.line) for one in found
        ),
        hint="stack lint --codes says what each means" if found else None,
    )


def _forecast(
    project: Project, line: Line, members: Sequence[Member],
    newest: dict[str, str | StackError], emit: Emit, *, strict: bool,
) -> Step:
    upstream = line.series.upstream
    if upstream not in newest:
        try:
            newest[upstream] = newest_release(project, upstream, emit)
        except StackError as wrong:
            newest[upstream] = wrong
    release = newest[upstream]
    if isinstance(release, StackError):
        return Step(name="forecast", subject=line.id, result="skipped", text=release.message)
    if names(line.series, release):
        text = f"the line stands on {release}, the newest release"
        return Step(name="forecast", subject=line.id, result="ok", text=text)
    if is_older(release, line):  # a local repository that was not fetched for long
        text = f"the newest release at hand, {release}, is older than the line's"
        return Step(name="forecast", subject=line.id, result="skipped", text=text)
    found = forecasts.forecast(project, line, members, [release], emit)
    (column,) = found.columns
    if column.error is not None:
        return Step(name="forecast", subject=line.id, result="skipped",
                    text=f"{release}: {column.error}")
    trouble = [
        Finding(text=f"{name}: {text}", file=project.shown(line.patch_path(name)), at=1)
        for name, cell in zip(found.patches, column.cells, strict=True)
        for text in (*cell.trouble, *cell.suspects)
    ]
    letters = "".join(forecasts.LETTERS[cell.outcome] for cell in column.cells)
    return Step(
        name="forecast", subject=line.id, findings=tuple(trouble),
        result="ok" if not trouble else "failed" if strict else "note",
        text=f"{release}: {letters}, {column.distinct} questions open",
        hint=f"stack forecast --line {line.id} --onto {upstream}@{release} --why" if trouble
        else None,
    )


def _needs(project: Project) -> Iterator[Step]:
    for name, profile in project.settings.profile.items():
        if not profile.lines:
            continue
        try:
            needs.check(project, name, needs.lines_of(project, name))
        except StackError as wrong:
            yield _failed("needs", f"profile {name}", wrong)
        else:
            yield Step(name="needs", subject=f"profile {name}", result="ok", text="met")


def _first_difference(held: bytes, made: bytes) -> int:
    pairs = zip(held.split(b"\n"), made.split(b"\n"), strict=False)
    return next((at for at, (one, two) in enumerate(pairs, 1) if one != two), 1)


def _write(artifact: Path, fixed: dict[str, tuple[bytes, bytes]]) -> tuple[str, ...]:
    """Put the fixed files below a folder, and the diff that leads to them."""
    parts: list[bytes] = []
    for path, (held, made) in fixed.items():
        atomic.write(artifact / path, made)
        parts += [
            line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n"
            for line in difflib.diff_bytes(
                difflib.unified_diff, held.splitlines(keepends=True),
                made.splitlines(keepends=True), b"a/" + path.encode(), b"b/" + path.encode(),
            )
        ]
    atomic.write(artifact / DIFF, b"".join(parts))
    return tuple(fixed)
