"""How alike commits and patches are, by the lines that they add and remove."""

from __future__ import annotations

from collections import Counter

from stack.errors import BadPatch
from stack.model.diff.linediff import changes, split
from stack.model.diff.parse import parse_diff
from stack.model.mail.mail import Mail, parse_mail
from stack.model.objects import SUBMODULE, Entry
from stack.repo.odb import ObjectStore
from stack.store.project import Line

Content = Counter[tuple[bytes, bytes, bytes]]
"""How often a change adds or removes each line: path, sign, text."""


def mail_of(line: Line, name: str) -> Mail | None:
    """A patch of a line as mail; None where its file is damaged."""
    try:
        return parse_mail(line.files[name], f"{name}.patch")
    except BadPatch:
        return None


class Contents:
    """What commits and patches add and remove, compared."""

    def __init__(self, odb: ObjectStore, line: Line) -> None:
        self.odb, self.line = odb, line
        self._commits: dict[str, Content] = {}
        self._patches: dict[str, Content] = {}

    def shared(self, oid: str, name: str) -> int:
        """How many lines a commit and a patch have in common."""
        return (self._commit(oid) & self._patch(name)).total()

    def likeness(self, oid: str, name: str) -> float:
        """The shared part of the smaller one, plus a little for size; 0 below one half."""
        shared = self.shared(oid, name)
        smaller = min(self._commit(oid).total(), self._patch(name).total())
        if shared * 2 < smaller or not shared:
            return 0.0
        return shared + shared / max(self._commit(oid).total(), self._patch(name).total())

    def _commit(self, oid: str) -> Content:
        if oid not in self._commits:
            made = self.odb.commit(oid)
            parent = self.odb.commit(made.parents[0]).tree
            found: Content = Counter()
            for path, (left, right) in self.odb.changed(parent, made.tree).items():
                old, new = self._lines(left), self._lines(right)
                for a, b, c, d in changes(old, new):
                    found.update((path, b"-", text) for text in old[a:b])
                    found.update((path, b"+", text) for text in new[c:d])
            self._commits[oid] = found
        return self._commits[oid]

    def _lines(self, entry: Entry | None) -> list[bytes]:
        if entry is None or entry.mode == SUBMODULE:
            return []
        return split(self.odb.blob(entry.oid))

    def _patch(self, name: str) -> Content:
        if name not in self._patches:
            found: Content = Counter()
            mail = mail_of(self.line, name)
            for file in parse_diff(mail.diff, name, first=mail.diff_line) if mail else ():
                for hunk in file.hunks:
                    found.update(
                        (file.path, sign, text) for sign, text in hunk.lines if sign in b"+-"
                    )
            self._patches[name] = found
        return self._patches[name]
