#!/usr/bin/env python3
"""Whether `stack verify` finds a slowdown that was planted in the real engine, and nothing else.

In a scratch project with the checkout's own base environment it measures the noise (A/A), works out
the effect that eight pairs detect with 80 % power, plants a patch that slows every engine step by
1.5 times that, and verifies it ten times; beside it ten patches that change comments only. It goes
on where it stopped. Exit code 0 where 9 of 10 are found and at most one null patch is flagged.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import math
import os
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import tomlkit

from stack.model.measure.judge import LOOK_ALPHA, LOOKS
from stack.model.measure.pairs import Prior, detectable, prior_from

ROOT = Path(__file__).resolve().parents[1]
LINE = "patches/vllm/0.29.0"
PROFILE, BENCH, FIRST, PLANTED = "cpu-smoke", "planted-steps", "cpu-fp32-gate", "planted"
STEPS = "vllm/v1/engine/core.py"
# What the engine loads in this bench, and neither the first nor the planted patch touches.
COMMENTED = (
    "vllm/v1/worker/gpu_model_runner.py", "vllm/v1/worker/cpu_model_runner.py",
    "vllm/v1/worker/cpu_worker.py", "vllm/v1/core/sched/scheduler.py",
    "vllm/v1/core/kv_cache_manager.py", "vllm/v1/sample/sampler.py",
    "vllm/v1/engine/processor.py", "vllm/model_executor/models/minimax_m2.py",
    "vllm/v1/attention/backends/cpu_attn.py", "vllm/v1/executor/uniproc_executor.py",
    "vllm/v1/engine/llm_engine.py", "vllm/v1/engine/output_processor.py",
)
SLOW = '''

def _slowed(step, factor={factor!r}):
    """Busy after every step for as long as `factor` says."""

    def slowed(self):
        begun = time.perf_counter()
        result = step(self)
        until = begun + (time.perf_counter() - begun) * factor
        while time.perf_counter() < until:
            pass
        return result

    return slowed


EngineCore.step = _slowed(EngineCore.step)
'''
# A trial has a session of its own, and with it, on Linux, a share of the processor of its own.
BEFORE = """"/bin/sh", "-c", 'echo -18 > /proc/self/autogroup; exec "$@"', "bench",
  """
COMMENT = "\n# A comment, which no measurement may notice: {number}.\n"
TOML = """
[bench.{name}]
command = [
  {before}"{{{{ python }}}}", "-P", "{{{{ root }}}}/scripts/step_rate.py",
  "--model", "{{{{ models }}}}/minimax-m2-softmax",
  "--dtype", "bfloat16", "--enforce-eager", "--max-model-len", "512", "--max-num-seqs", "8",
  "--kv-cache-memory-bytes", "64M", "--output-json", "{{{{ out }}}}/result.json",
]
env = {{ VLLM_ENABLE_V1_MULTIPROCESSING = "0" }}
metric = "tokens_per_second"
unit = "tok/s"
log-pattern = 'Throughput: ([0-9.]+) total tokens/s in a fast step'
minimum-effect = {minimum}
pairs = 8
limit = 300.0
stall = 90.0
"""


def blob(data: bytes) -> str:
    """The id that git gives a file."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()  # noqa: S324


def mail(path: str, old: bytes, added: str, subject: str, why: str) -> str:
    """A patch file that appends text to a file."""
    new = old + added.encode()
    before, after = (data.decode().splitlines(keepends=True) for data in (old, new))
    diff = "".join(difflib.unified_diff(before, after, f"a/{path}", f"b/{path}"))
    return (
        "From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001\n"
        "From: patch-stack maintainers <maintainers@patch-stack.invalid>\n"
        f"Date: Mon, 30 Nov 2026 08:00:00 +0000\nSubject: [PATCH] {subject}\n\n"
        f"Why: {why}\n---\ndiff --git a/{path} b/{path}\n"
        f"index {blob(old)}..{blob(new)} 100644\n{diff}"
    )


class Scratch:
    """The project, and what was found in it so far."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.folder, self.options = folder, options
        self.results = folder / "planted.json"
        self.found: dict[str, Any] = {}
        if self.results.exists():
            self.found = json.loads(self.results.read_text())

    def stack(self, *arguments: str, ok: tuple[int, ...] = (0, 1)) -> Any:
        """Run `stack`; the data of its document."""
        done = subprocess.run(
            [sys.executable, "-m", "stack", "-C", str(self.folder), *arguments, "--json"],
            stdout=subprocess.PIPE, check=False, cwd=ROOT,
            env={**os.environ, "STACK_TRUST": "1"},  # the project is our own
        )
        if done.returncode not in ok:
            sys.exit(f"stack {' '.join(arguments)}: exit {done.returncode}\n{done.stdout.decode()}")
        return json.loads(done.stdout)["data"]

    def save(self) -> None:
        """Write what was found, whole or not at all."""
        new = self.results.with_suffix(".new")
        new.write_text(json.dumps(self.found, indent=2) + "\n")
        new.replace(self.results)

    def prepare(self) -> None:
        """The project with the first patch and the null patches; the base is the checkout's."""
        if (self.folder / "stack.toml").exists():
            return
        line = self.folder / LINE
        line.mkdir(parents=True, exist_ok=True)
        (self.folder / ".stack/venvs").mkdir(parents=True, exist_ok=True)
        for key in (ROOT / ".stack/venvs").iterdir():
            if key.is_dir():
                (self.folder / ".stack/venvs" / key.name).symlink_to(key)
        (self.folder / "scripts").mkdir(exist_ok=True)
        for name in ("make_model.py", "step_rate.py"):
            shutil.copy(ROOT / "scripts" / name, self.folder / "scripts" / name)
        head, *members = (ROOT / LINE / "series.toml").read_text().split("[[patch]]")
        first = next(one for one in members if f'name = "{FIRST}"' in one)
        (line / "series.toml").write_text(f"{head}[[patch]]{first}")
        (line / f"{FIRST}.patch").write_bytes((ROOT / LINE / f"{FIRST}.patch").read_bytes())
        bench = TOML.format(
            name=BENCH, minimum=self.options.minimum_effect,
            before=BEFORE if self.options.priority else "",
        )
        document = tomllib.loads((ROOT / "stack.toml").read_text())
        profile = document["profile"][PROFILE] | {"benches": [BENCH], "recipes": []}
        profile["prepare"] = [one for one in profile["prepare"] if "softmax" in one]
        kept = {
            "schema": document["schema"], "defaults": {"upstream": "vllm", "profile": PROFILE},
            "upstream": {"vllm": document["upstream"]["vllm"]}, "profile": {PROFILE: profile},
        }
        (self.folder / "stack.toml").write_text(tomlkit.dumps(kept) + bench)
        nulls = [self.site / name for name in COMMENTED]
        chosen = [path for path in nulls if path.is_file()][:10]
        for number, path in enumerate(chosen):
            name = path.relative_to(self.site).as_posix()
            self.add(f"null-{number}", name, COMMENT.format(number=number))

    @property
    def site(self) -> Path:
        """Where the base's packages stand."""
        (found,) = (ROOT / ".stack/venvs").glob("*/*/lib/python*/site-packages/vllm")
        return found.parent

    def add(self, name: str, path: str, added: str) -> None:
        """Put a patch that appends to a file on top of the line."""
        text = mail(
            path, (self.site / path).read_bytes(), added, name, "to see what verify says of it"
        )
        file = self.folder / f"{name}.patch"
        file.write_text(text)
        self.stack("import", "--upstream", "vllm@0.29.0", str(file), ok=(0,))
        series = self.folder / LINE / "series.toml"
        entry = f'name = "{name}"\n'
        said = series.read_text()
        series.write_text(said.replace(entry, f'{entry}bench = ["{BENCH}"]\n', 1))

    def calibrate(self) -> Prior:
        """The noise of a pair, from eight A/A pairs or more."""
        while len(self.found.setdefault("noise", [])) < self.options.calibration:
            (one,) = self.stack("verify", "null-0", "--calibrate", "--fresh")["calibrations"]
            self.found["noise"] += one["ratios"]
            self.found["machine"] = one["machine"]
            self.found["tokens_per_second"] = one["value"]
            self.save()
        prior = prior_from(self.found["noise"])
        assert prior is not None, "eight pairs are enough"
        return prior

    def plant(self, prior: Prior) -> None:
        """The patch that slows every step by 1.5 times what eight pairs detect."""
        effect = detectable(
            prior.sd / math.sqrt(LOOKS[-1]), prior.df + LOOKS[-1] - 1,
            alpha=LOOK_ALPHA[len(LOOKS)], edge=math.log1p(self.options.minimum_effect),
        )
        self.found["sd_of_a_pair"] = prior.sd
        self.found["minimum_effect"] = self.options.minimum_effect
        self.found["detectable"] = math.expm1(effect)
        self.found.setdefault("slowdown", 1.5 * math.expm1(effect))
        self.save()
        if not (self.folder / LINE / f"{PLANTED}.patch").exists():
            self.add(PLANTED, STEPS, SLOW.format(factor=1.0 + self.found["slowdown"]))

    def verify(self, name: str, key: str) -> None:
        """One whole verify of a patch, measured anew."""
        if key in self.found.setdefault("verifies", {}):
            return
        begun = time.monotonic()
        (row,) = self.stack("verify", name, "--fresh", "--pairs", "8")["patches"]
        kept = ("verdict", "ratio", "interval", "pairs", "p", "detectable", "calibrated", "note")
        said = {field: row[field] for field in kept}
        self.found["verifies"][key] = said | {
            "trials": len(row["trials"]), "seconds": round(time.monotonic() - begun),
            "load": [trial["load"] for trial in row["trials"]],
        }
        self.save()
        print(f"{key}: {row['verdict']} {row['note']}", file=sys.stderr, flush=True)

    def run(self) -> None:
        """Everything, in order; planted and null verifies take turns."""
        self.prepare()
        self.plant(self.calibrate())
        for number in range(self.options.verifies):
            self.verify(PLANTED, f"{PLANTED} {number}")
            self.verify(f"null-{number}", f"null-{number}")


def main() -> int:
    """Run, and print a table or the document."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="the scratch project")
    parser.add_argument("--minimum-effect", type=float, default=0.05)
    parser.add_argument("--calibration", type=int, default=8, help="A/A pairs, in eights")
    parser.add_argument("--verifies", type=int, default=10, help="of each kind of patch")
    parser.add_argument(
        "--priority", action="store_true",
        help="let trials go first on a machine that others use too (needs root)",
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--show", action="store_true", help="only show what was found so far")
    options = parser.parse_args()
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    scratch = Scratch(options.folder.resolve(), options)
    if not options.show:
        scratch.run()
    found = scratch.found
    rows = found.get("verifies", {})
    slow = [row for name, row in rows.items() if name.startswith(PLANTED)]
    null = [row for name, row in rows.items() if not name.startswith(PLANTED)]
    caught = sum(row["verdict"] == "SLOWER" for row in slow)
    flags = sum(row["verdict"] in ("FASTER", "SLOWER") for row in null)
    found |= {"found": caught, "of": len(slow), "false_flags": flags, "null_patches": len(null)}
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        print("| verify | verdict | ratio | pairs | seconds |\n|---|---|---|---|---|")
        for name, row in rows.items():
            low, high = row["interval"] or (math.nan, math.nan)
            ratio = f"{row['ratio']:.3f} [{low:.3f}, {high:.3f}]" if row["ratio"] else "-"
            pairs, seconds = row["pairs"], row["seconds"]
            print(f"| {name} | {row['verdict']} | {ratio} | {pairs} | {seconds} |")
        print(
            f"\nnoise of a pair {100 * found.get('sd_of_a_pair', 0):.2f} %; eight pairs detect "
            f"{100 * found.get('detectable', 0):.2f} % with 80 % power; planted: every step "
            f"{100 * found.get('slowdown', 0):.2f} % slower\n"
            f"found SLOWER {caught} of {len(slow)}; false flags {flags} of {len(null)} null patches"
        )
    small = found.get("detectable", 1.0) <= 0.10
    return 0 if small and caught >= 0.9 * len(slow) and flags <= 1 else 1


if __name__ == "__main__":
    sys.exit(main())
