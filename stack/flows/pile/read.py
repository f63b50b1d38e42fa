"""Read a pile: every file of it, decoded and parsed, with what orders it and what words it has."""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from stack.errors import BadPatch
from stack.flows.events import Emit, Progress
from stack.flows.pile.fit import Prefer
from stack.model.mail.mail import Mail, parse_mail
from stack.model.mail.mailbox import split_mailbox
from stack.model.pile import decode as pile_decode
from stack.model.pile.parse import parse
from stack.model.pile.sections import Damage, Flag, Section, reverse

PATCH_LIKE = (
    ".patch", ".diff", ".mbox", ".eml", ".gz", ".bz2", ".xz", ".b64", ".base64", ".patches",
    ".zip", ".tar", ".tgz", ".tbz2", ".txz", ".zst", ".7z",  # told to be unpacked
)
_NOTES = (".md", ".txt", ".rst", ".note")
_LEFT_OUT = {".git", "__pycache__", ".stack", "node_modules"}
_MOST_FILES = 20_000
_MOST_WORDS = 4000
_LARGEST = 96 << 20


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the pile; `series` is its place in a series file, `strip` and `back` its options.

    `named` says that it was typed, or that its name says that it holds a patch; `aside` why it is
    not looked into.
    """

    path: Path
    shown: str
    named: bool
    series: int | None = None
    strip: int | None = None
    back: bool = False
    aside: str = ""


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """One patch of the pile: what it does, its own words, and what it can be recognised by.

    `aside` is why its file was not read, `note_of` the input whose words it holds, `meant` the kind
    of diff that the user says it is.
    """

    file: str
    path: Path
    sections: tuple[Section, ...] = ()
    damage: Damage | None = None
    words: str = ""
    mail: Mail | None = None
    digest: str = ""
    series: int | None = None
    named: bool = True
    aside: str = ""
    note_of: str = ""
    meant: Prefer = ""

    @property
    def flags(self) -> set[Flag]:
        return {flag for section in self.sections for flag in section.flags}


def list_files(paths: Sequence[Path], folder: Path) -> list[Listed]:
    """Every file below the paths. Raises `BadPatch` for a path that is not there."""
    found: list[Listed] = []
    for path in paths:
        if path.is_dir():
            found += _folder(path, folder)
        elif path.is_file():
            found.append(Listed(path=path, shown=_shown(path, folder), named=True))
        else:
            raise BadPatch(
                f"{path}: no such file", hint="stack import --upstream NAME@REV PATH..."
            )
    return found


def _folder(path: Path, folder: Path) -> Iterator[Listed]:
    listed = path / "series"
    if listed.is_file():
        yield from _series(path, listed, folder)
        return
    count = 0
    for here, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT)
        for name in sorted([*names, *(name for name in folders if Path(here, name).is_symlink())]):
            file = Path(here, name)
            named = name.lower().endswith(PATCH_LIKE)
            shown = _shown(file, folder)
            count += 1
            if count > _MOST_FILES:
                raise BadPatch(f"{path}: more than {_MOST_FILES} files", hint="name its folders")
            if file.is_symlink():
                within = file.resolve().is_relative_to(path.resolve())
                if not within and (named or file.is_dir()):  # else it comes by its own name
                    why = "a link that leads out of the pile: name what it leads to"
                    yield Listed(path=file, shown=shown, named=named, aside=why)
            elif file.is_file():
                yield Listed(path=file, shown=shown, named=named)
            elif named:
                yield Listed(path=file, shown=shown, named=True, aside="no file to read")


def unlisted(path: Path, listed: Sequence[Path]) -> list[Path]:
    """The patches beside a series file that it does not name."""
    known = set(listed)
    return sorted(
        file for file in path.iterdir()
        if file.name.lower().endswith(PATCH_LIKE) and file.is_file() and file not in known
    )


def _series(path: Path, listed: Path, folder: Path) -> Iterator[Listed]:
    """The files of a quilt series, each with its own `-pN` and `-R`."""
    rows = listed.read_text(encoding="utf-8", errors="replace").splitlines()
    seen: list[Path] = []
    for at, row in enumerate(rows):
        try:
            words = shlex.split(row, comments=True)
        except ValueError:
            words = row.partition("#")[0].split()
        if not words:
            continue
        file = path / words[0]
        if not file.is_file():
            raise BadPatch(f"{listed}:{at + 1}: no such file: {words[0]}", hint="see `series`")
        seen.append(file)
        depth = next((word[2:] for word in words[1:] if word.startswith("-p")), "")
        yield Listed(
            path=file, shown=_shown(file, folder), named=True, series=at,
            strip=int(depth) if depth.isdigit() else None,
            back="-R" in words[1:] or "--reverse" in words[1:],
        )
    for at, file in enumerate(unlisted(path, seen), len(rows)):
        yield Listed(
            path=file, shown=_shown(file, folder), named=True, series=at,
            aside="its folder's series file does not name it",
        )


def _shown(path: Path, folder: Path) -> str:
    try:
        return str(path.relative_to(folder))
    except ValueError:
        return str(path)


def read_inputs(files: Sequence[Listed], emit: Emit) -> Iterator[Input]:
    """The patches of the files, in the order of the files; nothing is left out silently."""
    notes = {
        (file.path.parent, _stem(file.path)): file.path
        for file in files
        if file.path.suffix.lower() in _NOTES
    }
    owners = {
        (file.path.parent, _stem(file.path)): file.shown
        for file in files
        if file.named and not file.aside and file.path.suffix.lower() not in _NOTES
    }
    for number, file in enumerate(files):
        emit(Progress("reading", number, len(files), file.path.name))
        for one in read_file(file):
            owner = owners.get((file.path.parent, _stem(file.path)), "")
            if file.path.suffix.lower() in _NOTES and not (one.sections or one.damage):
                one = msgspec.structs.replace(one, note_of=owner)
            note = notes.get((file.path.parent, _stem(file.path)))
            if note is not None and note != file.path and one.sections and not one.words:
                words = note.read_bytes()[:_MOST_WORDS].decode("utf-8", "replace")
                one = msgspec.structs.replace(one, words=words.strip())
            yield one


def read_file(file: Listed) -> list[Input]:
    """The patches of one file: one, or one for each mail of a mailbox."""
    if file.aside:
        return [_input(file)]
    try:
        large = file.path.stat().st_size > _LARGEST
        data = b"" if large else file.path.read_bytes()
    except OSError as wrong:
        return [_input(file, damage=Damage(1, wrong.strerror or "cannot be read"))]
    if large:
        return [_input(file, damage=Damage(1, f"more than {_LARGEST >> 20} MiB"))]
    said = file.path.name.lower().endswith((".b64", ".base64"))
    texts = pile_decode.decode(data, name=_suffix(file.path), base64_said=said)
    if isinstance(texts, Damage):
        packed = file.named and pile_decode.is_packed(data)
        if packed or file.path.name.lower().endswith(PATCH_LIKE):
            return [_input(file, damage=texts)]
        return []
    mails = split_mailbox(texts[0].data) if len(texts) == 1 else []
    if len(mails) > 1 or (mails and _is_mail(mails[0][1])):
        found = []
        for first, raw in mails:
            shown = file.shown if len(mails) == 1 else f"{file.shown}:{first}"
            found.append(_of_mail(file, shown, raw, first))
        return found
    sections: list[Section] = []
    damage: Damage | None = None
    words: list[bytes] = []
    for text in texts:
        parsed = parse(text.data, first=text.first)
        sections += parsed.sections
        damage = damage or parsed.damage
        words += [text.around, parsed.prose]
    plain = len(texts) == 1 and texts[0].first == 1
    if not sections and damage is None and plain and not file.named:
        return []
    prose = b"\n".join(words)[:_MOST_WORDS].decode("utf-8", "replace").strip()
    whole = b"".join(text.data for text in texts)
    return [_input(file, sections=sections, damage=damage, words=prose, data=whole)]


def _input(
    file: Listed, *, sections: Sequence[Section] = (), damage: Damage | None = None,
    words: str = "", data: bytes = b"", mail: Mail | None = None, shown: str | None = None,
) -> Input:
    done = tuple(
        msgspec.structs.replace(reverse(one) if file.back else one, strip=file.strip)
        for one in sections
    )
    digest = hashlib.sha256(data + b"\0R" * file.back).hexdigest() if data else ""
    return Input(
        file=shown or file.shown, path=file.path, sections=done, damage=damage, words=words,
        mail=mail, digest=digest, series=file.series, named=file.named,
        aside=file.aside,
    )


def _of_mail(file: Listed, shown: str, raw: bytes, first: int) -> Input:
    """A patch in mail format; one whose headers are broken is read as a plain diff."""
    try:
        mail = parse_mail(raw, shown)
    except BadPatch:
        parsed = parse(raw, first=first)
        words = parsed.prose[:_MOST_WORDS].decode("utf-8", "replace").strip()
        return _input(
            file, sections=parsed.sections, damage=parsed.damage, words=words, data=raw,
            shown=shown,
        )
    parsed = parse(mail.diff, first=first + mail.diff_line - 1)
    return _input(
        file, sections=parsed.sections, damage=parsed.damage, words=mail.body, data=mail.diff,
        mail=mail, shown=shown,
    )


def _is_mail(raw: bytes) -> bool:
    return raw.startswith((b"From ", b"From: ", b"Subject: ", b"Date: ", b"Message-I"))


def _suffix(path: Path) -> str:
    """The suffix that says what a text is, below those that say how it is packed."""
    name = path.name.lower()
    for packed in (".gz", ".bz2", ".xz", ".b64", ".base64"):
        name = name.removesuffix(packed)
    return Path(name).suffix


def _stem(path: Path) -> str:
    """A file's name without all that says how it is packed."""
    return path.name.lower().partition(".")[0] if not path.name.startswith(".") else path.name
