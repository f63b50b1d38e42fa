"""Review the text of patches: header, canonical form, whitespace, Python on its prefix, names."""

from __future__ import annotations

import re
from collections.abc import Collection, Generator, Iterator, Sequence

import msgspec

from stack.errors import BadPatch, SourceError, StackError
from stack.flows.base import open_base
from stack.flows.events import Emit
from stack.model import toml
from stack.model.diff.parse import parse_diff
from stack.model.line import lint as rules
from stack.model.line.line import Member
from stack.model.line.lint import Finding, Subject
from stack.model.line.outcome import Outcome, Step
from stack.model.mail.mail import parse_mail
from stack.model.objects import FOLDER
from stack.repo.format import format_commits
from stack.repo.odb import ObjectStore
from stack.repo.replay import Item, replay
from stack.repo.semantics import flaws
from stack.store.project import SERIES, Line, Project

_PLACE = re.compile(r"\A(.*?:\d+): (.*)\Z", re.DOTALL)
_KINDS = (("does not parse", "P301"), ("imports", "P302"), ("is shadowed", "P303"))


class Review(msgspec.Struct, frozen=True, kw_only=True):
    """The findings of a line; `unserved` says why the rules that need its source were left out."""

    findings: tuple[Finding, ...]
    unserved: str | None = None


def lint(project: Project, line: Line, emit: Emit, *, only: Sequence[str] = ()) -> Review:
    """Review a line (or only some of its patches); findings in order of file and line.

    Nothing is judged on a prefix that is not known: behind a patch that cannot be read, or that
    does not apply.
    """
    found: list[tuple[str, Finding]] = []  # with the patch that each is about
    subjects: list[Subject] = []
    unreadable: set[str] = set()
    ids: dict[str, str] = {}
    for member in line.series.patch:
        name = project.shown(line.patch_path(member.name))
        try:
            mail = parse_mail(line.files[member.name], name)
            files = parse_diff(mail.diff, name, first=mail.diff_line)
        except BadPatch as wrong:
            found.append((member.name, _unreadable(name, wrong)))
            unreadable.add(member.name)
            continue
        subject = Subject(file=name, member=member, mail=mail, files=files)
        subjects.append(subject)
        patch_id = mail.trailer("Patch-Id")
        if patch_id and patch_id in ids:
            text = f"`{ids[patch_id]}` has this Patch-Id"
            found.append((member.name, subject.finding("P103", subject.at(b"Patch-Id:"), text)))
        ids.setdefault(patch_id or "", member.name)
        for rule in (rules.header, rules.whitespace):
            found += [(member.name, one) for one in rule(subject)]
        found += [(member.name, one) for one in _references(project, line, subject)]
    unserved = None
    try:
        found += list(_on_the_pin(project, line, subjects, unreadable, emit))
    except SourceError as wrong:
        unserved = wrong.message
    kept = {one for name, one in found if not only or name in only}
    return Review(findings=tuple(sorted(kept)), unserved=unserved)


def _unreadable(name: str, wrong: StackError) -> Finding:
    match = _PLACE.match(wrong.message)
    number = int(match[1].rpartition(":")[2]) if match else 1
    text = match[2] if match else wrong.message
    return Finding(file=name, line=number, code="P001", message=text)


def _series_place(project: Project, line: Line, member: Member, key: str) -> tuple[str, int]:
    """The file and line where a key of a patch stands."""
    path = line.folder / SERIES
    data, at = path.read_bytes(), line.series.patch.index(member)
    return project.shown(path), toml.line_of(data, {}, f"patch[{at}].{key}")


def _references(project: Project, line: Line, subject: Subject) -> Iterator[Finding]:
    """Benches and needed patches exist."""
    known = {
        f"{upstream}:{member.name}"
        for upstream in project.settings.upstream
        for label in project.labels(upstream)
        for member in project.series(upstream, label).patch
    }
    member = subject.member
    for bench in member.bench:
        if bench not in project.settings.bench:
            file, at = _series_place(project, line, member, "bench")
            text = f"bench `{bench}` of `{member.name}` is not in stack.toml"
            yield Finding(file=file, line=at, code="P503", message=text)
    for need in member.needs:
        if need not in known:
            file, at = _series_place(project, line, member, "needs")
            text = f"`{member.name}` needs `{need}`, which no line has"
            yield Finding(file=file, line=at, code="P504", message=text)


def _on_the_pin(
    project: Project, line: Line, subjects: Sequence[Subject], unreadable: Collection[str],
    emit: Emit,
) -> Iterator[tuple[str, Finding]]:
    """The rules that need the source: canonical form, place, Python, registered names."""
    base = open_base(project, line.series, emit)
    by_name = {one.member.name: one for one in subjects}
    chain: list[Subject] = []
    whole = True
    for member in line.series.select():
        if member.name in unreadable:
            whole = False
            break
        chain.append(by_name[member.name])
    with ObjectStore(base.git) as odb:
        judge = _Judge(project, line, odb, base.commit)
        whole = (yield from judge.chain(chain, len(chain))) and whole
        for parked in subjects if whole else ():
            if parked.member.state == "parked":
                yield from judge.chain([*chain, parked], 1)


class _Judge:
    """Judges patches on their prefixes, which it makes by replaying them."""

    def __init__(self, project: Project, line: Line, odb: ObjectStore, base: str) -> None:
        self.project, self.line, self.odb, self.base = project, line, odb, base

    def chain(
        self, chain: Sequence[Subject], wanted: int
    ) -> Generator[tuple[str, Finding], None, bool]:
        """Judge the last `wanted` of a chain of patches; whether all of them apply."""
        items = [Item(name=one.member.name, mail=one.mail, files=one.files) for one in chain]
        steps = replay(self.odb, self.base, items)
        self.odb.write()
        before, tree, earlier = self.base, self.odb.commit(self.base).tree, b""
        for at, (subject, step) in enumerate(zip(chain, steps, strict=True)):
            if step.outcome is not Outcome.CLEAN or not step.commit or not step.tree:
                yield subject.member.name, _refused(subject, step)
                return False
            if at >= len(chain) - wanted:
                for one in self._judge(subject, step, before, tree, earlier):
                    yield subject.member.name, one
            before, tree, earlier = step.commit, step.tree, earlier + subject.mail.diff
        return True

    def _judge(
        self, subject: Subject, step: Step, before: str, tree: str, earlier: bytes
    ) -> Iterator[Finding]:
        mail, odb = subject.mail, self.odb
        assert step.commit is not None
        assert step.tree is not None
        for offset in step.offsets:
            yield subject.finding("P202", mail.diff_line, f"applies only elsewhere: {offset}")
        text = format_commits(odb.git, before, step.commit, context=self.line.series.context)[-1]
        if text != mail.raw and not step.offsets:  # an offset alone makes it differ
            pairs = zip(mail.raw.split(b"\n"), text.split(b"\n"), strict=False)
            at = next((n for n, pair in enumerate(pairs, 1) if pair[0] != pair[1]), 1)
            yield subject.finding("P002", at, "not as `stack export` would write it")
        for path, why in flaws(odb, tree, step.tree):
            code = next((code for words, code in _KINDS if words in why), None)
            if code:
                at = subject.at_new(path, [int(one) for one in re.findall(r"\bline (\d+)", why)])
                yield subject.finding(code, at, f"{path}: {why}")
        settings = self.project.settings.upstream[self.line.series.upstream]
        registry = None
        if settings.env_registry:
            entry = odb.find(step.tree, settings.env_registry.encode())
            registry = odb.blob(entry.oid) if entry and entry.mode != FOLDER else None
        yield from rules.environment(
            subject, earlier, registry, settings.env_prefix or "", settings.env_registry or "",
            _series_place(self.project, self.line, subject.member, "env"),
        )


def _refused(subject: Subject, step: Step) -> Finding:
    if step.outcome is Outcome.CONFLICT and step.clashes:
        clash = step.clashes[0]
        text = f"does not apply on the patches before it: {clash.describe()[0]}"
        return subject.finding("P201", clash.patch_line, text)
    text = "changes nothing on the patches before it"
    return subject.finding("P201", subject.mail.diff_line, text)
