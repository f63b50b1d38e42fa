"""What a verify on many hosts costs its driver: the scheduler alone, then the whole of it.

`python scripts/simulate_cluster.py` prints three tables. In the first the scheduler hands out work
in a simulated time: comparisons of ten trials (two gates, two warm-ups, three pairs), hosts of
several kinds, some of which are lost and come back. In the second the real pool gives tasks to as
many threads, whose trials sleep for 50 ms and are written to a real ledger. In the third verdicts
are combined over machines, to see how often chance is taken for an effect.
"""

from __future__ import annotations

import argparse
import heapq
import random
import resource
import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import Any

from stack.flows.cluster.cluster import Cluster
from stack.flows.cluster.hosts import Away
from stack.flows.cluster.ray_cluster import Ray
from stack.flows.measure.book import Book
from stack.flows.measure.pool import Lost, Task
from stack.model.measure.judge import Rule, judge_pairs, next_step
from stack.model.measure.over_hosts import over_machines
from stack.model.measure.pairs import Pair
from stack.model.measure.schedule import Scheduler, Work
from stack.model.measure.trial import Figures, Trial
from stack.store.ledger import Ledger

EACH = 10
SECONDS = 60.0
TAKES = 0.05


def simulated(
    hosts: int, kinds: int, trials: int, losses: float, seed: int, *, memory: bool = False
) -> dict[str, Any]:
    """Hand out `trials` on `hosts`, of which a share `losses` is lost once; every trial is counted.

    What a lost host had finished stands in the ledger: its work goes on behind that. Only the
    trial that ran is run again, and two warm-ups.
    """
    rng = random.Random(seed)
    scheduler = Scheduler()
    works = [Work(name=at, cost=EACH) for at in range(trials // EACH)]
    left = {work.name: [SECONDS * rng.lognormvariate(0.0, 0.3) for _ in range(EACH)]
            for work in works}
    needed = sum(sum(each) for each in left.values())
    events: list[tuple[float, int, str, str, int]] = []
    number = 0
    spent = 0.0
    runs: dict[str, int] = {}
    done = {work.name: 0 for work in works}
    again = 0

    def given(now: float, found: list[tuple[str, Work]]) -> None:
        nonlocal number
        for host, work in found:
            runs[host] = number
            heapq.heappush(events, (now + left[work.name][0], number, "trial", host, work.name))
            number += 1

    def timed(call: Any, *arguments: Any) -> Any:
        nonlocal spent
        begun = time.perf_counter()
        found = call(*arguments)
        spent += time.perf_counter() - begun
        return found

    if memory:
        tracemalloc.start()
    for at in range(hosts):
        timed(scheduler.join, f"host-{at}", f"kind-{at % kinds}")
    given(0.0, timed(scheduler.add, works))
    for at in rng.sample(range(hosts), int(hosts * losses)):
        when = rng.uniform(0.0, needed / hosts)
        heapq.heappush(events, (when, number, "lost", f"host-{at}", 0))
        heapq.heappush(events, (when + 600.0, number + 1, "back", f"host-{at}", at % kinds))
        number += 2
    end = 0.0
    while events:
        now, which, what, host, name = heapq.heappop(events)
        if what == "back":
            given(now, timed(scheduler.join, host, f"kind-{name}"))
        elif what == "lost":
            held = scheduler.running.get(host)
            runs.pop(host, None)
            if held is not None:
                left[held.name] = [SECONDS, SECONDS, *left[held.name]]
                again += 1
            given(now, timed(scheduler.lose, host))
        elif runs.get(host) == which:
            end = now
            left[name].pop(0)
            done[name] += 1
            if left[name]:
                runs[host] = number
                heapq.heappush(events, (now + left[name][0], number, "trial", host, name))
                number += 1
            else:
                given(now, timed(scheduler.done, host))
    peak = tracemalloc.get_traced_memory()[1] if memory else 0
    if memory:
        tracemalloc.stop()
    assert not any(left.values()) or scheduler.given_up, "work was lost"
    return {
        "hosts": hosts, "trials": trials, "lost": int(hosts * losses), "again": again,
        "given up": len(scheduler.given_up), "hours": end / 3600,
        "of the best": needed / hosts / end, "scheduler ms": 1000 * spent, "MiB": peak / 2**20,
    }


def cost(*arguments: Any) -> dict[str, Any]:
    """The least processor time of nine runs, and the peak memory of one more."""
    runs = [simulated(*arguments) for _ in range(9)]
    least = min(runs, key=lambda one: one["scheduler ms"])
    return {**least, "MiB": simulated(*arguments, memory=True)["MiB"]}


class Threads:
    """Hosts that are threads of this process."""

    def __init__(self, count: int, book: Book) -> None:
        self.left = [f"host-{at}" for at in range(count)]
        self.book = book

    def appeared(self) -> list[str]:
        found, self.left = self.left, []
        return found

    def open(self, host: str, emit: Any) -> Any:
        return Standing(host, self.book) if host else Away(host, "has no name")

    def close(self, host: str, *, unfit: bool) -> None:
        """Nothing is held."""

    def stop(self) -> None:
        """Nothing runs on."""


class Standing:
    """As much of a session as the pool and the tasks below need."""

    def __init__(self, host: str, book: Book) -> None:
        self.host, self.book = host, book
        self.ground = type("Ground", (), {"machine": f"kind-{int(host[5:]) % 3}"})


def pooled(hosts: int, trials: int, folder: Path) -> dict[str, Any]:
    """The real pool over threads and a real ledger; seconds of processor and of the clock."""
    book = Book(Ledger(folder / f"{hosts}-{trials}"), "simulated", lambda event: None)
    home: Any = Standing("host-0", book)
    pool = Cluster(Threads(hosts, book), home, lambda event: None, machines=1)

    def task(at: int) -> Task[int]:
        def run(session: Any) -> int:
            for number in range(EACH):
                with book.asking(f"{at} {number}"):
                    book.count()
                    time.sleep(TAKES)
                    book.append(trial(at, number, session.host, session.ground.machine))
            return at

        return Task(at=at, unit=at, run=run, cost=EACH)

    before = resource.getrusage(resource.RUSAGE_SELF)
    begun = time.perf_counter()
    found = [result for _, result in pool.each([task(at) for at in range(trials // EACH)])]
    wall = time.perf_counter() - begun
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert sorted(one for one in found if not isinstance(one, Lost)) == list(range(trials // EACH))
    begun = time.perf_counter()
    again = Book(book.ledger, "simulated", lambda event: None)
    assert len(again.trials()) == trials, "a trial was lost, or is there twice"
    return {
        "hosts": hosts, "trials": trials, "wall": wall,
        "cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "rss": after.ru_maxrss / 1024, "resume": time.perf_counter() - begun,
    }


def trial(at: int, number: int, host: str, machine: str) -> Trial:
    """A record as long as those of a real verify."""
    return Trial(
        id=f"20261130T000000-{at}-{number}", key=f"{at:012x}{number:04x}", run="r", time="t",
        profile="simulated", bench="minimax-softmax", bench_digest="0" * 16, prefix=f"patch-{at}",
        trees={"vllm/0.29.0": f"{at:040x}"}, side="before", role="pair", pair=number, place=0,
        env={f"VLLM_SETTING_{n}": "1" for n in range(8)},
        argv=tuple(f"--argument-{n}" for n in range(24)), cache="0" * 16, cold=False,
        machine=machine, host=host, outcome="ok", exit_code=0, seconds=60.0, log="logs/verify/x",
        figures=Figures(metric="tokens_per_second", unit="tok/s", value=1500.0),
    )


def chance(machines: int, between: float, runs: int, seed: int, effect: float) -> dict[str, Any]:
    """How often a patch of this effect is called faster or slower over `machines`.

    A pair scatters by 1 %, three to eight pairs on each machine as its looks decide; the effect
    itself scatters by `between` from machine to machine.
    """
    rng = random.Random(seed)
    rule = Rule(minimum_effect=0.01)
    said = {"FASTER": 0, "SLOWER": 0, "SAME": 0, "UNCLEAR": 0}
    for _ in range(runs):
        each = []
        for _ in range(machines):
            own = rng.gauss(effect, between)
            pairs: list[Pair] = []
            while (step := next_step(pairs, rule, replaced=True)).judgement is None:
                pairs += [
                    Pair(100.0, 100.0 * (1.0 + own + rng.gauss(0.0, 0.01)))
                    for _ in range(step.pairs)
                ]
            each.append(judge_pairs(pairs, rule))
        said[over_machines(each, rule).verdict] += 1
    return {"machines": machines, "between": between, "effect": effect, **said}


def calls(address: str) -> list[dict[str, Any]]:
    """What the hosts of a real cluster cost: to have a worker there, and to ask it something."""
    ray = Ray(address)
    rows = []
    for node in ray.nodes():
        begun = time.perf_counter()
        link = ray.lease(node, {})
        link.call("is_cold", Path("/"), Path("/"), limit=120)
        leased = time.perf_counter()
        for _ in range(200):
            link.call("is_cold", Path("/"), Path("/"))
        called = time.perf_counter()
        link.release()
        rows.append({
            "host": node.host, "worker s": leased - begun, "call ms": (called - leased) * 1000 / 200
        })
    ray.close()
    return rows


def table(rows: list[dict[str, Any]]) -> None:
    """Rows as Markdown."""
    names = list(rows[0])
    print("| " + " | ".join(names) + " |\n|" + "---|" * len(names))
    for row in rows:
        cells = [f"{cell:.3g}" if isinstance(cell, float) else str(cell) for cell in row.values()]
        print("| " + " | ".join(cells) + " |")
    print()


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=200)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=1000, help="of each row of the third table")
    parser.add_argument("--only", choices=["scheduler", "pool", "chance"])
    parser.add_argument("--address", help="time the hosts of this real cluster instead")
    chosen = parser.parse_args()
    if chosen.address:
        table(calls(chosen.address))
        return
    few = chosen.trials // 10
    if chosen.only in (None, "scheduler"):
        sizes = [(1, few, 0.0), (10, few, 0.0), (chosen.hosts, few, 0.0), (chosen.hosts, few, 0.1),
                 (chosen.hosts, chosen.trials, 0.0), (chosen.hosts, chosen.trials, 0.1),
                 (1000, chosen.trials, 0.1), (1000, 10 * chosen.trials, 0.1)]
        table([cost(hosts, 3, trials, losses, 1) for hosts, trials, losses in sizes])
    if chosen.only in (None, "pool"):
        with tempfile.TemporaryDirectory() as folder:
            sizes2 = [(10, few), (chosen.hosts, few), (chosen.hosts, chosen.trials),
                      (1000, chosen.trials)]
            table([pooled(hosts, trials, Path(folder)) for hosts, trials in sizes2])
    if chosen.only in (None, "chance"):
        table([
            chance(machines, between, chosen.runs, 7, effect)
            for effect in (0.0, 0.02, 0.05) for between in (0.0, 0.01) for machines in (1, 3, 5, 10)
        ])


if __name__ == "__main__":
    main()
