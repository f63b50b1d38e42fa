"""Time `stack` against git, StGit and quilt on a made-up upstream, side by side in one run.

4,000 files of 120 lines in 160 folders; upstream moves by 21 commits that touch half of the files;
series of N patches, 3 hunks over 2 files of a pool of 200. Every run starts from a fresh copy, and
the tools take turns, so that a busy machine hurts all of them alike.

    python scripts/bench_replay.py --patches 100 300 --runs 5 --where /var/tmp /dev/shm --json out
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

FILES, FOLDERS, LINES, POOL, UPSTREAM_COMMITS = 4000, 160, 120, 200, 21
DATE = 1_700_000_000
STACK = (sys.executable, "-P", "-m", "stack")
ROOT = Path(__file__).resolve().parent.parent
PLACES = [Path("/var/tmp"), Path("/dev/shm")]  # noqa: S108 - a disk and a tmpfs, no secrets


def environment(home: Path) -> dict[str, str]:
    """A sealed environment: no user's configuration, fixed names."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return kept | {
        "HOME": str(home),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "A",
        "GIT_AUTHOR_EMAIL": "a@example.com",
        "GIT_COMMITTER_NAME": "A",
        "GIT_COMMITTER_EMAIL": "a@example.com",
        "GIT_EDITOR": "true",
        "EDITOR": "true",
        "STACK_CACHE_DIR": str(home / "cache"),
        "PYTHONPATH": str(ROOT),
        "LC_ALL": "C.UTF-8",
        # no git goes on in the background when its time is taken
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "maintenance.auto",
        "GIT_CONFIG_VALUE_0": "false",
        "QUILT_PATCHES": "patches",
        "QUILT_PC": ".pc",
    }


def run(
    argv: list[str], folder: Path, env: dict[str, str], *, stdin: bytes = b"", check: bool = True
) -> subprocess.CompletedProcess[bytes]:
    """One program to its end; what it said when it fails."""
    done = subprocess.run(
        argv, cwd=folder, env=env, input=stdin, capture_output=True, check=False, timeout=600
    )
    if check and done.returncode:
        said = (done.stdout[-2000:] + done.stderr[-2000:]).decode("utf-8", "replace")
        raise SystemExit(f"{' '.join(argv)}: exit {done.returncode}\n{said}")
    return done


def path_of(number: int) -> str:
    """Where file `number` stands."""
    return f"src/m{number % FOLDERS:03d}/f{number:04d}.py"


class Fixture:
    """The upstream repository with `base`, `new` and a branch `series-N` for each length."""

    def __init__(self, folder: Path, lengths: list[int], seed: int) -> None:
        self.folder = folder
        self.repo = folder / "repo"
        self.env = environment(folder)
        self.lengths = lengths
        self.random = random.Random(seed)
        self.marks = 0
        stream: list[bytes] = []
        files = {
            path_of(n): [f"v{i} = 'file {n}'\n".encode() for i in range(LINES)]
            for n in range(FILES)
        }
        base = self._commit(stream, "main", None, "base", files)
        pool = self.random.sample(range(FILES), POOL)
        for length in lengths:
            state = {path_of(n): list(files[path_of(n)]) for n in pool}
            tip = base
            for at in range(length):
                tip = self._commit(
                    stream, f"series-{length}", tip, f"patch {at:04d}", self._patch(state, pool, at)
                )
        moved = self._upstream(files, pool)
        tip = base
        names = sorted(moved)
        for at in range(UPSTREAM_COMMITS):
            part = {name: moved[name] for name in names[at::UPSTREAM_COMMITS]}
            tip = self._commit(stream, "new", tip, f"upstream {at}", part)
        self.repo.mkdir(parents=True)
        run(["git", "init", "-q", "-b", "unborn", "."], self.repo, self.env)
        run(["git", "fast-import", "--quiet"], self.repo, self.env, stdin=b"".join(stream))
        run(["git", "repack", "-adq"], self.repo, self.env)
        run(["git", "tag", "v1", "main"], self.repo, self.env)
        run(["git", "tag", "v2", "new"], self.repo, self.env)
        run(["git", "checkout", "-q", "main"], self.repo, self.env)
        for length in lengths:
            self._mails(length)

    def _commit(
        self,
        stream: list[bytes],
        branch: str,
        parent: int | None,
        subject: str,
        files: dict[str, list[bytes]],
    ) -> int:
        self.marks += 1
        who = b"A <a@example.com> %d +0000" % (DATE + self.marks * 60)
        text = subject.encode()
        stream.append(b"commit refs/heads/%s\nmark :%d\n" % (branch.encode(), self.marks))
        stream.append(b"author %s\ncommitter %s\ndata %d\n%s\n" % (who, who, len(text), text))
        if parent is not None:
            stream.append(b"from :%d\n" % parent)
        for name, lines in files.items():
            data = b"".join(lines)
            stream.append(b"M 100644 inline %s\ndata %d\n%s\n" % (name.encode(), len(data), data))
        return self.marks

    def _patch(
        self, state: dict[str, list[bytes]], pool: list[int], at: int
    ) -> dict[str, list[bytes]]:
        """Three places in two files of the pool, away from the first lines."""
        first, second = (path_of(n) for n in self.random.sample(pool, 2))
        for name, place in ((first, 30), (first, 60), (second, 90)):
            line = place + self.random.randrange(20)
            state[name][line] = f"v{line} = 'patch {at}'\n".encode()
        return {name: list(state[name]) for name in (first, second)}

    def _upstream(self, files: dict[str, list[bytes]], pool: list[int]) -> dict[str, list[bytes]]:
        """Half of the files, half of the pool among them, get lines at the top."""
        rest = sorted(set(range(FILES)) - set(pool))
        chosen = self.random.sample(pool, POOL // 2)
        chosen += self.random.sample(rest, FILES // 2 - POOL // 2)
        return {
            path_of(n): [
                b"# header one\n",
                b"# header two\n",
                b"# header three\n",
                *files[path_of(n)],
            ]
            for n in chosen
        }

    def _mails(self, length: int) -> None:
        """The series as mail patches and as a quilt series."""
        folder = self.folder / f"mails-{length}"
        flags = ["--keep-subject", "--no-stat", "--no-signature", "--zero-commit", "--full-index"]
        run(
            [
                "git",
                "format-patch",
                *flags,
                "--binary",
                "-q",
                "-o",
                str(folder),
                f"main..series-{length}",
            ],
            self.repo,
            self.env,
        )
        quilt = self.folder / f"quilt-{length}"
        quilt.mkdir()
        names = sorted(path.name for path in folder.iterdir())
        for name in names:
            shutil.copy(folder / name, quilt / name)
        (quilt / "series").write_text("".join(f"{name}\n" for name in names))
        project = self.folder / f"project-{length}"
        project.mkdir()
        stack(self, project, "init")
        stack(self, project, "upstream", "add", "demo", str(self.repo))
        stack(self, project, "line", "add", "demo@v1")
        stack(self, project, "import", *(str(path) for path in sorted(folder.iterdir())))
        stack(self, project, "forecast", "--onto", "demo@v2")  # the bases are fetched once


def stack(fixture: Fixture, project: Path, *arguments: str) -> None:
    """`stack` in a project, as a whole process."""
    run([*STACK, "-q", *arguments], project, fixture.env)


class Case:
    """One tool doing one thing: `prepare` makes a fresh copy, `act` is timed, `prove` checks."""

    def __init__(
        self,
        name: str,
        prepare: Callable[[Path, int], None],
        act: Callable[[Path, int], None],
        tree: Callable[[Path], str] | None,
    ) -> None:
        self.name, self.prepare, self.act, self.tree = name, prepare, act, tree


def cases(fixture: Fixture) -> list[Case]:
    """The tools that are installed."""
    env = fixture.env

    def clone(folder: Path, checkout: str) -> None:
        shutil.copytree(fixture.repo, folder, symlinks=True)
        run(["git", "checkout", "-q", "-B", "work", checkout], folder, env)
        run(["git", "status", "--short"], folder, env)

    def git(*arguments: str) -> Callable[[Path, int], None]:
        return lambda folder, n: _quiet(
            ["git", *(part.format(n=n) for part in arguments)], folder, env
        )

    def head(folder: Path) -> str:
        return run(["git", "rev-parse", "HEAD^{tree}"], folder, env).stdout.decode().strip()

    def project(folder: Path, n: int) -> None:
        shutil.copytree(fixture.folder / f"project-{n}", folder, symlinks=True)

    def rebased(folder: Path) -> str:
        shown = run([*STACK, "apply", "--line", "demo/2", "--json"], folder, env).stdout
        return str(json.loads(shown)["data"]["tree"])

    def am(folder: Path, n: int) -> None:
        mails = sorted(str(path) for path in (fixture.folder / f"mails-{n}").iterdir())
        _quiet(["git", "am", "-3", "--keep-non-patch", *mails], folder, env)

    found = [
        Case(
            "stack rebase",
            project,
            lambda f, n: stack(fixture, f, "rebase", "--onto", "demo@v2"),
            rebased,
        ),
        Case(
            "stack forecast",
            project,
            lambda f, n: stack(fixture, f, "forecast", "--onto", "demo@v2"),
            None,
        ),
        Case("stack apply", project, lambda f, n: stack(fixture, f, "apply"), None),
        Case("git am -3", lambda f, n: clone(f, "new"), am, head),
        Case(
            "git rebase --merge",
            lambda f, n: clone(f, f"series-{n}"),
            git("rebase", "-q", "--merge", "--onto", "new", "main"),
            head,
        ),
    ]
    if _git_version(env) >= (2, 44):

        def replay(folder: Path, n: int) -> None:
            moved = run(["git", "replay", "--onto", "new", f"main..series-{n}"], folder, env).stdout
            run(["git", "update-ref", "--stdin"], folder, env, stdin=moved)
            run(["git", "checkout", "-q", f"series-{n}"], folder, env)

        found.append(Case("git replay", lambda f, n: clone(f, "new"), replay, head))
    if shutil.which("stg"):

        def commits(folder: Path, n: int) -> None:
            clone(folder, f"series-{n}")
            run(["stg", "init"], folder, env)
            run(["stg", "uncommit", "-n", str(n)], folder, env)

        found.append(
            Case("stg rebase", commits, lambda f, n: _quiet(["stg", "rebase", "new"], f, env), head)
        )
    if shutil.which("quilt"):

        def quilted(folder: Path, n: int) -> None:
            clone(folder, "new")
            shutil.copytree(fixture.folder / f"quilt-{n}", folder / "patches")

        def worktree(folder: Path) -> str:
            run(["git", "add", "-A", "src"], folder, env)
            return run(["git", "write-tree"], folder, env).stdout.decode().strip()

        found.append(
            Case(
                "quilt push -a",
                quilted,
                lambda f, n: _quiet(["quilt", "push", "-aq"], f, env),
                worktree,
            )
        )
    return found


def _git_version(env: dict[str, str]) -> tuple[int, int]:
    text = run(["git", "--version"], Path("/"), env).stdout.decode()
    match = re.search(r"(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _quiet(argv: list[str], folder: Path, env: dict[str, str]) -> None:
    run(argv, folder, env)


def engine(fixture: Fixture, n: int, folder: Path, write: bool) -> tuple[float, float]:
    """Seconds of the engine alone in a fresh process: patches read, carried, written as a pack."""
    code = (
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from stack.model.mail.mail import parse_mail\n"
        "from stack.model.diff.parse import parse_diff\n"
        "from stack.repo.carry_series import carry_series\n"
        "from stack.repo.client import Git\n"
        "from stack.repo.odb import ObjectStore\n"
        "from stack.repo.replay import Item\n"
        "git = Git(Path(sys.argv[1]) / '.git')\n"
        "items = []\n"
        "for path in sorted(Path(sys.argv[2]).iterdir()):\n"
        "    mail = parse_mail(path.read_bytes(), path.name)\n"
        "    files = parse_diff(mail.diff, path.name, first=mail.diff_line)\n"
        "    items.append(Item(name=path.name, mail=mail, files=files))\n"
        "old, new = (git.run('rev-parse', r + '^{commit}').text for r in ('v1', 'v2'))\n"
        "begun, start = time.perf_counter(), os.times()\n"
        "with ObjectStore(git) as odb:\n"
        "    steps = carry_series(odb, items, old, new)\n"
        "    assert steps[-1].commit, steps[-1]\n"
        "    if sys.argv[3] == 'write':\n"
        "        odb.write()\n"
        "used = os.times()\n"
        "print(time.perf_counter() - begun, sum(used[:4]) - sum(start[:4]))\n"
    )
    done = run(
        [
            sys.executable,
            "-P",
            "-c",
            code,
            str(folder),
            str(fixture.folder / f"mails-{n}"),
            "write" if write else "read",
        ],
        folder,
        fixture.env,
    )
    wall, cpu = done.stdout.split()[-2:]
    return float(wall), float(cpu)


def measure(
    fixture: Fixture, n: int, runs: int, scratch: Path, without: list[str]
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Wall and processor seconds of every case, taking turns; the trees of all must be equal."""
    times: dict[str, list[float]] = {}
    busy: dict[str, list[float]] = {}
    trees: dict[str, str] = {}
    listed = [case for case in cases(fixture) if case.name.split()[0] not in without]
    for turn in range(runs):
        print(f"{scratch.parent}: {n} patches, turn {turn + 1} of {runs}", file=sys.stderr)
        for case in listed if turn % 2 == 0 else listed[::-1]:
            folder = scratch / "copy"
            case.prepare(folder, n)
            os.sync()
            begun, before = time.perf_counter(), _cpu()
            case.act(folder, n)
            times.setdefault(case.name, []).append(time.perf_counter() - begun)
            busy.setdefault(case.name, []).append(_cpu() - before)
            if case.tree is not None and turn == 0:
                trees[case.name] = case.tree(folder)
            shutil.rmtree(folder)
        folder = scratch / "copy"
        shutil.copytree(fixture.repo, folder, symlinks=True)
        os.sync()
        for name, write in (("engine alone", True), ("engine, nothing written", False)):
            seconds, cpu = engine(fixture, n, folder, write=write)
            times.setdefault(name, []).append(seconds)
            busy.setdefault(name, []).append(cpu)
        shutil.rmtree(folder)
    if len(set(trees.values())) != 1:
        raise SystemExit(f"the tools disagree: {trees}")
    return times, busy


def _cpu() -> float:
    """Processor seconds of everything that ended so far, user and system."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--patches", type=int, nargs="+", default=[100, 300])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--where", type=Path, nargs="+", default=PLACES)
    parser.add_argument("--leave-out", nargs="+", default=[], help="tools, such as: stg quilt")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", type=Path, help="write the samples to this file")
    chosen = parser.parse_args()
    rows: list[dict[str, object]] = []
    for where in chosen.where:
        with tempfile.TemporaryDirectory(prefix="bench-replay-", dir=where) as name:
            fixture = Fixture(Path(name) / "fixture", chosen.patches, chosen.seed)
            before: dict[str, float] = {}
            for n in chosen.patches:
                times, busy = measure(
                    fixture, n, chosen.runs, Path(name), chosen.leave_out
                )
                wall, cpu = (
                    {case: statistics.median(seconds) for case, seconds in one.items()}
                    for one in (times, busy)
                )
                print(f"\n{where}, {n} patches, {chosen.runs} runs, load {os.getloadavg()[0]:.1f}")
                rival = "git am -3" if "git am -3" in wall else next(iter(wall))
                print(f"{'':24}{'seconds':>9}{'min':>8}{'ratio':>8}{'cpu s':>9}{'ratio':>8}"
                      f"   (to {rival})")  # fmt: skip
                for case in sorted(wall, key=lambda case: wall[case]):
                    ratios = wall[case] / wall[rival], cpu[case] / cpu[rival]
                    print(
                        f"{case:24}{wall[case]:9.3f}{min(times[case]):8.3f}{ratios[0]:8.2f}"
                        f"{cpu[case]:9.3f}{ratios[1]:8.2f}"
                    )
                    rows.append(
                        {
                            "where": str(where),
                            "patches": n,
                            "case": case,
                            "median_s": wall[case],
                            "rival": rival,
                            "ratio": ratios[0],
                            "samples_s": times[case],
                            "cpu_s": busy[case],
                        }
                    )
                for case, seconds in before.items():
                    print(f"{case:24}{wall[case] / seconds:9.2f} times the last length")
                before = wall
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"\nlargest process: {peak:.0f} MiB")
    if chosen.json:
        chosen.json.write_text(
            json.dumps({"rows": rows, "largest_process_mib": peak}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
