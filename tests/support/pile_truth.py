"""Replays a made pile and compares it with the truth."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from stack.flows.pile.order import ordered
from stack.flows.pile.read import list_files, read_inputs
from stack.flows.pile.replay import Replay, Row
from stack.flows.pile.route import Router
from stack.flows.pile.world import World
from stack.model.objects import EMPTY_TREE, FILE, Entry
from stack.repo.client import Git
from stack.repo.odb import ObjectStore
from tests.support.pile_maker import Made, Maker


class Verdict(NamedTuple):
    """How many placeable files were placed, what was not, and where the final tree differs.

    `told` are the files of which was said that they could have been meant in another way, `silent`
    what differs of which no file says so, or was set aside.
    """

    placed: int
    placeable: int
    missed: list[str]
    differs: list[bytes]
    seconds: float
    rows: dict[str, list[Row]]
    told: list[str]
    silent: list[bytes]


def judge(made: Made, base: Mapping[str, bytes], folder: Path) -> Verdict:
    """Replay the files of a pile on their base."""
    folder.mkdir(parents=True, exist_ok=True)
    pile = folder / "pile"
    pile.mkdir()
    for name, data in made.files.items():
        (pile / name).write_bytes(data)
    subprocess.run(["git", "init", "-q", "--bare", folder / "repo"], check=True)
    with ObjectStore(Git(folder / "repo")) as odb:
        tree = odb.edit(EMPTY_TREE, {
            path.encode(): Entry(FILE, odb.add("blob", data)) for path, data in base.items()
        })
        want = odb.edit(tree, {
            path.encode(): Entry(FILE, odb.add("blob", data)) if data is not None else None
            for path, data in made.end.items()
        })
        start = time.process_time()
        inputs = list(read_inputs(list_files([pile], folder), lambda event: None))
        order = ordered(inputs, [pile]).inputs
        world = World(odb, tree)
        router = Router({"vllm": world}, {"vllm": ("vllm",)}, order)
        done = Replay({"vllm": world}, router, {}).run(order, lambda event: None)
        seconds = time.process_time() - start
        differs = sorted(odb.changed(want, world.tree))
    rows: dict[str, list[Row]] = {}
    for row in done.rows.values():
        rows.setdefault(Path(row.file).name, []).append(row)
    missed = []
    placeable = [truth for truth in made.truths if truth.placeable]
    for truth in placeable:
        mine = rows.get(truth.name, [])
        own = "own" in truth.spoilt
        assert own == any(row.result == "other" for row in mine), (truth, mine)
        if not mine or any(row.aside and row.result != "other" for row in mine):
            missed.append(f"{truth}: {'; '.join(row.reason for row in mine)}")
    assert set(rows) == set(made.files), "every file has a row"
    told = sorted(name for name, mine in rows.items() if any(row.unsure for row in mine))
    left = {name for name, mine in rows.items() if any(row.aside for row in mine)}
    about = [
        section.name for one in inputs if Path(one.file).name in {*told, *left}
        for section in one.sections
    ]
    silent = [path for path in differs if not any(name.endswith(path) for name in about)]
    return Verdict(
        len(placeable) - len(missed), len(placeable), missed, differs, seconds, rows,
        told, silent,
    )


def make(
    seed: int, steps: int, base: Mapping[str, bytes], *, pool: int = 30, wide: float = 0.6
) -> Made:
    return Maker(seed, base, pool=pool, wide=wide).run(steps)
