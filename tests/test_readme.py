"""Every command block of README.md and docs/ is typed as it stands there, or says here why not.

A block that no list below knows fails: whoever writes one decides how it is kept true.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cli import Output
from tests.support.reader import ROOT, Block, Reader, blocks, commands

PAGES = ["README.md", *sorted(f"docs/{one.name}" for one in (ROOT / "docs").glob("*.md"))]
# Blocks by what they begin with, and where they are kept true when not here.
TABLE = "patch                 state    outcome"
KEPT_ELSEWHERE = {
    "$ stack init && stack upstream add demo": "tests/test_tour.py plays it, output and all",
    TABLE: "output: its columns are those of the reader's own verify",
    "make demo": "hours and the engine: test_what_make_does_exists",
    "name: patches": "a workflow: test_the_workflow_runs_here",
}
PLAYED = [
    "stack init", "stack import --dry-run", "stack forecast --onto", "stack verify --calibrate",
    "stack new my-fix",
]
_INLINE = re.compile(r"`((?:STACK_\w+=\w+ )*(?:python|pytest) [^`\n]*)`")
SCRIPTS = ["python scripts/bench_replay.py"]
FILLED = {r"\bFILE\.\.\.": "FILE", r"\bNAME\b": "name", r"--profile P\b": "--profile p",
          r"\bHOST:6379": "127.0.0.1:1"}  # fmt: skip
# What a person did before a command makes sense, where the page does not say it.
BEFORE: dict[str, Callable[[Reader], None]] = {
    "stack import --dry-run": Reader.hack_folder,
    "stack build": Reader.configure,
    "stack verify --calibrate": lambda reader: reader.settle("stack undo --redo"),
    "stack doctor": Reader.results,
    "stack new": lambda reader: (
        reader.settle("stack drop my-fix"),
        reader.edit("vllm/extra.py", b"EXTRA = 1\n"),
    )[0],
    "stack capture": lambda reader: (
        reader.settle("stack drop my-fix"), reader.venv(),
    )[0],
    "stack export --branch": lambda reader: reader.settle(
        f"git -C {reader.tmp}/vllm remote add fork {reader.tmp}/fork.git && "
        f"stack upstream add vllm {reader.tmp}/vllm"
    ),
}
# Answers other than 0 that a command may give here, and why.
ANSWERS = {
    "stack watch": (2, "nobody measures now"),
    "stack verify --on ray": (2, "no cluster listens here"),
    "stack diagnose": (1, "the run failed, which is the answer"),
    "stack ci": (1, "these patches lack what lint asks for"),
}


def key(block: Block, known: list[str]) -> str | None:
    return next((one for one in known if block.body.startswith(one)), None)


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_kept_true_somewhere(page: str) -> None:
    if page == "docs/cli.md":
        pytest.skip("generated and compared as a whole: tests/test_docs.py")
    for block in blocks(page):
        assert key(block, [*KEPT_ELSEWHERE, *PLAYED, *SCRIPTS]), f"{block.where}: nobody runs this"


def test_the_lists_name_blocks_that_are_there() -> None:
    found = [block for page in PAGES for block in blocks(page)]
    for one in [*KEPT_ELSEWHERE, *PLAYED, *SCRIPTS]:
        assert len([block for block in found if block.body.startswith(one)]) == 1, one


@pytest.mark.timeout(900)
def test_the_readme_is_typed_from_top_to_bottom(tmp_path: Path) -> None:
    """The blocks of `Your own fork` in their order, in one project, as a reader would."""
    reader = Reader(tmp_path)
    said: dict[str, Output] = {}
    for block in blocks("README.md"):
        if key(block, PLAYED):
            said |= {line: play(reader, line, block.where) for line in commands(block)}
    assert len(said) >= 29
    shown = next(block for block in blocks("README.md") if block.body.startswith(TABLE))
    assert shown.body.split("\n")[0].split() in [
        row.split() for row in said["stack build && stack verify"].out.splitlines()
    ]
    assert "my-fix" in (reader.folder / "report.html").read_text()
    pushed = subprocess.run(
        ["git", "log", "--format=%s", "ours"], cwd=tmp_path / "fork.git", capture_output=True,
        check=True,
    )
    assert b"Release 0.29.0" in pushed.stdout


def play(reader: Reader, line: str, where: str) -> Output:
    """Type one line; each command of it is prepared for and must answer as it should."""
    for placeholder, value in FILLED.items():
        line = re.sub(placeholder, value, line)
    for begins, prepare in BEFORE.items():
        if line.startswith(begins):
            prepare(reader)
    done = reader.type(line)
    allowed = {0}
    for begins, (code, _) in ANSWERS.items():
        if line.startswith(begins):
            allowed.add(code)
    assert done.code in allowed, f"{where}: {line}: {done}"
    return done


def test_what_make_does_exists() -> None:
    """`make -n` takes both targets apart; their `stack` commands are verbs with such options."""
    block = next(one for one in blocks("README.md") if one.body.startswith("make demo"))
    for line in commands(block):
        done = subprocess.run(
            shlex.split(line.replace("make ", "make -n ")), cwd=ROOT, capture_output=True,
            check=False, text=True,
        )
        assert done.returncode == 0, done
        ours = [row for row in done.stdout.splitlines() if row.startswith(".venv/bin/stack ")]
        for row in ours:
            asked = subprocess.run(
                [sys.executable, "-m", "stack", *shlex.split(row)[1:], "--help"], cwd=ROOT,
                capture_output=True, check=False,
            )
            assert asked.returncode == 0, row
        assert ours or "pytest" in done.stdout


@pytest.mark.parametrize("begins", SCRIPTS)
def test_a_script_of_the_page_runs(begins: str, tmp_path: Path) -> None:
    """As it stands there, on a hundredth of the patches and one file system."""
    block = next(one for one in blocks("README.md") if one.body.startswith(begins))
    (line,) = commands(block)
    words = shlex.split(line.replace("--patches 300", "--patches 3"))
    done = subprocess.run(
        [sys.executable, *words[1:], "--where", str(tmp_path)], cwd=ROOT, capture_output=True,
        check=False, text=True, timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert "git am" in done.stdout


def test_the_commands_within_the_text_exist() -> None:
    """Scripts with their options and pytest with its files, wherever a page names them."""
    for page in PAGES:
        for said in _INLINE.findall((ROOT / page).read_text()):
            words = [word for word in shlex.split(said) if not re.match(r"STACK_\w+=", word)]
            if words[0] == "python":
                assert (ROOT / words[1]).is_file(), f"{page}: {said}"
                if words[2:]:
                    asked = subprocess.run(
                        [sys.executable, words[1], "--help"], cwd=ROOT, capture_output=True,
                        check=True, text=True,
                    )
                    for option in (word for word in words[2:] if word.startswith("--")):
                        assert option in asked.stdout, f"{page}: {said}"
                continue
            done = subprocess.run(
                [sys.executable, "-m", "pytest", "--collect-only", "-q", *words[1:]], cwd=ROOT,
                capture_output=True, check=False, text=True,
            )
            assert done.returncode == 0, f"{page}: {said}: {done.stdout[-500:]}"


def test_the_workflow_runs_here(tmp_path: Path) -> None:
    """The steps of docs/ci.md that are commands; the package is the one that we release."""
    yaml = pytest.importorskip("yaml")
    block = next(one for one in blocks("docs/ci.md") if one.language == "yaml")
    steps = yaml.safe_load(block.body)["jobs"]["stack"]["steps"]
    install, check = [step["run"] for step in steps if "run" in step]
    name = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["name"]
    assert install == f"pip install {name}"
    reader = Reader(tmp_path)
    for line in commands(next(b for b in blocks("README.md") if b.body.startswith("stack init"))):
        play(reader, line, "README.md")
    done = reader.type(check)
    assert done.code in (0, 1), done
    kept = next(step for step in steps if step.get("uses", "").startswith("actions/upload"))
    assert kept["with"]["path"] == shlex.split(check)[-1]
