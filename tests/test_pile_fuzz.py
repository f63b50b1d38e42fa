"""Spoilt piles never crash, hang, or lose a line without saying so.

Short by default; STACK_PILE_FUZZ_SECONDS makes it run for so long, with new seeds every time, and
STACK_PILE_FUZZ_LOG names a file for the figures.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from stack.flows.pile.order import ordered
from stack.flows.pile.read import list_files, read_inputs
from stack.flows.pile.replay import Replay, Replayed
from stack.flows.pile.route import Router
from stack.flows.pile.world import World
from stack.model.diff.linediff import split
from stack.model.objects import EMPTY_TREE, FILE, FOLDER, Entry
from stack.model.pile.decode import decode
from stack.model.pile.parse import parse
from stack.model.pile.sections import Damage
from stack.repo.client import Git
from stack.repo.odb import ObjectStore
from tests.support.pile_maker import Maker

SECONDS = float(os.environ.get("STACK_PILE_FUZZ_SECONDS", "0"))
LOG = os.environ.get("STACK_PILE_FUZZ_LOG")
pytestmark = pytest.mark.timeout(1500 + SECONDS)
SLOW = 20.0  # seconds of processor time that no small pile may take
BASE = {
    f"vllm/m{n}.py": b"".join(
        b"def work%d():\n    value = step(%d)\n    return value\n\n\n" % (at, at % 5)
        for at in range(6 + 4 * n)
    )
    for n in range(6)
}
PIECES = (
    b"@@\n", b"@@ -1,3 +1,3 @@\n", b"--- a/vllm/m1.py\n+++ b/vllm/m1.py\n", b"\n", b"+\n", b"-\n",
    b"diff --git a/vllm/m2.py b/vllm/m2.py\n", b"new file mode 120000\n", b"+++ /dev/null\n",
    b"\\ No newline at end of file\n", b"GIT binary patch\nliteral 3\nKcmZ=7\n\n", b"```\n", b"\r",
    b"-- \n2.1\n", b"index 0000000..1111111\n", b"rename from vllm/m1.py\n", b"\0", b"\xff",
    b"*** Update File: vllm/m3.py\n", b"@@ -0,0 +1,99999999 @@\n", b"From: a\n\n", b"    x = 1\n",
)
MUTATION = st.tuples(
    st.integers(0, 5), st.floats(0, 1, exclude_max=True), st.integers(0, 60),
    st.sampled_from(PIECES),
)


def mutated(data: bytes, changes: list[tuple[int, float, int, bytes]]) -> bytes:
    """A text with bytes or lines taken out, put in, doubled or exchanged."""
    for kind, where, size, piece in changes:
        if kind < 3:
            at = int(where * (len(data) + 1))
            cut = size if kind == 1 else 0
            data = data[:at] + (piece if kind != 1 else b"") + data[at + cut :]
            if kind == 2 and data:
                at = int(where * len(data))
                data = data[:at] + bytes([data[at] ^ (1 << size % 8)]) + data[at + 1 :]
            continue
        lines = data.splitlines(keepends=True)
        if not lines:
            continue
        at = int(where * len(lines))
        few = lines[at : at + 1 + size % 4]
        if kind == 3:
            lines[at : at + len(few)] = []
        elif kind == 4:
            lines[at:at] = few
        else:
            lines[at:at] = lines[:: max(1, len(lines) // 3)][:4]
        data = b"".join(lines)
    return data


def no_line_is_lost(data: bytes) -> None:
    """Every added line of a text that was wholly read is in a hunk, or among its words."""
    found = decode(data)
    if isinstance(found, Damage):
        assert found.why
        return
    for text in found:
        parsed = parse(text.data, first=text.first)
        if parsed.damage is not None:
            assert 1 <= parsed.damage.line <= data.count(b"\n") + text.first + 2
            continue
        kept: dict[bytes, int] = {}
        for section in parsed.sections:
            for hunk in section.hunks:
                for sign, line in hunk.lines:
                    if sign == b"+":
                        kept[line.strip()] = kept.get(line.strip(), 0) + 1
        for line in parsed.prose.split(b"\n"):
            if line.startswith(b"+"):
                kept[line[1:].strip()] = kept.get(line[1:].strip(), 0) + 1
        for line in text.data.split(b"\n"):
            plain = line.rstrip(b"\r")
            if plain.startswith(b"+") and not plain.startswith(b"+++ ") and plain[1:].strip():
                assert kept.get(plain[1:].strip(), 0) > 0, plain


def hammer(test: Callable[..., None], strategy: st.SearchStrategy[object], examples: int) -> None:
    """Run a property: some examples, or new ones until the time is over."""
    begun, rounds = time.monotonic(), 0
    while True:
        number = random.SystemRandom().randrange(1 << 32) if SECONDS else rounds
        run = settings(max_examples=examples, derandomize=False, database=None)(
            given(strategy)(test)
        )
        seed(number)(run)()
        rounds += 1
        if LOG:
            line = f"{test.__name__}: {rounds * examples} in {time.monotonic() - begun:.0f} s\n"
            with Path(LOG).open("a") as file:
                file.write(line)
        if time.monotonic() - begun >= SECONDS / 2:
            return


def test_a_spoilt_file_is_read_or_refused_and_no_line_is_lost() -> None:
    files = [data for number in range(12) for data in Maker(number, BASE).run(6).files.values()]

    def spoilt(drawn: tuple[int, list[tuple[int, float, int, bytes]]]) -> None:
        begun = time.process_time()
        no_line_is_lost(mutated(files[drawn[0]], drawn[1]))
        assert time.process_time() - begun < SLOW

    hammer(spoilt, st.tuples(st.integers(0, len(files) - 1), st.lists(MUTATION, max_size=6)), 150)


def test_a_spoilt_pile_has_a_row_for_each_file_and_keeps_what_it_takes(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", "--bare", tmp_path / "repo"], check=True)
    folder = tmp_path / "pile"
    folder.mkdir()

    def piles(drawn: tuple[int, list[tuple[float, list[tuple[int, float, int, bytes]]]]]) -> None:
        for path in folder.iterdir():
            path.unlink()
        files = dict(Maker(drawn[0], BASE).run(9).files)
        names = sorted(files)
        for where, changes in drawn[1]:
            name = names[int(where * len(names))]
            files[name] = mutated(files[name], changes)
        for name, data in files.items():
            (folder / name).write_bytes(data)
        begun = time.process_time()
        with ObjectStore(Git(tmp_path / "repo")) as odb:
            tree = odb.edit(EMPTY_TREE, {
                path.encode(): Entry(FILE, odb.add("blob", data)) for path, data in BASE.items()
            })
            inputs = list(read_inputs(list_files([folder], tmp_path), lambda event: None))
            order = ordered(inputs, [folder]).inputs
            world = World(odb, tree)
            router = Router({"vllm": world}, {"vllm": ("vllm",)}, order)
            done = Replay({"vllm": world}, router, {}).run(order, lambda event: None)
            holds(odb, done, tree, world.tree)
        assert time.process_time() - begun < SLOW
        packed = (".gz", ".b64", ".bz2", ".xz", ".patch", ".diff")
        seen = {Path(row.file).name.partition(":")[0] for row in done.rows.values()}
        assert {name for name in files if name.endswith(packed)} <= seen

    spoilings = st.lists(
        st.tuples(st.floats(0, 1, exclude_max=True), st.lists(MUTATION, max_size=4)), max_size=4
    )
    hammer(piles, st.tuples(st.integers(0, 1 << 20), spoilings), 25)


def holds(odb: ObjectStore, done: Replayed, tree: str, end: str) -> None:
    """The steps lead from the base to the end, and each has every line that its input adds."""
    for step in done.steps["vllm"]:
        assert step.before == tree
        tree = step.after
        changed = odb.changed(step.before, step.after)
        for route, fit in step.fits:
            if fit.how not in ("increment", "snapshot", "new", "replaced", "elided"):
                continue
            entry = odb.find(step.after, route.path)
            if route.path not in changed or entry is None or entry.mode == FOLDER:
                continue
            lines = {line.rstrip() for line in split(odb.blob(entry.oid))}
            last = [one for one, _ in step.fits if one.path == route.path][-1] is route
            for hunk in route.section.hunks if last else ():
                kept = hunk.counted or hunk.lines
                assert all(text.rstrip() in lines for sign, text in kept if sign == b"+")
    assert tree == end
    for row in done.rows.values():
        assert row.reason or row.result in ("placed", "reverts")
