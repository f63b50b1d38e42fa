"""Many at once in one project in which some of them measure: the ledger has every trial, whole."""

from __future__ import annotations

import json

from stack.host import survivors
from tests.support.toy_engine import Toy
from tests.test_crowd import SECONDS, Verb, let_loose

ONE = ("verify", "time-the-steps", "--pairs", "1", "--json")
VERBS: list[Verb] = [
    ONE, (*ONE, "--fresh"), ("verify", "route-sigmoid", "--fresh", "--json"), ("apply",),
    ("export",), ("report",), ("report", "--json"), ("status",), ("list",), ("log",),
]  # fmt: skip


def test_a_crowd_that_measures(toy: Toy) -> None:
    toy.stack.ok("build")
    ran = let_loose(toy.stack.folder, VERBS, 2 * SECONDS)
    measured = [json.loads(done.out) for verb, done in ran if verb[0] == "verify" and not done.code]
    busy = [done for verb, done in ran if verb[0] == "verify" and done.code == 2]
    told = {
        trial["id"] for one in measured for row in one["data"]["patches"] for trial in row["trials"]
    }
    assert measured
    assert all("measuring.lock: held by process" in done.out for done in busy)
    kept = toy.trials()  # every line of the ledger is a whole document
    assert told <= {trial["id"] for trial in kept}
    assert len({trial["id"] for trial in kept}) == len(kept)
    assert all((toy.state / trial["log"]).is_file() for trial in kept)
    assert survivors.marked(f"STACK_PROJECT={toy.stack.folder.resolve()}\0".encode()) == []
    print(f"{len(measured)} verifies, {len(busy)} refused, {len(kept)} trials")
    toy.stack.ok(*ONE)
    kept = toy.trials()
    toy.stack.ok(*ONE)
    assert toy.trials() == kept, "what was measured is not measured again"
