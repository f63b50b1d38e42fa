"""Review the text of patches: header, canonical form, whitespace, Python on its prefix, names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from stack.errors import BadPatch, StackError
from stack.flows.base import open_base
from stack.flows.events import Emit
from stack.model import lint as rules
from stack.model.lint import Finding, Subject
from stack.model.mail import parse_mail
from stack.model.objects import FOLDER
from stack.model.outcome import Outcome, Step
from stack.model.parse_diff import parse_diff
from stack.repo.format import format_commits
from stack.repo.odb import ObjectStore
from stack.repo.replay import Item, replay
from stack.repo.semantics import suspects
from stack.store.project import Line, Project

_PLACE = re.compile(r"\A(.*?:\d+): (.*)\Z", re.DOTALL)
_KINDS = (("does not parse", "P301"), ("imports", "P302"), ("is shadowed", "P303"))


def lint(
    project: Project, line: Line, emit: Emit, *, only: Sequence[str] = ()
) -> list[Finding]:
    """The findings of a line (or only of some of its patches), in order of file and line.

    Rules that need the pin's source are left out, and said so, where no source can serve it.
    """
    findings: list[Finding] = []
    subjects: list[Subject] = []
    ids: dict[str, str] = {}
    for member in line.series.patch:
        name = project.shown(line.patch_path(member.name))
        try:
            mail = parse_mail(line.files[member.name], name)
            files = parse_diff(mail.diff, name, first=mail.diff_line)
        except BadPatch as wrong:
            findings.append(_unreadable(name, wrong))
            continue
        subject = Subject(file=name, member=member, mail=mail, files=files)
        subjects.append(subject)
        findings += rules.header(subject)
        findings += rules.whitespace(subject)
        findings += _references(project, subject)
        patch_id = mail.trailer("Patch-Id")
        if patch_id and patch_id in ids:
            findings.append(
                subject.finding(
                    "P103", subject.at(b"Patch-Id:"), f"`{ids[patch_id]}` has this Patch-Id"
                )
            )
        ids.setdefault(patch_id or "", member.name)
    findings += _on_the_pin(project, line, subjects, emit)
    wanted = {project.shown(line.patch_path(name)) for name in only}
    return sorted({one for one in findings if not only or one.file in wanted})


def _unreadable(name: str, wrong: StackError) -> Finding:
    match = _PLACE.match(wrong.message)
    number = int(match[1].rpartition(":")[2]) if match else 1
    return Finding(
        file=name, line=number, code="P001", message=match[2] if match else wrong.message
    )


def _references(project: Project, subject: Subject) -> Iterator[Finding]:
    """Benches and needed patches exist."""
    known = {
        f"{upstream}:{member.name}"
        for upstream in project.settings.upstream
        for label in project.labels(upstream)
        for member in project.series(upstream, label).patch
    }
    for bench in subject.member.bench:
        if bench not in project.settings.bench:
            yield subject.finding("P503", 1, f"bench `{bench}` is not in stack.toml")
    for need in subject.member.needs:
        if need not in known:
            yield subject.finding("P504", 1, f"needs `{need}`, which no line has")


def _on_the_pin(
    project: Project, line: Line, subjects: Sequence[Subject], emit: Emit
) -> Iterator[Finding]:
    """The rules that need the source: canonical form, place, Python, registered names."""
    base = open_base(project, line.series, emit)
    active = [one for one in subjects if one.member.state == "active"]
    with ObjectStore(base.git) as odb:
        yield from _chain(project, line, odb, base.commit, active, active)
        for parked in subjects:
            if parked.member.state == "parked":
                yield from _chain(project, line, odb, base.commit, [*active, parked], [parked])


def _chain(
    project: Project, line: Line, odb: ObjectStore, base: str, chain: Sequence[Subject],
    wanted: Sequence[Subject],
) -> Iterator[Finding]:
    """Judge `wanted`, the end of a chain of patches, on their prefixes."""
    items = [Item(name=one.member.name, mail=one.mail, files=one.files) for one in chain]
    steps = replay(odb, base, items)
    odb.write()
    before, tree = base, odb.commit(base).tree
    for subject, step in zip(chain, steps, strict=True):
        if subject in wanted:
            earlier = b"".join(one.mail.diff for one in chain[: chain.index(subject)])
            yield from _judge(project, line, odb, subject, step, before, tree, earlier)
        before, tree = step.commit or before, step.tree or tree


def _judge(
    project: Project, line: Line, odb: ObjectStore, subject: Subject, step: Step, before: str,
    tree: str, earlier: bytes,
) -> Iterator[Finding]:
    if step.outcome is not Outcome.CLEAN or not step.commit or not step.tree:
        clash = step.clashes[0] if step.clashes else None
        where = clash.patch_line if clash else subject.mail.diff_line
        why = clash.describe()[0] if clash else step.outcome.value
        yield subject.finding("P201", where, f"does not apply on the patches before it: {why}")
        return
    for offset in step.offsets:
        yield subject.finding("P202", subject.mail.diff_line, f"applies only elsewhere: {offset}")
    text = format_commits(odb.git, before, step.commit, context=line.series.context)[-1]
    if text != subject.mail.raw:
        held, made = subject.mail.raw.split(b"\n"), text.split(b"\n")
        at = next(
            (n for n, pair in enumerate(zip(held, made, strict=False), 1) if pair[0] != pair[1]),
            min(len(held), len(made)),
        )
        yield subject.finding("P002", at, "not as `stack export` would write it")
    for doubt in suspects(odb, tree, tree, tree, step.tree):
        path, _, why = doubt.partition(": ")
        code = next((code for words, code in _KINDS if words in why), None)
        if code:
            yield subject.finding(code, _file_line(subject, path), doubt)
    settings = project.settings.upstream[line.series.upstream]
    registry = None
    if settings.env_registry:
        entry = odb.find(step.tree, settings.env_registry.encode())
        registry = odb.blob(entry.oid) if entry and entry.mode != FOLDER else None
    yield from rules.environment(
        subject, earlier, registry, settings.env_prefix or "", settings.env_registry or ""
    )


def _file_line(subject: Subject, path: str) -> int:
    return next(
        (file.at for file in subject.files if file.path.decode("utf-8", "replace") == path),
        subject.mail.diff_line,
    )
