"""Random upstream edits, random patches: every clean result is the one of `git rebase --merge`.

Where both come out clean, the trees must be equal. Where ours is clean and git stops, or the other
way round, it is counted; the second may only be a conflict that git's merge sees as none.
`STACK_FUZZ_SECONDS` lets it run longer.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

from stack.model.line.outcome import Outcome
from stack.model.objects import EMPTY_TREE
from tests.support.carrying import Moving

SECONDS = float(os.environ.get("STACK_FUZZ_SECONDS", "30"))
WORDS = [b"a", b"b", b"return", b"}", b"", b"x = 1", b"if a:", b"end"]


def text(rng: random.Random, size: int) -> list[bytes]:
    """Lines of which some repeat and some are unique."""
    return [
        (b"    " * rng.randrange(3))
        + (rng.choice(WORDS) if rng.random() < 0.5 else b"u%d" % rng.randrange(10_000))
        for _ in range(size)
    ]


def edited(rng: random.Random, lines: list[bytes], edits: int) -> list[bytes]:
    out = list(lines)
    for _ in range(edits):
        at = rng.randrange(len(out) + 1)
        kind = rng.random()
        if kind < 0.4:
            out[at : at + rng.randint(1, 3)] = text(rng, rng.randint(1, 3))
        elif kind < 0.75:
            out[at:at] = text(rng, rng.randint(1, 4))
        else:
            del out[at : at + rng.randint(1, 3)]
    return out if out and out != lines else [*lines, b"more %d" % rng.randrange(10_000)]


def whole(lines: list[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def scenario(rng: random.Random, folder: Path) -> Moving:
    names = [f"d{n % 2}/f{n}" for n in range(3)]
    base = {name: text(rng, rng.randint(10, 60)) for name in names}
    state = dict(base)
    patches = []
    for number in range(rng.randint(1, 4)):
        chosen = rng.sample(names, rng.randint(1, 2))
        for name in chosen:
            state[name] = edited(rng, state[name], rng.randint(1, 2))
        files = {name: whole(state[name]) for name in chosen}
        if rng.random() < 0.2:
            files[f"new{number}"] = b"new\n"
        patches.append((f"patch {number}", files))
    there = {
        name: whole(edited(rng, lines, rng.randint(1, 3)))
        for name, lines in base.items()
        if rng.random() < 0.8
    }
    return Moving(
        folder, {name: whole(lines) for name, lines in base.items()}, patches, [("up", there)]
    )


def git_says(case: Moving) -> str | None:
    """The tree of git's own rebase, None where it stops."""
    case.repo.git("checkout", "-q", "work")
    flags = ["-c", "merge.conflictStyle=merge", "-c", "rebase.autoSquash=false"]
    case.repo.git(*flags, "rebase", "-q", "--merge", "--onto", "v2", "v1", check=False)
    if (case.repo.folder / ".git/rebase-merge").exists():
        case.repo.git("rebase", "--abort")
        return None
    return case.repo.tree()


def test_every_clean_result_is_the_one_of_git(tmp_path: Path) -> None:
    begun = time.monotonic()
    both = only_ours = only_gits = stopped = 0
    seed = int(os.environ.get("STACK_FUZZ_SEED", "1"))
    first = seed
    while time.monotonic() - begun < SECONDS or both < 10:
        case = scenario(random.Random(seed), tmp_path / str(seed))
        steps, files = case.carry(on_conflict="stop")
        clean = all(step.outcome is not Outcome.CONFLICT for step in steps)
        tree = git_says(case)
        if clean and tree is not None:
            both += 1
            listed = case.git.run("ls-tree", "-r", "--name-only", tree).text.split()
            theirs = {
                name: case.git.run("cat-file", "blob", f"{tree}:{name}").out for name in listed
            }
            assert files == theirs, f"seed {seed}: differs from git's own result ({EMPTY_TREE})"
        else:
            only_ours += clean
            only_gits += tree is not None
            stopped += not clean and tree is None
        seed += 1
    print(
        f"{seed - first} cases: {both} clean in both, {stopped} conflicts in both, "
        f"{only_ours} clean only here, {only_gits} clean only in git"
    )
    assert only_ours <= (seed - first) * 0.02
