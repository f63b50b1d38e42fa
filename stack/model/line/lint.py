"""The rules for a patch's text. Each finding has a documented code, a line and one sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from stack.model.diff.hunks import FilePatch
from stack.model.line.line import Member
from stack.model.mail.mail import Mail

CODES: Mapping[str, str] = {
    "P001": "the file is not a patch mail that can be read whole, or reaches outside the tree",
    "P002": "the file is not as `stack export` would write it",
    "P101": "no `Why:` trailer",
    "P102": "no `Upstream-Status:` trailer, or not in OpenEmbedded's words",
    "P103": "no `Patch-Id:` trailer, or one that another patch of the line has",
    "P104": "more than one reason",
    "P105": "the subject is longer than 72 letters or ends in a full stop",
    "P201": "does not apply on the patches before it, or changes nothing there",
    "P202": "applies only at another place than it says",
    "P301": "Python that does not parse on its prefix",
    "P302": "imports a name that its prefix does not have",
    "P303": "adds a name that a later definition of the same scope shadows",
    "P401": "a whitespace error in an added line",
    "P501": "an `env` name that neither the patch nor one before it mentions",
    "P502": "an `env` name that upstream's registry does not have on this prefix",
    "P503": "a bench that stack.toml does not have",
    "P504": "needs a patch that no line has",
}
_STATUS = re.compile(
    r"\A(?:Pending|Submitted \[.+\]|Backport \[.+\]|Denied(?: \[.+\])?|Inappropriate \[.+\]"
    r"|Inactive-Upstream \[.+\])(?:\Z|[\s\[].*)",
    re.DOTALL,
)


class Finding(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One thing to mend: `file:line: code message`."""

    file: str
    line: int
    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.code} {self.message}"


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """A patch under review: its file's name, its bytes and what they say."""

    file: str
    member: Member
    mail: Mail
    files: tuple[FilePatch, ...]

    def at(self, needle: bytes) -> int:
        """The line (from 1) of the file on which `needle` first begins a line; 1 if nowhere."""
        place = (b"\n" + self.mail.raw).find(b"\n" + needle)
        return self.mail.raw.count(b"\n", 0, place) + 1 if place >= 0 else 1

    def at_new(self, path: str, numbers: Sequence[int]) -> int:
        """The line of the file that says one of the lines `numbers` (from 1) of the new `path`.

        An added one is preferred; without any it is where the diff of `path` begins.
        """
        places: dict[int, tuple[bool, int]] = {}
        begin = self.mail.diff_line
        for file in self.files:
            if file.new.decode("utf-8", "replace") != path:
                continue
            begin = file.at
            for hunk in file.hunks:
                here = hunk.new_start
                for offset, (sign, _) in enumerate(hunk.lines, 1):
                    if sign != b"-":
                        places[here] = (sign != b"+", hunk.at + offset)
                        here += 1
        return min((places[one] for one in numbers if one in places), default=(True, begin))[1]

    def finding(self, code: str, line: int, message: str) -> Finding:
        return Finding(file=self.file, line=line, code=code, message=message)


def header(subject: Subject) -> Iterator[Finding]:
    """Trailers, subject and reason."""
    mail = subject.mail
    names = [name.lower() for name, _ in mail.trailers]
    last = max(1, mail.diff_line - 1)
    if "why" not in names:
        yield subject.finding(
            "P101", last, "no `Why:` trailer: say in one paragraph what it is for"
        )
    elif not (mail.trailer("Why") or "").strip():
        yield subject.finding("P101", subject.at(b"Why:"), "the `Why:` trailer is empty")
    if names.count("why") > 1:
        yield subject.finding("P104", subject.at(b"Why:"), "two `Why:` trailers: split the patch")
    if re.search(r";|\band also\b|\bas well as\b", mail.subject, re.IGNORECASE):
        yield subject.finding(
            "P104", subject.at(b"Subject:"), "the subject names two things: split the patch"
        )
    status = mail.trailer("Upstream-Status")
    if status is None:
        yield subject.finding("P102", last, "no `Upstream-Status:` trailer")
    elif not _STATUS.match(status):
        yield subject.finding(
            "P102",
            subject.at(b"Upstream-Status:"),
            f"`{status.split(chr(10))[0][:40]}`: one of Pending, Submitted [where], "
            "Backport [commit], Denied, Inappropriate [reason], Inactive-Upstream [evidence]",
        )
    if not mail.trailer("Patch-Id"):
        yield subject.finding(
            "P103", last, "no `Patch-Id:` trailer: stack import and export add one"
        )
    if len(mail.subject) > 72:
        yield subject.finding(
            "P105",
            subject.at(b"Subject:"),
            f"the subject has {len(mail.subject)} letters, at most 72",
        )
    elif mail.subject.endswith("."):
        yield subject.finding("P105", subject.at(b"Subject:"), "the subject ends in a full stop")


def whitespace(subject: Subject) -> Iterator[Finding]:
    """Trailing blanks, blanks before tabs, carriage returns, blank lines at the end of a file."""
    for file in subject.files:
        if file.old_mode is None and file.hunks and file.hunks[-1].lines[-1] == (b"+", b"\n"):
            at = file.hunks[-1].at + len(file.hunks[-1].lines)
            yield subject.finding("P401", at, "a blank line at the end of the file")
        for hunk in file.hunks:
            crlf = any(text.endswith(b"\r\n") for sign, text in hunk.lines if sign == b" ")
            for offset, (sign, text) in enumerate(hunk.lines, 1):
                if sign != b"+":
                    continue
                line = hunk.at + offset
                body = text.rstrip(b"\n")
                if body.endswith(b"\r") and not crlf:
                    yield subject.finding("P401", line, "a carriage return at the end of the line")
                elif body.rstrip(b"\r") != body.rstrip(b"\r").rstrip():
                    yield subject.finding("P401", line, "blanks at the end of the line")
                elif re.match(rb"[ \t]* \t", body):
                    yield subject.finding("P401", line, "a blank before a tab")


def environment(
    subject: Subject, earlier: bytes, registry: bytes | None, prefix: str, where: str,
    series: tuple[str, int],
) -> Iterator[Finding]:
    """The names of `env` stand in the diff and, where upstream registers names, in its registry.

    `earlier` are the diffs of the patches on which this one stands: a switch may be theirs.
    `registry` is that file's content on the patch's prefix, `prefix` begins the names that belong
    in it, and `where` is its path. `series` is the place of the patch in its series.
    """
    diff = subject.mail.diff
    for name in subject.member.env:
        if name.encode() not in diff and name.encode() not in earlier:
            yield Finding(
                file=series[0], line=series[1], code="P501",
                message=f"env `{name}` of `{subject.member.name}` occurs neither in the patch nor "
                "in those before it",
            )
        elif (
            registry is not None
            and name.startswith(prefix)
            and b'"%s"' % name.encode() not in registry
        ):
            yield subject.finding(
                "P502", subject.mail.diff_line, f"env `{name}` is not registered in {where}"
            )
