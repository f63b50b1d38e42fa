"""Questions to an upstream's history: who made a patch fail, who took it in, who is undone by it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import msgspec

from stack.model.objects import Entry
from stack.repo.carry import carry
from stack.repo.client import Git
from stack.repo.odb import ObjectStore
from stack.repo.renames import Renames
from stack.repo.replay import show

_PULL = re.compile(r"\(#(\d+)\)\s*$")


class Landed(msgspec.Struct, frozen=True, kw_only=True):
    """An upstream commit and what to call it; `pull` is its pull request number."""

    commit: str
    subject: str
    pull: int | None = None

    def __str__(self) -> str:
        return f"{self.commit[:12]} {self.subject}"


class History:
    """The commits between two of one upstream, on the first-parent line.

    `known` says whether there is any; `joined` whether both stand in it. The base that a release
    archive gives stands outside: then only the history up to `new` can be asked.
    """

    def __init__(self, git: Git, old: str, new: str) -> None:
        self.git, self.old, self.new = git, old, new
        self.known = self._has(new)
        base = git.run("merge-base", old, new, ok=(0, 1, 128)).text if self._has(old) else ""
        self.base = base or None
        self.joined = self.base is not None

    def _has(self, commit: str) -> bool:
        """Whether a commit is here with its parents: a release archive's base has none."""
        found = self.git.run("rev-parse", "--verify", "--quiet", f"{commit}^", ok=(0, 1, 128))
        return found.code == 0

    def touching(self, paths: Sequence[bytes]) -> list[str]:
        """The commits up to `new` that touch one of these paths, oldest first.

        They begin behind the merge base, or with the first commit of all where there is none.
        """
        if not self.known:
            return []
        span = f"{self.base}..{self.new}" if self.base else self.new
        specs = [":(literal)" + path.decode("utf-8", "surrogateescape") for path in paths]
        listed = self.git.run("rev-list", "--reverse", "--first-parent", span, "--", *specs)
        return listed.text.split()

    def landed(self, commit: str) -> Landed:
        """A commit with its subject."""
        subject = self.git.run("log", "-1", "--format=%s", "--no-show-signature", commit).text
        pull = _PULL.search(subject)
        return Landed(commit=commit, subject=subject, pull=int(pull[1]) if pull else None)

    def blobs(self, path: bytes, tip: str) -> set[str]:
        """Every blob that stood at a path in the history of `tip`."""
        if not self._has(tip):
            return set()
        listed = self.git.run(
            "log", "--raw", "--no-abbrev", "--no-renames", "--format=", tip, "--",
            ":(literal)" + path.decode("utf-8", "surrogateescape"),
        )
        rows = [line.split() for line in listed.out.splitlines() if line.startswith(b":")]
        return {part.decode() for row in rows for part in row[2:4]}


def culprit(
    odb: ObjectStore, history: History, before: str, after: str
) -> tuple[Landed, str | None] | None:
    """The first upstream commit after which a patch (tree `before` to `after`) no longer merges.

    Also the commit before it that touches the same files, on which the patch still merges. Every
    commit is tried in order from the merge base on, so the answer does not lean on the trouble
    staying. Without a merge base they are tried from the newest back, to the last such change.
    """
    commits = history.touching(list(odb.changed(before, after)))
    if history.joined:
        previous: str | None = None
        for commit in commits:
            if not _merges(odb, before, after, odb.commit(commit).tree):
                return history.landed(commit), previous
            previous = commit
        return None
    bad: str | None = None
    for commit in reversed(commits):
        if _merges(odb, before, after, odb.commit(commit).tree):
            return (history.landed(bad), commit) if bad else None
        bad = commit
    return None


def _merges(odb: ObjectStore, before: str, after: str, onto: str) -> bool:
    renames = Renames(odb, before, onto, deep=False)
    return not carry(odb, before, after, onto, renames=renames).trouble


def taken_in(odb: ObjectStore, history: History, before: str, after: str) -> Landed | None:
    """The first upstream commit whose tree already has the whole effect of a patch."""

    def there(tree: str) -> bool:
        done = carry(odb, before, after, tree, renames=Renames(odb, before, tree, deep=False))
        return not done.trouble and done.tree == tree

    return _first(odb, history, list(odb.changed(before, after)), there)


def places_taken_in(
    odb: ObjectStore, history: History, before: str, after: str, onto: str
) -> list[tuple[str, int, Landed | None]]:
    """Per path of a patch: how many of its places the target has, and the commit that brought them."""
    found: list[tuple[str, int, Landed | None]] = []
    for path, sides in sorted(odb.changed(before, after).items()):
        have = _already(odb, before, onto, path, sides)
        if have:

            def enough(
                tree: str, path: bytes = path, sides: tuple[Entry | None, Entry | None] = sides,
                have: int = have,
            ) -> bool:
                return _already(odb, before, tree, path, sides) >= have

            found.append((show(path), have, _first(odb, history, [path], enough)))
    return found


def _already(
    odb: ObjectStore, before: str, onto: str, path: bytes, sides: tuple[Entry | None, Entry | None]
) -> int:
    """How many places of a patch's change of one path stand in the tree `onto`."""
    tree = odb.edit(before, {path: sides[1]})
    done = carry(odb, before, tree, onto, renames=Renames(odb, before, onto, deep=False))
    return sum(done.already.values())


def _first(
    odb: ObjectStore, history: History, paths: list[bytes], holds: Callable[[str], bool]
) -> Landed | None:
    commits = history.touching(paths)
    if history.joined:
        found = next((commit for commit in commits if holds(odb.commit(commit).tree)), None)
        return history.landed(found) if found else None
    held: str | None = None
    for commit in reversed(commits):
        if not holds(odb.commit(commit).tree):
            break
        held = commit
    return history.landed(held) if held else None


def undone(odb: ObjectStore, history: History, tree: str, result: str, tip: str) -> list[str]:
    """The paths that a patch (tree `tree` to `result`) turns back to an older upstream content."""
    return [
        show(path)
        for path, (left, right) in odb.changed(tree, result).items()
        if left and right and left.oid != right.oid and right.oid in history.blobs(path, tip)
    ]
