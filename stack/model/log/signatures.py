"""What a log says about how a run ended: a catalogue of signatures and the innermost cause."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from stack.model.log.ending import Ending, judge
from stack.model.log.findings import Diagnosis, Finding
from stack.model.log.lines import Traces, clean
from stack.model.log.scan import Candidate, Needles, Scanner

_OUTCOME = re.compile(r"(blocked|stalled|degraded|quality|warning):[a-z0-9_]+|ok|progress")
_TRACEBACK = rb"Traceback \(most recent call last\)"
_MOST_TEXTS = 64


class Signature(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A text by which an outcome class is known in a log.

    `pattern` is a regular expression for one line; a group named `cause` narrows what is quoted.
    Classes are `blocked:`, `stalled:`, `degraded:`, `quality:` or `warning:` with a name, `ok` (the
    result was printed) or `progress` (what stalled before this line has gone on). A `wrapper` is
    reported only where no inner cause is found; a higher `priority` is nearer to the root.
    Raises ValueError for another class and for a pattern that is no regular expression.
    """

    name: str
    outcome: str = msgspec.field(name="class")
    pattern: str
    hint: str = ""
    wrapper: bool = False
    priority: int = 50
    min_count: int = 1

    def __post_init__(self) -> None:
        if not _OUTCOME.fullmatch(self.outcome):
            raise ValueError(f"no such class: {self.outcome}")
        try:
            re.compile(self.pattern.encode())
        except re.error as error:
            raise ValueError(f"bad pattern: {error}") from error


class Catalogue:
    """Signatures by name, compiled."""

    def __init__(self, signatures: Iterable[Signature]) -> None:
        self.signatures = tuple(signatures)
        self._needles: dict[tuple[bytes, ...], Needles] = {}
        self.compiled = [(one, re.compile(one.pattern.encode())) for one in self.signatures]

    @classmethod
    def load(cls, *documents: Mapping[str, Any]) -> Catalogue:
        """Merge the `signature` tables of parsed TOML documents; of equal names the last wins.

        Raises ValueError for a table that is no signature, naming it.
        """
        merged: dict[str, Signature] = {}
        for document in documents:
            for table in document.get("signature", ()):
                try:
                    signature = msgspec.convert(table, Signature)
                except msgspec.ValidationError as error:
                    name = table.get("name", "?") if isinstance(table, Mapping) else "?"
                    raise ValueError(f"signature {name}: {error}") from error
                merged[signature.name] = signature
        return cls(merged.values())

    def needles(self, extra: Sequence[bytes] = ()) -> Needles:
        """What a scanner looks for: the signatures by their index, `extra`, then tracebacks."""
        key = tuple(extra)
        if key not in self._needles:
            known = [pattern.pattern for _, pattern in self.compiled]
            self._needles[key] = Needles([*known, *key, _TRACEBACK])
        return self._needles[key]


class Classifier:
    """Takes the candidate lines of one log, in order, then says how the run ended."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._findings: dict[tuple[str, bool], Finding] = {}
        self._traces = Traces()
        self._result = False

    @property
    def wants_all(self) -> bool:
        """Whether a traceback is open, so that the lines that follow are needed too."""
        return self._traces.open

    def line(self, candidate: Candidate) -> None:
        """Note what one line says."""
        number, raw, patterns = candidate
        text = clean(raw)
        quoted = self._traces.quotes(text)
        known = went_on = False
        for index in sorted(i for i in patterns if i < len(self._catalogue.compiled)):
            signature, pattern = self._catalogue.compiled[index]
            match = pattern.search(text.body) or pattern.search(raw)
            if match is None:
                continue
            if signature.outcome == "ok":
                self._result = True
            elif signature.outcome == "progress":
                went_on = True
            else:
                known = True
                said = match["cause"] if "cause" in pattern.groupindex else text.body
                self._note(signature, number, clean(said).body, quoted)
        if went_on:  # last: a progress bar shows its whole history on one line
            self._went_on()
        error = self._traces.line(number, text)
        if error is not None and not known:
            self._note(_EXCEPTION, number, error, quoted=False)

    def _went_on(self) -> None:
        for key, finding in self._findings.items():
            if finding.outcome.startswith("stalled:") and finding.count:
                self._findings[key] = msgspec.structs.replace(finding, count=0)

    def _note(self, signature: Signature, number: int, said: bytes, quoted: bool) -> None:
        said = said.strip()[:500]
        name = signature.name
        if signature is _EXCEPTION:
            name = f"{name} {said.decode(errors='replace')}"
        key = (name, quoted)
        old = self._findings.get(key)
        if old is not None:
            self._findings[key] = msgspec.structs.replace(old, count=old.count + 1, last=number)
        elif signature is not _EXCEPTION or len(self._findings) < _MOST_TEXTS:
            self._findings[key] = Finding(
                signature=signature.name,
                outcome=signature.outcome,
                text=said.decode(errors="replace"),
                line=number,
                last=number,
                count=1,
                hint=signature.hint,
                wrapper=signature.wrapper,
                priority=signature.priority,
                min_count=signature.min_count,
            )

    def finish(self, ending: Ending, *, lines: int, last: bytes) -> Diagnosis:
        """The diagnosis, once the log is over; `last` is its last line that was not blank."""
        said = {name for name, quoted in self._findings if not quoted}
        # A traceback quotes the source line that raises before the message itself.
        found = [
            finding
            for (name, quoted), finding in self._findings.items()
            if finding.count and (not quoted or name not in said)
        ]
        tail = clean(last).body.strip()[:500].decode(errors="replace")
        return judge(found, ending, result=self._result, lines=lines, last=tail)


_EXCEPTION = Signature(
    name="exception",
    outcome="blocked:exception",
    pattern="",
    priority=30,
    hint="no signature knows this error: read the log around this line",
)


def classify(
    lines: Iterable[bytes],
    *,
    catalogue: Catalogue,
    exit_code: int | None = None,
    signal: int | None = None,
    timed_out: bool = False,
    stalled: bool = False,
    result: bool | None = None,
) -> Diagnosis:
    """Say how a run ended and why, from its log and from what the harness knows.

    `lines` are pieces of one or more whole lines. `exit_code` is negative for a signal, as in
    `subprocess`, and None where it is not known; `result` says whether the harness has read its
    metric, None lets a line of class `ok` decide.
    """
    scanner = Scanner(catalogue.needles())
    classifier = Classifier(catalogue)
    for candidate in scanner.scan(lines):
        classifier.line(candidate)
        scanner.follow = classifier.wants_all
    ending = Ending.of(exit_code, signal, timed_out=timed_out, stalled=stalled, result=result)
    return classifier.finish(ending, lines=scanner.lines, last=scanner.last)
