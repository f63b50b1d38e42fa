"""Random work of two people on one line, checked against plain git after every step."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import time
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.support.cli import Stack
from tests.support.project import Demo
from tests.support.stacks import State, state_of


def git(folder: Path, *arguments: str | Path, ok: bool = True, stdin: bytes = b"") -> bytes:
    """Run plain git; its stdout."""
    done = subprocess.run(
        ["git", *map(str, arguments)], cwd=folder, input=stdin, capture_output=True, check=False,
        env=os.environ,
    )
    assert done.returncode == 0 or not ok, (done.stdout + done.stderr).decode("utf-8", "replace")
    return done.stdout


_ENTRY = re.compile(r"^(?=\[\[patch\]\])", re.MULTILINE)


class Clone(Demo):
    """One person's clone of the project: `files` are the upstream files that only they edit."""

    def __init__(self, stack: Stack, who: str, line: str, files: Sequence[str], base: str) -> None:
        self.stack, self.who, self.paths, self.base, self.line_id = stack, who, files, base, line
        self.line = stack.folder / "patches" / line
        self.tree = stack.folder / ".stack/workspaces" / line / "tree"
        self.states: list[State] = []
        self.made = 0
        self.start = 0

    def own(self) -> list[str]:
        return [name for name in self.names() if name.startswith(f"{self.who}-")]

    def fresh(self) -> str:
        self.made += 1
        return f"{self.who}-{self.made}"

    def depth(self) -> int:
        """How many changes stand that undo could take back."""
        rows = self.stack.ok("log", "-n", "9999", "--json").json["data"]["operations"]
        return sum(-1 if row["undoes"] is not None else 1 for row in rows)

    def series(self) -> dict[str, str]:
        """Each entry of `series.toml` by name, with its text."""
        return blocks((self.line / "series.toml").read_text())


def blocks(text: str) -> dict[str, str]:
    parts = [part.rstrip("\n") + "\n" for part in _ENTRY.split(text)[1:]]
    return {tomllib.loads(part)["patch"][0]["name"]: part for part in parts}


class Week:
    """The clones, the hub that they share, and plain git's model of the line."""

    def __init__(
        self, people: Sequence[Clone], hub: Path, scratch: Path, seed: int, kills: float = 0.4
    ) -> None:
        self.people, self.hub, self.scratch, self.kills = people, hub, scratch, kills
        self.rng = random.Random(seed)
        self.log: list[str] = []
        self.killed = 0
        self.conflicts = 0

    # What plain git makes of it.

    def checkout(self, revision: str) -> None:
        git(self.scratch, "checkout", "--quiet", "--force", "--detach", revision)
        git(self.scratch, "clean", "-fdq")

    def am(self, clone: Clone, names: Sequence[str]) -> dict[str, str]:
        """The commits that `git am` makes of the patch files, by name."""
        self.checkout(clone.base)
        mails = [clone.line / f"{name}.patch" for name in names]
        if mails:
            git(self.scratch, "am", "--quiet", "--keep-non-patch", "--no-3way", *mails)
        ids = git(self.scratch, "rev-list", "--reverse", f"{clone.base}..HEAD").decode().split()
        return dict(zip(names, ids, strict=True))

    def head_tree(self) -> str:
        return git(self.scratch, "rev-parse", "HEAD^{tree}").decode().strip()

    def picked(self, start: str, commits: Sequence[str]) -> str | None:
        """The tree of commits picked one after the other; None where git meets a conflict."""
        self.checkout(start)
        for commit in commits:
            git(self.scratch, "cherry-pick", "--keep-redundant-commits", commit, ok=False)
            if git(self.scratch, "status", "--porcelain", "--untracked-files=no"):
                git(self.scratch, "cherry-pick", "--abort", ok=False)
                return None
        return self.head_tree()

    # One step.

    def check(
        self, clone: Clone, tree: str | None = None, names: Sequence[str] | None = None
    ) -> None:
        """Files, workspace and plain git agree; nothing is missing."""
        assert clone.stack("export", "--check").code == 0, self.log
        self.am(clone, clone.names())
        assert self.head_tree() == clone.tree_id(), self.log
        assert tree in (None, clone.tree_id()), self.log
        assert names is None or clone.names() == list(names), self.log
        files = {f"{name}.patch" for name in clone.names()}
        assert set(clone.files()) == {"series.toml", *files}, self.log

    def run(self, clone: Clone, *command: str | Path) -> bool:
        """Run a verb, perhaps killed and run again; whether it went through (else it conflicts)."""
        self.log.append(f"{clone.who}: {' '.join(map(str, command))}")
        before = state_of(clone)
        if self.rng.random() < self.kills:
            self.kill(clone, command)
            if state_of(clone) != before or self.stopped(clone):
                if self.stopped(clone):
                    return self.answer(clone, command[0])
                return True
        done = clone.stack(*command)
        if done.code == 3:
            return self.answer(clone, command[0])
        assert done.code == 0, (self.log, done)
        return True

    def kill(self, clone: Clone, command: Sequence[str | Path]) -> None:
        """Start a verb and kill it in its change or anywhere; the next verb completes it."""
        child = clone.stack.start(*command)
        started, delay = time.monotonic(), self.rng.uniform(0.1, 0.8)
        journal = clone.stack.folder / ".stack/journal.json"
        in_change = self.rng.random() < 0.6
        while child.poll() is None:
            if journal.exists() if in_change else time.monotonic() - started > delay:
                time.sleep(self.rng.uniform(0, 0.03))
                break
            time.sleep(0.001)
        if child.poll() is None:
            self.killed += 1
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        clone.stack("apply")  # completes, and then does nothing, or refuses to lose work
        assert not journal.exists(), self.log

    def stopped(self, clone: Clone) -> bool:
        return (clone.stack.folder / ".stack/restack/state.json").exists()

    def answer(self, clone: Clone, verb: str | Path) -> bool:
        """Give a conflict up, or answer it with the patch's own lines until the end."""
        self.conflicts += 1
        before = (clone.files(), clone.head())
        if self.rng.random() < 0.3:
            clone.stack.ok(verb, "--abort")
            assert (clone.files(), clone.head()) == before or verb == "edit", self.log
            self.log.append("  aborted")
            return False
        tree = clone.stack.folder / ".stack/restack/tree"
        while self.stopped(clone):
            self.log.append("  answered")
            for path in tree.rglob("*.py"):
                if b"<<<<<<< " in (data := path.read_bytes()):
                    path.write_bytes(answered(data))
            done = clone.stack(verb, "--continue")
            if done.code == 2 and "nothing would be left" in done.err:
                clone.stack.ok(verb, "--abort")
                return False
            assert done.code in (0, 3), (self.log, done)
        return True

    def push_state(self, clone: Clone) -> None:
        if not clone.states:
            clone.start = clone.depth()
        if not clone.states or clone.states[-1] != state_of(clone):
            clone.states.append(state_of(clone))

    # The verbs.

    def scribble(self, clone: Clone, count: int = 1) -> None:
        """Change lines in files of this person's own."""
        for _ in range(count):
            path = clone.tree / self.rng.choice(clone.paths)
            lines = path.read_bytes().splitlines(keepends=True)
            at = self.rng.randrange(min(len(lines), 20) or 1)
            word = b"# %s %d\n" % (clone.who.encode(), self.rng.randrange(10**6))
            lines[at : at + self.rng.randrange(2)] = [word]
            path.write_bytes(b"".join(lines))

    def written(self, clone: Clone) -> str:
        """The tree of the workspace with everything in it."""
        index = {"GIT_INDEX_FILE": str(self.scratch / "week-index"), **os.environ}
        for words in (["read-tree", "HEAD"], ["add", "--all"]):
            subprocess.run(["git", *words], cwd=clone.tree, env=index, check=True)
        done = subprocess.run(
            ["git", "write-tree"], cwd=clone.tree, env=index, check=True, capture_output=True
        )
        return done.stdout.decode().strip()

    def new(self, clone: Clone) -> None:
        self.scribble(clone, 2)
        name = clone.fresh()
        if self.rng.random() < 0.3:
            (clone.tree / f"new_{name.replace('-', '_')}.py").write_bytes(b"x = 1\n")
        wanted, names = self.written(clone), clone.names()
        self.run(clone, "new", name, "--why", "because", "-m", f"[Week] Patch {name}")
        self.check(clone, wanted, [*names, name])

    def refresh(self, clone: Clone) -> None:
        if not clone.own():
            return self.new(clone)
        self.scribble(clone)
        wanted, names, target = self.written(clone), clone.names(), self.rng.choice(clone.own())
        calm = self.conflicts
        if not self.run(clone, "refresh", target):
            assert self.written(clone) == wanted, self.log
            clone.git("checkout", "--quiet", "--", ".")
            return None
        return self.check(clone, wanted if calm == self.conflicts else None, names)

    def absorb(self, clone: Clone) -> None:
        self.scribble(clone)
        for name in clone.paths:  # lines that patches brought
            path = clone.tree / name
            lines = path.read_bytes().splitlines(keepends=True)
            mark = b"# %s " % clone.who.encode()
            for at, line in enumerate(lines):
                if line.startswith(mark) and self.rng.random() < 0.3:
                    lines[at] = line[:-1] + b"!\n"
            path.write_bytes(b"".join(lines))
        wanted, names, before = self.written(clone), clone.names(), state_of(clone)
        done = clone.stack("refresh", "--absorb")
        self.log.append(f"{clone.who}: refresh --absorb: {done.err.strip()}")
        assert done.code in (0, 1), done
        assert self.written(clone) == wanted, self.log
        assert (done.code == 1) == (state_of(clone) == before), self.log
        if done.code == 0:
            clone.stack.ok("undo")
            assert state_of(clone) == before, self.log
            clone.stack.ok("undo", "--redo")
            assert self.written(clone) == wanted, self.log
        clone.git("checkout", "--quiet", "--", ".")
        self.check(clone, None, names)

    def arranged(self, clone: Clone, names: Sequence[str], *command: str) -> None:
        """A verb that leaves these patches in this order; plain git picks them the same way."""
        held = self.am(clone, clone.names())
        wanted = self.picked(clone.base, [held[name] for name in names])
        old, calm = clone.names(), self.conflicts
        through = self.run(clone, *command)
        if calm == self.conflicts:
            assert wanted is not None, self.log
            self.check(clone, wanted, [n for n in names if n in clone.names()])
        else:
            self.check(clone, None, None if through else old)

    def drop(self, clone: Clone) -> None:
        if len(clone.own()) < 3:
            return self.new(clone)
        gone = self.rng.choice(clone.own())
        return self.arranged(clone, [n for n in clone.names() if n != gone], "drop", gone)

    def move(self, clone: Clone) -> None:
        if len(clone.own()) < 2:
            return self.new(clone)
        name, other = self.rng.sample(clone.own(), 2)
        side = self.rng.choice(["--before", "--after"])
        order = [n for n in clone.names() if n != name]
        order.insert(order.index(other) + (side == "--after"), name)
        return self.arranged(clone, order, "move", name, side, other)

    def fold(self, clone: Clone) -> None:
        if len(clone.own()) < 3:
            return self.new(clone)
        name, into = self.rng.sample(clone.own(), 2)
        names = clone.names()
        held, at = self.am(clone, names), names.index(into)
        pair = [name, into] if names.index(name) < at else [into, name]
        order = [n for n in names if n not in pair]
        at = sum(n not in pair for n in names[:at])
        order[at:at] = pair
        wanted, calm = self.picked(clone.base, [held[n] for n in order]), self.conflicts
        self.run(clone, "fold", name, "--into", into)
        assert calm != self.conflicts or wanted is not None, self.log
        return self.check(clone, wanted if calm == self.conflicts else None)

    def rename(self, clone: Clone) -> None:
        if not clone.own():
            return self.new(clone)
        name, now = self.rng.choice(clone.own()), clone.fresh()
        tree, names = clone.tree_id(), [now if n == name else n for n in clone.names()]
        self.run(clone, "rename", name, now)
        return self.check(clone, tree, names)

    def edit(self, clone: Clone) -> None:
        if not clone.own():
            return self.new(clone)
        name = self.rng.choice(clone.own())
        names = clone.names()
        held = self.am(clone, names)
        clone.stack.ok("edit", name)
        self.log.append(f"{clone.who}: at {name}")
        self.scribble(clone)
        if self.rng.random() < 0.5:
            clone.git("commit", "--quiet", "--all", "--amend", "--no-edit")
        elif self.rng.random() < 0.5:
            clone.git("commit", "--quiet", "--all", "-m", f"[Week] {clone.fresh()}")
        if self.rng.random() < 0.2:
            clone.stack.ok("edit", "--abort")
            return self.check(clone, None, names)
        start, calm = self.written(clone), self.conflicts
        pack = git(clone.tree, "pack-objects", "--revs", "--stdout", "-q",
                   stdin=f"{start}\n^{clone.head()}\n^{clone.base}\n".encode())
        git(self.scratch, "unpack-objects", "-q", stdin=pack)
        made = git(self.scratch, "commit-tree", start, "-p", clone.base, "-m", "edited")
        rest = [held[n] for n in names[names.index(name) + 1 :]]
        wanted = self.picked(made.decode().strip(), rest)
        if not self.run(clone, "edit", "--continue"):
            if clone.stack("edit", "--abort").code == 0:
                self.log.append("  the edit too")
            return self.check(clone, None, names)
        return self.check(clone, wanted if calm == self.conflicts else None)

    def export(self, clone: Clone) -> None:
        self.scribble(clone)
        if clone.own() and clone.names()[-1] in clone.own() and self.rng.random() < 0.5:
            clone.git("commit", "--quiet", "--all", "--amend", "--no-edit")
        else:
            clone.git("commit", "--quiet", "--all", "-m", f"[Week] {clone.fresh()}")
        tree = clone.tree_id()
        self.run(clone, "export")
        self.check(clone, tree)

    def bring(self, clone: Clone) -> None:
        """A mail from elsewhere is imported and applied."""
        self.am(clone, clone.names())
        path = self.scratch / self.rng.choice(clone.paths)
        path.write_bytes(path.read_bytes() + b"# from elsewhere %d\n" % self.rng.randrange(10**6))
        name = clone.fresh()
        git(self.scratch, "commit", "--quiet", "--all", "-m", f"[Mail] {name}")
        wanted = self.head_tree()
        mail = self.scratch.parent / f"{name}.patch"
        mail.write_bytes(git(self.scratch, "format-patch", "--stdout", "--keep-subject",
                             "--full-index", "-1"))
        names = clone.names()
        self.run(clone, "import", mail)
        self.push_state(clone)
        self.run(clone, "apply")
        self.check(clone, wanted, [*names, name])

    def prefix(self, clone: Clone) -> None:
        """Apply a part, look at it, and all again."""
        names = clone.names()
        to = self.rng.choice(names)
        clone.stack.ok("apply", "--to", to)
        self.am(clone, names[: names.index(to) + 1])
        assert self.head_tree() == clone.tree_id(), self.log
        self.push_state(clone)
        self.run(clone, "apply")
        self.check(clone, None, names)

    def walk_back(self, clone: Clone) -> None:
        """Undo to the first state since the last pull, and redo to the last."""
        if not clone.states:
            return
        seen = [state_of(clone)]
        for _ in range(clone.depth() - clone.start):
            clone.stack.ok("undo")
            seen.append(state_of(clone))
        assert seen[-1][0] == clone.states[0][0], self.log
        for files, *_ in clone.states:  # heads may be others: work of before a verb comes back
            assert any(files == other[0] for other in seen), self.log
        for state in reversed(seen[:-1]):
            clone.stack.ok("undo", "--redo")
            assert state_of(clone) == state, self.log
        self.log.append(f"{clone.who}: walked {len(seen) - 1} back")

    def share(self, clone: Clone) -> None:
        """Commit, pull and push the project with plain git, and apply what came."""
        self.walk_back(clone)
        folder = clone.stack.folder
        git(folder, "add", "--all")
        git(folder, "commit", "--quiet", "--allow-empty", "-m", f"{clone.who}'s work")
        git(folder, "fetch", "--quiet", "origin")
        mine, there = clone.names(), git(folder, "ls-tree", "--name-only", "origin/main",
                                           f"patches/{clone.line_id}/").decode().split()
        git(folder, "merge", "--quiet", "--no-edit", "origin/main", ok=False)
        where = f"patches/{clone.line_id}/series.toml"
        open_ = git(folder, "diff", "--name-only", "--diff-filter=U").decode().split()
        assert set(open_) <= {where}, self.log  # nobody's patch file met anybody else's
        if open_:
            ours, theirs = (git(folder, "show", f":{n}:{where}").decode() for n in (2, 3))
            (folder / where).write_text(united(ours, theirs, clone.who))
            git(folder, "add", where)
            git(folder, "commit", "--quiet", "--no-edit")
        self.log.append(f"{clone.who}: shared")
        stems = {Path(path).stem for path in there} - {"series"}
        others = {name for name in stems if not name.startswith(f"{clone.who}-")}
        assert set(clone.names()) == {n for n in mine if n.startswith(clone.who)} | others, self.log
        clone.stack.ok("apply")
        git(folder, "push", "--quiet", "origin", "HEAD:main")
        clone.states.clear()
        self.check(clone)

    def play(self, count: int) -> None:
        verbs: list[Callable[[Clone], None]] = [
            self.new, self.new, self.refresh, self.refresh, self.absorb, self.drop, self.move,
            self.move, self.fold, self.rename, self.edit, self.edit, self.export, self.bring,
            self.prefix, self.share,
        ]
        for clone in self.people:
            self.new(clone)
            self.share(clone)
        waiting: list[Callable[[Clone], None]] = []
        for _ in range(count):
            waiting = waiting or self.rng.sample(verbs, len(verbs))
            clone = self.rng.choice(self.people)
            if not clone.states:
                self.push_state(clone)
            waiting.pop()(clone)
            self.push_state(clone)
        for clone in self.people:
            self.walk_back(clone)
        for clone in (*self.people, *self.people):
            self.share(clone)
        assert len({clone.tree_id() for clone in self.people}) == 1, self.log


def answered(data: bytes) -> bytes:
    """A file with each conflict answered by the patch's own lines."""
    out, side = [], b""
    for line in data.splitlines(keepends=True):
        if line.startswith((b"<<<<<<< ", b"||||||| ", b"=======\n")):
            side = line[:1]
        elif line.startswith(b">>>>>>> "):
            side = b""
        elif side in (b"", b"="):
            out.append(line)
    return b"".join(out)


def united(ours: str, theirs: str, who: str) -> str:
    """A series that both changed, as `who` merges it: the others' order, then their own."""
    mine, yours = blocks(ours), blocks(theirs)
    others = [name for name in yours if not name.startswith(f"{who}-")]
    own = [name for name in mine if name.startswith(f"{who}-")]
    head = _ENTRY.split(theirs)[0]
    return head + "\n".join([*(yours[name] for name in others), *(mine[name] for name in own)])
