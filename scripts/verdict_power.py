#!/usr/bin/env python3
"""How often `stack verify` is wrong, and how often it finds what is there, by simulation.

Every verdict here comes from the product's own functions. Noise of one run, in log units:
sd 0.62 % with Student-t tails (5 degrees of freedom) and a drift of 1 % over sixteen runs (S1); S2
adds runs that are 5 to 20 % slow with probability 2 %, and a fixed effect of each build with sd
0.2 %. "steep" puts the whole drift into six runs. The machine's noise is known from 16 A/A pairs
drawn from the same scenario, except where a row says otherwise.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from stack.model.measure.judge import LOOK_ALPHA, LOOKS, Rule, next_step
from stack.model.measure.pairs import Pair, Prior, log_ratios, prior_from
from stack.model.measure.verdict import Judgement, Verdict, over_patches

EFFECTS = (0.0, 0.01, 0.02, 0.05)
SD = 0.0062
DRIFT = 0.01
CHAIN = 10


@dataclass(frozen=True)
class Scenario:
    """A kind of noise, and how the runs are ordered and the machine's noise is known."""

    name: str
    outliers: float = 0.0
    build: float = 0.0
    drift_runs: int = 16
    order: str = "ABBA"
    prior_scale: float | None = 1.0
    quads: bool = False


SCENARIOS = (
    Scenario("S1"),
    Scenario("S2", outliers=0.02, build=0.002),
    Scenario("S1 steep", drift_runs=6),
    Scenario("S2 steep", outliers=0.02, build=0.002, drift_runs=6),
    Scenario("S1, not calibrated", prior_scale=None),
    Scenario("S2, not calibrated", outliers=0.02, build=0.002, prior_scale=None),
    Scenario("S1, history half as noisy", prior_scale=0.5),
    Scenario("S1, history twice as noisy", prior_scale=2.0),
    Scenario("S1 steep, pairs AB AB", drift_runs=6, order="ABAB"),
    Scenario("S1 steep, whole ABBA blocks", drift_runs=6, quads=True),
    Scenario("S1, whole ABBA blocks", quads=True),
)


class Lab:
    """A machine with a scenario's noise, and two builds on it."""

    def __init__(self, scenario: Scenario, effect: float, rng: random.Random) -> None:
        self.scenario, self.rng = scenario, rng
        self.effect = (0.0, effect)
        self.build = tuple(rng.gauss(0.0, scenario.build) for _ in range(2))
        self.slope = rng.choice((-1, 1)) * DRIFT / (scenario.drift_runs - 1)
        self.swap = rng.random() < 0.5
        self.runs = 0

    def value(self, side: int) -> float:
        """Throughput of the next run on one side."""
        rng = self.rng
        tail = rng.gauss(0.0, 1.0) / math.sqrt(rng.gammavariate(2.5, 2.0) / 5.0)
        log = SD * tail / math.sqrt(5.0 / 3.0) + self.slope * self.runs
        log += self.effect[side] + self.build[side]
        if rng.random() < self.scenario.outliers:
            log -= rng.uniform(0.05, 0.20)
        self.runs += 1
        return math.exp(log)

    def pair(self, index: int) -> Pair:
        """Two runs, the first side alternating from a random beginning."""
        before_first = self.swap != (self.scenario.order == "ABBA" and index % 2 == 1)
        if before_first:
            before, after = self.value(0), self.value(1)
        else:
            after, before = self.value(1), self.value(0)
        return Pair(before, after, before_first)

    def sample(self, index: int) -> Pair:
        """What one decision counts as a pair: two runs, or the mean of an ABBA block."""
        if not self.scenario.quads:
            return self.pair(index)
        one, two = self.pair(2 * index), self.pair(2 * index + 1)
        return Pair(
            math.sqrt(one.before * two.before), math.sqrt(one.after * two.after), one.before_first
        )


def calibrated(scenario: Scenario, rng: random.Random) -> Prior | None:
    """A prior from 16 A/A pairs of this scenario."""
    if scenario.prior_scale is None:
        return None
    lab = Lab(scenario, 0.0, rng)
    lab.build = (0.0, 0.0)
    count = 8 if scenario.quads else 16
    prior = prior_from(log_ratios([lab.sample(i) for i in range(count)], "higher"))
    assert prior is not None, "sixteen pairs are enough"
    return Prior(sd=prior.sd * scenario.prior_scale, pairs=prior.pairs)


def verify(
    scenario: Scenario, effect: float, rng: random.Random, family: int = 1
) -> tuple[Judgement, int]:
    """One verify as the product runs it: the verdict, and how many pairs of runs it took."""
    lab = Lab(scenario, math.log1p(effect), rng)
    prior = calibrated(scenario, rng)
    rule = Rule(prior=prior, looks=(2, 3, 4) if scenario.quads else LOOKS, family=family)
    pairs: list[Pair] = []
    replaced = False
    while True:
        step = next_step(pairs, rule, replaced=replaced)
        if step.judgement is not None:
            return step.judgement, lab.runs // 2
        if step.replace is not None:
            pairs[step.replace] = lab.sample(step.replace)
            replaced = True
        for _ in range(step.pairs):
            pairs.append(lab.sample(len(pairs)))


@dataclass(frozen=True)
class Row:
    """What a scenario came to; all but `pairs` are fractions of its runs."""

    scenario: str
    false_positive: float
    power: dict[str, float]
    wrong_way: float
    same_at_0: float
    coverage: float
    pairs: dict[str, float]
    chain_alone: float
    chain_holm: float
    chain_power: float
    chain_pairs: float


def simulate(scenario: Scenario, runs: int, seed: int) -> Row:
    """Run one scenario at every effect, then as a stack of ten patches."""
    rng = random.Random(f"{seed} {scenario.name}")
    counts: dict[float, Counter[Verdict]] = {}
    pairs: dict[str, float] = {}
    covered = 0
    null: list[Judgement] = []
    for effect in EFFECTS:
        counts[effect] = Counter()
        taken = 0
        for _ in range(runs):
            judgement, used = verify(scenario, effect, rng)
            counts[effect][judgement.verdict] += 1
            taken += used
            assert judgement.low is not None
            assert judgement.high is not None
            covered += judgement.low <= 1.0 + effect <= judgement.high
            if effect == 0.0:
                null.append(judgement)
        pairs[f"{effect:g}"] = taken / runs
    flagged = counts[0.0][Verdict.FASTER] + counts[0.0][Verdict.SLOWER]
    family = [verify(scenario, 0.0, rng, CHAIN)[0] for _ in range(runs)]
    real = [verify(scenario, math.log1p(0.02), rng, CHAIN) for _ in range(runs)]
    found = [stack_of_ten(judgement, family, i) for i, (judgement, _) in enumerate(real)]
    return Row(
        scenario=scenario.name,
        false_positive=flagged / runs,
        power={f"{e:g}": counts[e][Verdict.FASTER] / runs for e in EFFECTS[1:]},
        wrong_way=max(counts[e][Verdict.SLOWER] / runs for e in EFFECTS[1:]),
        same_at_0=counts[0.0][Verdict.SAME] / runs,
        coverage=covered / (runs * len(EFFECTS)),
        pairs=pairs,
        chain_alone=chain(null, list),
        chain_holm=chain(family, over_patches),
        chain_power=sum(j.verdict is Verdict.FASTER for j in found) / runs,
        chain_pairs=sum(used for _, used in real) / runs,
    )


def stack_of_ten(real: Judgement, null: Sequence[Judgement], begin: int) -> Judgement:
    """What Holm leaves of the one real effect among ten patches."""
    others = [null[(begin + i) % len(null)] for i in range(CHAIN - 1)]
    return over_patches([real, *others])[0]


def chain(null: Sequence[Judgement], correct: Callable[..., Sequence[Judgement]]) -> float:
    """The chance that a stack of ten null patches shows at least one false flag."""
    stacks = [null[i : i + CHAIN] for i in range(0, len(null) - CHAIN + 1, CHAIN)]
    flags = (Verdict.FASTER, Verdict.SLOWER)
    return sum(any(j.verdict in flags for j in correct(s)) for s in stacks) / len(stacks)


def main() -> None:
    """Print one table, or one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=2000, help="simulated verifies for each figure")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    begun = time.process_time()
    rows = [simulate(scenario, options.runs, options.seed) for scenario in SCENARIOS]
    if options.json:
        document = {
            "runs": options.runs,
            "seed": options.seed,
            "alpha": LOOK_ALPHA[len(LOOKS)],
            "rows": [asdict(row) for row in rows],
        }
        print(json.dumps(document, indent=2))
        return
    print(
        "| scenario | false positives | power at 1 % | 2 % | 5 % | SAME at 0 | 90 % interval holds "
        "| pairs at 0, 2 % | a false flag in ten null patches: each alone, Holm "
        "| 2 % found among ten (pairs) |\n" + 10 * "|---" + "|"
    )
    for row in rows:
        power = " | ".join(f"{100 * p:.1f} %" for p in row.power.values())
        print(
            f"| {row.scenario} | {100 * row.false_positive:.1f} % | {power} "
            f"| {100 * row.same_at_0:.0f} % | {100 * row.coverage:.0f} % "
            f"| {row.pairs['0']:.1f}, {row.pairs['0.02']:.1f} "
            f"| {100 * row.chain_alone:.0f} %, {100 * row.chain_holm:.1f} % "
            f"| {100 * row.chain_power:.1f} % ({row.chain_pairs:.1f}) |"
        )
    print(f"\n{options.runs} verifies for each figure, {time.process_time() - begun:.0f} s")


if __name__ == "__main__":
    main()
