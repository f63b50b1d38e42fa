"""An upstream's history at the paths of a series: what stood there after every commit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from stack.model.objects import Entry
from stack.repo.client import Git

_PULL = re.compile(r"\(#(\d+)\)\s*$")
_BEGIN = b"\x01"


class Landed(msgspec.Struct, frozen=True, kw_only=True):
    """An upstream commit and what to call it; `pull` is its pull request number."""

    commit: str
    subject: str
    pull: int | None = None


class State(msgspec.Struct, frozen=True, kw_only=True):
    """What stands at a path from a commit on; `order` counts the commits of one history."""

    order: int
    commit: str
    entry: Entry | None


class History:
    """The commits that lead to `new` and touch one of `paths`, on the first-parent line.

    `known` says whether there is a history of `new` at all. Where `old` stands in it too, it begins
    behind their merge base, and `joined` is true. A release archive's commit has no parents: then
    each path's states begin behind the last one that is what `old` has (`anchored`), if any is.
    """

    def __init__(self, git: Git, old: str, new: str, paths: Sequence[bytes]) -> None:
        self.git, self.old, self.new = git, old, new
        self.paths = sorted(set(paths))
        self.known = self._has_parent(new)
        base = git.run("merge-base", old, new, ok=(0, 1, 128)).text if self._has_parent(old) else ""
        self.base: str | None = base or None
        self.joined = bool(base) and self.known
        self._subjects: dict[str, str] = {}
        self._states: dict[bytes, list[State]] | None = None
        self._older: dict[bytes, set[str]] | None = None

    def _has_parent(self, commit: str) -> bool:
        found = self.git.run("rev-parse", "--verify", "--quiet", f"{commit}^", ok=(0, 1, 128))
        return found.code == 0

    @property
    def states(self) -> dict[bytes, list[State]]:
        """Per path its states after each commit that changed it, oldest first."""
        if self._states is None:
            span = f"{self.base}..{self.new}" if self.base else self.new
            self._states = self._read(span) if self.known else {}
        return self._states

    def _read(self, span: str) -> dict[bytes, list[State]]:
        found: dict[bytes, list[State]] = {path: [] for path in self.paths}
        if not self.paths:
            return found
        listed = self.git.run(
            "--literal-pathspecs", "log", "--reverse", "--topo-order", "--first-parent",
            "--diff-merges=first-parent", "--raw", "-z", "--no-abbrev", "--no-renames",
            "--no-show-signature", "--format=%x01%H %s", span, "--", *_specs(self.paths),
        )
        order, commit = -1, ""
        meta = b""
        for part in listed.out.split(b"\0"):
            field = part.lstrip(b"\n")
            if field.startswith(_BEGIN):
                head, _, subject = field[1:].decode("utf-8", "replace").partition(" ")
                order, commit = order + 1, head
                self._subjects[commit] = subject.strip()
            elif meta:
                _, mode, _, oid, _ = meta.decode().split()
                entry = Entry(int(mode, 8), oid) if int(mode, 8) else None
                if field in found:
                    found[field].append(State(order=order, commit=commit, entry=entry))
                meta = b""
            elif field.startswith(b":"):
                meta = field[1:]
        return found

    def landed(self, commit: str) -> Landed:
        """A commit of this history with its subject."""
        subject = self._subjects[commit]
        pull = _PULL.search(subject)
        return Landed(commit=commit, subject=subject, pull=int(pull[1]) if pull else None)

    def before(self, commit: str) -> str:
        """The first parent of a commit."""
        return self.git.run("rev-parse", f"{commit}^").text

    def held(self, path: bytes) -> set[str]:
        """Every blob that stood at a path before `new`, also before the merge base."""
        if self._older is None:
            older = self._read(self.base) if self.base else {}
            self._older = {
                path: {state.entry.oid for state in states if state.entry}
                for path, states in _joined(self.paths, older, self.states)
            }
        return self._older.get(path, set())


def _joined(
    paths: Iterable[bytes], *parts: dict[bytes, list[State]]
) -> Iterable[tuple[bytes, list[State]]]:
    for path in paths:
        yield path, [state for part in parts for state in part.get(path, ())]


def _specs(paths: Iterable[bytes]) -> list[str]:
    return [path.decode("utf-8", "surrogateescape") for path in paths]
