"""A line that has to move: a base, patches on it, and an upstream that went on without them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from stack.model.diff.merge3 import Answer
from stack.model.diff.parse import parse_diff
from stack.model.mail.mail import parse_mail
from stack.repo.carry_series import CarriedStep, OnConflict, carry_series
from stack.repo.client import Git
from stack.repo.odb import ObjectStore
from stack.repo.replay import Item
from tests.support.cli import Stack
from tests.support.repo import RepoBuilder

Files = Mapping[str, bytes | None]
Commits = Sequence[tuple[str, Files]]


class Moving:
    """`v1` is the base of the patches (branch `work`), `v2` upstream's newest (branch `main`)."""

    def __init__(self, folder: Path, base: Files, patches: Commits, upstream: Commits) -> None:
        self.folder = folder
        self.repo = RepoBuilder(folder / "upstream")
        self.repo.commit("begin", {"README": b"begin\n"})  # a base without parents is an archive's
        self.repo.commit("base", base)
        self.repo.git("tag", "v1")
        self.commits = [self.repo.commit(subject, files) for subject, files in upstream]
        self.repo.git("tag", "v2")
        self.repo.git("checkout", "-q", "-b", "work", "v1")
        for subject, files in patches:
            self.repo.commit(subject, files)
        self.mails = self.repo.patches("v1", folder / "mails")
        self.repo.git("checkout", "-q", "main")

    @property
    def git(self) -> Git:
        return Git(self.repo.folder / ".git")

    def carry(
        self, *, answer: Answer = lambda region: None, on_conflict: OnConflict = "assume"
    ) -> tuple[list[CarriedStep], dict[str, bytes]]:
        """Carry with the engine alone; the steps, and the files of the last tree."""
        items = []
        for path in self.mails:
            mail = parse_mail(path.read_bytes(), path.name)
            files = parse_diff(mail.diff, path.name, first=mail.diff_line)
            items.append(Item(name=path.stem[5:], mail=mail, files=files))
        with ObjectStore(self.git) as odb:
            old, new = (self.git.run("rev-parse", tag).text for tag in ("v1", "v2"))
            steps = carry_series(odb, items, old, new, answer=answer, on_conflict=on_conflict)
            tree = next((s.tree for s in reversed(steps) if s.tree), odb.commit(new).tree)
            found = odb.changed("4b825dc642cb6eb9a060e54bf8d69288fbee4904", tree)
            return steps, {
                path.decode(): odb.blob(entry.oid) for path, (_, entry) in found.items() if entry
            }

    def one(self) -> tuple[CarriedStep, dict[str, bytes]]:
        """The only step."""
        steps, files = self.carry()
        assert len(steps) == 1
        return steps[0], files

    def project(self) -> Stack:
        """A project with the line demo/1 that holds the patches."""
        stack = Stack(self.folder / "project")
        stack.folder.mkdir()
        stack.ok("init")
        stack.ok("upstream", "add", "demo", self.repo.folder)
        stack.ok("line", "add", "demo@v1")
        stack.ok("import", *self.mails)
        return stack
