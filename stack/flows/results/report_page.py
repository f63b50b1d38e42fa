"""What the page of a report shows: the lines with their patches, and all that was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from stack.errors import BadPatch
from stack.flows.events import Emit, Said
from stack.flows.pile import listed
from stack.flows.rebase.forecast import LETTERS, forecast
from stack.flows.results.report import Report
from stack.model.mail.mail import parse_mail
from stack.model.measure.ladder import Cumulative, cumulative
from stack.model.measure.trial import Trial, VerdictRecord
from stack.model.project.settings import Profile
from stack.repo.replay import show
from stack.report.html import (
    Cell,
    Effect,
    Ladder,
    Matrix,
    Outcomes,
    Page,
    Piece,
    Rung,
    Taken,
    render,
)
from stack.store.ledger import Ledger
from stack.store.project import Line, Project

BASE, MARGINAL = "base", "marginal"


def page(
    project: Project, found: Report, emit: Emit, *, revisions: Sequence[str] = ()
) -> str:
    """The last verdicts, their history and their patches as one HTML document.

    With `revisions` it also says what a rebase of each line to them would meet.
    """
    ledger = Ledger(project.paths.ledger)

    def warn(text: str) -> None:
        emit(Said(text, warning=True))

    _, profile = project.profile(found.profile)
    records = [
        one for one in ledger.verdicts(warn)
        if one.profile == found.profile and one.mode != "screen"
    ]
    replaced = {record.replaces for record in records}
    verdicts = tuple(record for record in records if record.id not in replaced)
    measured = [one for one in ledger.trials(warn) if one.profile == found.profile]
    seen = {record.machine for record in verdicts} | {trial.machine for trial in measured}
    return render(Page(
        profile=found.profile, verdicts=verdicts, trials=tuple(found.trials.values()),
        ladders=tuple(
            _ladder(project, project.find(text), found) for text in profile.lines
        ),
        matrices=tuple(_matrices(project, profile, revisions, emit)),
        outcomes=tuple(_outcomes(measured)),
        machines=tuple(one for name, one in found.machines.items() if name in seen),
        inputs=_inputs(project),
    ))


def imported(project: Project) -> str | None:
    """A page of what the last imports made of each file alone; None where nothing was imported."""
    found = _inputs(project)
    return render(Page(
        profile="", ladders=(), verdicts=(), trials=(), outcomes=(), machines=(), inputs=found,
    )) if found else None


def _inputs(project: Project) -> tuple[Taken, ...]:
    return tuple(
        Taken(
            file=row.file, upstream=row.upstream or "", result=row.result, patches=row.patches,
            reason=row.reason,
        ) for row in listed.read(project)
    )


def _matrices(
    project: Project, profile: Profile, revisions: Sequence[str], emit: Emit
) -> Iterator[Matrix]:
    """What each line of the profile would meet at these revisions, `UPSTREAM@REV` or REV."""
    for line in (project.find(text) for text in profile.lines):
        wanted = [
            text.rpartition("@")[2] for text in revisions
            if text.rpartition("@")[0] in ("", line.series.upstream)
        ]
        if not wanted:
            continue
        told = forecast(project, line, line.series.select(), wanted, emit)
        whole = [column for column in told.columns if column.error is None]
        yield Matrix(
            line=line.id, revisions=tuple(column.revision for column in whole),
            rows=tuple(
                (name, tuple(
                    Cell(
                        letter=LETTERS[one.outcome], outcome=one.outcome.value,
                        why="; ".join(one.trouble),
                    ) for one in (column.cells[at] for column in whole)
                )) for at, name in enumerate(told.patches)
            ),
            notes=tuple(
                f"{column.revision}: {column.error}" for column in told.columns if column.error
            ),
        )


def _ladder(project: Project, line: Line, found: Report) -> Ladder:
    records: dict[str, list[VerdictRecord]] = {}
    for record in found.verdicts:
        if record.line == line.id:
            records.setdefault(record.patch, []).append(record)
    products = _products(line, records)
    rungs = []
    for member in line.series.patch:
        data = line.files[member.name]
        effects = tuple(
            Effect(
                record=record, minimum=_minimum(project, record),
                stale=found.stale.get(record.id),
                cumulative=None if record.mode != MARGINAL
                else products.get((member.name, record.bench)),
            )
            for record in records.get(member.name, ())
        )
        try:
            mail = parse_mail(data, project.shown(line.patch_path(member.name)))
        except BadPatch as wrong:
            rungs.append(Rung(
                member=member, subject=wrong.message, author="", body="", trailers=(),
                diff=tuple(pieces(data)), effects=effects,
            ))
            continue
        who = b"%s <%s>" % (mail.author.name, mail.author.email)
        rungs.append(Rung(
            member=member, subject=_safe(mail.subject), author=show(who), body=_safe(mail.body),
            trailers=tuple((name, _safe(value)) for name, value in mail.trailers),
            diff=tuple(pieces(mail.diff)), effects=effects,
        ))
    return Ladder(line=line.id, pin=line.series.pin, rungs=tuple(rungs))


def _products(
    line: Line, records: Mapping[str, list[VerdictRecord]]
) -> dict[tuple[str, str], Cumulative | None]:
    """What the line came to at each patch, by patch and bench."""
    found: dict[tuple[str, str], Cumulative | None] = {}
    names = [member.name for member in line.series.select()]
    for bench in dict.fromkeys(one.bench for some in records.values() for one in some):
        marginal = {
            one.patch: one
            for some in records.values() for one in some
            if (one.bench, one.mode) == (bench, MARGINAL)
        }
        chain = [marginal.get(name) for name in names]
        for name, product in zip(names, cumulative(chain, base=BASE), strict=True):
            found[name, bench] = product
    return found


def _minimum(project: Project, record: VerdictRecord) -> float:
    bench = project.settings.bench.get(record.bench)
    return bench.minimum_effect if bench else 0.0


def _outcomes(trials: list[Trial]) -> Iterator[Outcomes]:
    """The classes in which trials ended, the most frequent first."""
    by_class: dict[str, list[Trial]] = {}
    for trial in trials:
        by_class.setdefault(trial.outcome, []).append(trial)
    for outcome, some in sorted(by_class.items(), key=lambda pair: -len(pair[1])):
        yield Outcomes(outcome=outcome, count=len(some), last=some[-1])


def pieces(diff: bytes) -> Iterator[Piece]:
    """A diff in pieces of one kind, as text in which nothing invisible is left."""
    for kind, lines in groupby(_kinds(diff), key=lambda pair: pair[0]):
        yield Piece(kind=kind, text="".join(f"{show(line)}\n" for _, line in lines))


def _kinds(diff: bytes) -> Iterator[tuple[str, bytes]]:
    signs = {b"+": "added", b"-": "removed", b" ": "same", b"\\": "same", b"": "same"}
    inside = False
    for line in diff.removesuffix(b"\n").split(b"\n"):
        if line.startswith(b"@@ "):
            inside = True
            yield "hunk", line
        elif inside and line[:1] in signs:
            yield signs[line[:1]], line
        else:
            inside = False
            yield "head", line


def _safe(text: str) -> str:
    """Text of a patch with its line ends, and nothing else that cannot be seen."""
    return "\n".join(
        show(line.encode("utf-8", "surrogateescape")) for line in text.split("\n")
    )
