"""Import: mail patches join a line in order, written canonically; what was set aside is listed."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from stack.errors import BadPatch, Conflict, UsageError
from stack.flows.base import open_base
from stack.flows.events import Emit, Said
from stack.flows.intake.enter import enter
from stack.flows.pile.read import unlisted
from stack.flows.prefixes import items
from stack.flows.transaction import line_files, writing
from stack.model.diff.parse import parse_diff
from stack.model.line.line import Member
from stack.model.line.outcome import Outcome
from stack.model.mail.mail import Mail, parse_mail
from stack.model.mail.mailbox import split_mailbox
from stack.model.project.settings import SourceKind
from stack.repo.format import refuse_unmailable, slug, unique
from stack.repo.odb import ObjectStore
from stack.repo.replay import Item, replay
from stack.store.project import Line, Project

_NUMBER = re.compile(r"\A\d+[-_.]")


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one mail; `name` is the patch that it is, or would have been."""

    file: str
    name: str
    subject: str
    outcome: Outcome
    added: bool
    known: bool = False
    note: str = ""


def as_input(row: Placed, upstream: str) -> dict[str, object]:
    """A mail's row in the words that every import has for what became of a file."""
    result = "placed" if row.added else "upstreamed" if row.outcome is Outcome.UPSTREAMED else (
        "duplicate" if row.known else "contained"
    )
    return {
        "file": row.file, "upstream": upstream, "result": result,
        "patches": [row.name] if row.added or row.known else [], "reason": row.note,
        "known": row.known,
    }


class _Found(msgspec.Struct, frozen=True, kw_only=True):
    """A mail on its way in."""

    file: str
    item: Item


def import_mails(
    project: Project, line: Line, paths: Sequence[Path], emit: Emit, *, dry_run: bool = False,
    source: SourceKind | None = None, command: tuple[str, ...] = (),
) -> list[Placed]:
    """Add the patches of mail files, mailboxes and folders of them behind the active ones.

    A mail whose Patch-Id or diff the line has already is skipped. Raises `Conflict` where one
    does not apply on those before it; nothing is changed then.
    """
    if dry_run:
        return _import(project, line, paths, emit, source, None)
    with writing(project, f"import into {line.id}", emit):
        line = project.line(line.series.upstream, line.series.pin.label)
        return _import(project, line, paths, emit, source, command)


def _import(
    project: Project, line: Line, paths: Sequence[Path], emit: Emit, source: SourceKind | None,
    command: tuple[str, ...] | None,
) -> list[Placed]:
    series = line.series
    active = series.select()
    present = items(line, series.patch, project)
    known = {_key(item.mail): item.name for item in present}
    known |= {_digest(item.mail): item.name for item in present}
    placed: dict[str, Placed] = {}
    new: list[_Found] = []
    taken = {member.name for member in series.patch}
    taken |= {name.removesuffix(".patch") for name in line_files(line.folder) or {}}
    for file, mail in read_mails(paths, emit):
        diff = parse_diff(mail.diff, file, first=mail.diff_line)
        twin = known.get(_key(mail)) or known.get(_digest(mail))
        if twin:
            if file not in placed:
                placed[file] = Placed(
                    file=file, name=twin, subject=mail.subject, outcome=Outcome.NOT_TRIED,
                    added=False, known=True, note=f"already in the line as {twin}",
                )
            continue
        name = unique(_name(file, mail), taken)
        taken.add(name)
        known |= {_key(mail): name, _digest(mail): name}
        placed[file] = Placed(
            file=file, name=name, subject=mail.subject, outcome=Outcome.NOT_TRIED, added=False
        )
        new.append(_Found(file=file, item=Item(name=name, mail=_identified(mail), files=diff)))
    if not new:
        return list(placed.values())
    base = open_base(project, series, emit, source=source)
    with ObjectStore(base.git) as odb:
        own = [item for item in present if item.name in {member.name for member in active}]
        steps = replay(odb, base.commit, [*own, *(found.item for found in new)])
        for step, found in zip(steps[len(own) :], new, strict=True):
            if step.outcome is Outcome.CONFLICT:
                raise Conflict(
                    f"{found.file}: does not apply on {line.id}",
                    context=[text for clash in step.clashes for text in clash.describe()],
                    hint="nothing was imported; import up to it, or make it for this pin",
                )
            added = step.outcome is Outcome.CLEAN
            notes = list(step.offsets)
            if not added:
                there = step.outcome is Outcome.UPSTREAMED
                notes = ["its effect is there already" if there else "it changes nothing"]
            placed[found.file] = msgspec.structs.replace(
                placed[found.file], outcome=step.outcome, added=added, note="; ".join(notes)
            )
        broken = next((s for s in steps[: len(own)] if s.outcome is Outcome.CONFLICT), None)
        if broken is not None:
            raise Conflict(
                f"patch `{broken.name}` of {line.id} does not apply itself", hint="stack apply"
            )
        entering = [found for found in new if placed[found.file].added]
        if command is not None and entering:
            start = next((s.commit for s in reversed(steps[: len(own)]) if s.commit), base.commit)
            ends = [step.commit for step in steps if step.commit]
            for found in entering:
                refuse_unmailable(found.item.mail.message, found.file)
            enter(
                project, odb, base.git, series, start, str(ends[-1]),
                [Member(name=found.item.name) for found in entering], command,
            )
    return list(placed.values())


def read_mails(paths: Sequence[Path], emit: Emit) -> list[tuple[str, Mail]]:
    """Every mail of the files and folders, in order; a folder by its `series` file or by name."""
    found: list[tuple[str, Mail]] = []
    for path in _files(paths, emit):
        data = path.read_bytes()
        mails = split_mailbox(data)
        for first, raw in mails:
            name = str(path) if len(mails) == 1 else f"{path}:{first}"
            found.append((name, parse_mail(raw, name)))
    if not found:
        raise UsageError("no patch files there", hint="stack import --upstream NAME@REV PATH...")
    return found


def _files(paths: Sequence[Path], emit: Emit) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        listed = path / "series"
        if listed.is_file():
            rows = [line.partition("#")[0].split() for line in listed.read_text().splitlines()]
            named = [path / row[0] for row in rows if row]
            files += named
            for file in unlisted(path, named):
                emit(Said(f"{file}: its folder's series file does not name it", warning=True))
        else:
            files += sorted(p for p in path.iterdir() if p.suffix in (".patch", ".mbox", ".eml"))
    for file in files:
        if not file.is_file():
            raise BadPatch(
                f"{file}: no such file", hint="stack import --upstream NAME@REV PATH..."
            )
    return files


def _name(file: str, mail: Mail) -> str:
    """A file's own name; the subject for a mailbox or a name that git made (numbered)."""
    path = Path(file)
    if path.suffix == ".patch" and path.is_file() and not _NUMBER.match(path.stem):
        return slug(path.stem)
    return slug(mail.subject)


def _identified(mail: Mail) -> Mail:
    """The mail with a Patch-Id, made from what it says where it has none."""
    if mail.trailer("Patch-Id"):
        return mail
    made = hashlib.sha256(mail.message + mail.author.render() + mail.diff).hexdigest()[:16]
    return msgspec.structs.replace(mail, trailers=(*mail.trailers, ("Patch-Id", made)))


def _key(mail: Mail) -> str:
    return mail.trailer("Patch-Id") or hashlib.sha256(mail.raw).hexdigest()


def _digest(mail: Mail) -> str:
    """A digest of what the diff does, without blob ids and hunk places."""
    kept = [
        line
        for line in mail.diff.split(b"\n")
        if not line.startswith((b"index ", b"@@ ", b"diff --git "))
    ]
    return hashlib.sha256(b"\n".join(kept).strip()).hexdigest()
