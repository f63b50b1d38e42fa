"""Recipes with a real compiler: built once, kept, built again when what they read changes."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.host.tiny_wheels import make_wheel
from tests.support.cli import Stack
from tests.support.processes import until
from tests.support.repo import RepoBuilder

BUILD = """
set -eu
echo "cpath ${CPATH-unset} arch $KERNEL_ARCH tool $(command -v tool-of-the-recipe)"
test ! -e python/kern/_old.so
test ! -e ../../docs
if [ -e "$WAIT_FOR" ]; then echo $$ > "$WAIT_FOR"; sleep 600; fi
gcc -shared -fPIC -o python/kern/_kern.so csrc/kern.c
"""
FILES = {
    "vllm/kern/csrc/kern.c": b"int answer(void) { return 1; }\n",
    "vllm/kern/python/kern/__init__.py": b"# loads _kern.so\n",
    "vllm/kern/python/kern/_old.so": b"stale\n",
    "vllm/kern/build.sh": BUILD.encode(),
    "docs/x.md": b"x\n",
}
TOML = """schema = 1
[upstream.kernels]
git = "{url}"
[profile.card]
python = "=={python}.*"
packages = ["tiny-base==1.0"]
lines = ["kernels/1.0"]
recipes = ["kern"]
[recipe.kern]
upstream = "kernels"
reads = ["vllm/kern"]
folder = "vllm/kern"
path = ["{{{{ root }}}}/the tools"]
env = {{ KERNEL_ARCH = "{arch}", WAIT_FOR = "{{{{ root }}}}/wait" }}
unset = ["CPATH"]
clean = ["build", "python/kern/_*.so"]
command = ["{command}", "build.sh"]
outputs = ["python/kern"]
toolchain = [["tool-of-the-recipe", "--version"]]
"""
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
CHANGES: dict[str, dict[str, bytes]] = {
    "Write docs": {"docs/x.md": b"y\n"},
    "Answer two": {"vllm/kern/csrc/kern.c": b"int answer(void) { return 2; }\n"},
}


class Card:
    """A profile with one recipe, whose line has a patch outside and one inside of what it reads."""

    def __init__(self, stack: Stack, upstream: RepoBuilder, tmp_path: Path) -> None:
        self.stack, self.url, self.tmp = stack, upstream.url, tmp_path
        make_wheel(tmp_path / "links", "tiny-base", "1.0", {"tiny_base.py": b""})
        upstream.commit("begin", FILES)
        upstream.git("tag", "begin")
        for subject, files in CHANGES.items():
            upstream.commit(subject, files)
        self.tool("1.0")
        self.configure()
        stack.ok("line", "add", "kernels@begin", "--label", "1.0")
        stack.ok("import", "--upstream", "kernels@1.0", *upstream.patches("begin", tmp_path / "m"))

    def configure(self, *, arch: str = "bmg", command: str = "bash") -> None:
        text = TOML.format(url=self.url, arch=arch, command=command, python=PYTHON)
        (self.stack.folder / "stack.toml").write_text(text)

    def tool(self, version: str) -> None:
        program = self.stack.folder / "the tools/tool-of-the-recipe"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\necho tool {version}\n")
        program.chmod(0o755)

    def build(self) -> list[dict[str, Any]]:
        output = self.stack.ok("build", "--profile", "card", "--json", env={"CPATH": "/nowhere"})
        rows = output.json["data"]["layers"]
        assert isinstance(rows, list)
        return rows

    def states(self) -> list[str]:
        return [row["state"] for row in self.build()]

    @property
    def wait(self) -> Path:
        return self.stack.folder / "wait"


def answer(row: dict[str, Any]) -> int:
    """What the compiled function of a layer says."""
    return int(ctypes.CDLL(str(Path(row["path"]) / "kern/_kern.so")).answer())


@pytest.fixture
def card(stack: Stack, upstream: RepoBuilder, tmp_path: Path, own_wheels: Path) -> Card:
    return Card(stack, upstream, tmp_path)


def test_a_layer_a_source_is_built_once_and_kept(card: Card) -> None:
    rows = card.build()
    # the docs patch changes nothing that the recipe reads: it shares the layer of the base
    assert [(row["patch"], row["state"]) for row in rows] == [
        (None, "new"), ("write-docs", "kept"), ("answer-two", "new"),
    ]
    assert [answer(row) for row in rows] == [1, 1, 2]
    assert rows[0]["path"] == rows[1]["path"] != rows[2]["path"]
    assert set(rows[2]["files"]) == {"kern/__init__.py", "kern/_kern.so"}
    (log, *_) = sorted((card.stack.folder / ".stack/logs").glob("recipe-kern-*.log"))
    said = f"cpath unset arch bmg tool {card.stack.folder}/the tools/tool-of-the-recipe"
    assert said in log.read_text()
    assert card.states() == ["kept"] * 3
    assert list((card.stack.folder / ".stack/recipes/kern").iterdir()) == []


def test_what_it_reads_its_text_and_its_tools_make_another_layer(card: Card) -> None:
    first = card.build()
    card.configure(arch="dg2")
    assert card.states() == ["new", "kept", "new"]
    card.configure()
    assert card.states() == ["kept"] * 3
    card.tool("2.0")
    assert card.states() == ["new", "kept", "new"]
    patch = card.stack.folder / "patches/kernels/1.0/answer-two.patch"
    text = patch.read_bytes()
    patch.write_bytes(text.replace(b"return 2", b"return 3"))
    rows = card.build()
    assert [row["state"] for row in rows] == ["kept", "kept", "new"]
    assert answer(rows[2]) == 3
    docs = card.stack.folder / "patches/kernels/1.0/write-docs.patch"
    docs.write_bytes(docs.read_bytes().replace(b"\n+y\n", b"\n+z\n"))
    assert card.states() == ["kept"] * 3
    assert answer(first[2]) == 2


def test_an_edited_layer_is_made_again(card: Card) -> None:
    (Path(card.build()[2]["path"]) / "kern/_kern.so").write_bytes(b"not a library")
    rows = card.build()
    assert [row["state"] for row in rows] == ["kept", "kept", "new"]
    assert answer(rows[2]) == 2


def test_killed_in_the_middle_nothing_half_made_is_used(card: Card) -> None:
    card.wait.touch()
    child = card.stack.start("build", "--profile", "card")
    compiler = int(until(lambda: card.wait.read_text().strip(), 120))
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    layers = card.stack.folder / ".stack/layers"
    assert not [path for path in layers.rglob("*") if "kern" in path.name]
    assert list((card.stack.folder / ".stack/recipes/kern").glob("*/vllm/kern/csrc/kern.c"))
    card.wait.unlink()
    rows = card.build()
    assert [answer(row) for row in rows] == [1, 1, 2]
    assert list((card.stack.folder / ".stack/recipes/kern").iterdir()) == []
    os.kill(compiler, signal.SIGKILL)


def test_a_failing_recipe_names_log_and_last_words(card: Card, upstream: RepoBuilder) -> None:
    patch = card.stack.folder / "patches/kernels/1.0/answer-two.patch"
    patch.write_bytes(patch.read_bytes().replace(b"+int answer", b"+it answer"))
    output = card.stack("build", "--profile", "card", "--json")
    assert output.code == 4
    error = output.json["errors"][0]
    assert error["message"] == "recipe `kern`: the command ended with 1"
    assert "unknown type name" in "".join(error["context"])
    assert error["context"][0].startswith("log: .stack/logs/recipe-kern-")
    assert "--print" in error["hint"]


def test_an_absent_compiler_is_named_before_anything_is_made(card: Card) -> None:
    (card.stack.folder / "the tools/tool-of-the-recipe").unlink()
    output = card.stack("build", "--profile", "card")
    assert output.code == 4
    tools = card.stack.folder / "the tools"
    assert output.err.splitlines() == [
        (
            "error: profile card: recipe `kern` needs `tool-of-the-recipe`, which is not in "
            f"{tools} or on PATH"
        ),
        "hint: stack doctor --profile card says what is missing, and what to do",
    ]
    assert not (card.stack.folder / ".stack").exists() or not list(
        (card.stack.folder / ".stack").glob("venvs/*")
    )


def test_an_earlier_prefix_that_does_not_build_has_an_empty_layer(
    card: Card, upstream: RepoBuilder
) -> None:
    card.configure()
    config = card.stack.folder / "stack.toml"
    # the base answers 1 and "does not build"; only the last prefix does
    check = 'command = ["sh", "-c", "grep -q 2 csrc/kern.c && bash build.sh"]'
    config.write_text(config.read_text().replace('command = ["bash", "build.sh"]', check))
    output = card.stack.ok("build", "--profile", "card", "--json")
    rows = output.json["data"]["layers"]
    assert [row["files"] == {} for row in rows] == [True, True, False]
    assert list(Path(rows[0]["path"]).iterdir()) == []
    assert answer(rows[2]) == 2


def test_print_writes_a_script_that_does_what_build_does(card: Card) -> None:
    done = card.stack.ok("build", "--profile", "card", "--print")
    script = card.tmp / "by hand.sh"
    script.write_text(done.out)
    assert card.stack.ok("build", "--profile", "card", "--print").out == done.out
    assert "set -euo pipefail" in done.out
    subprocess.run(["bash", "-n", str(script)], check=True)
    programs = Path(sys.executable).parent
    ran = subprocess.run(
        ["bash", str(script)], check=False, capture_output=True, text=True,
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "CPATH": "/nowhere"},
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (library,) = (card.stack.folder / ".stack/by-hand").rglob("layers/**/_kern.so")
    assert ctypes.CDLL(str(library)).answer() == 2
    assert "cpath unset arch bmg" in ran.stdout
    assert json.loads(card.stack.ok("build", "--profile", "card", "--print", "--json").out)["data"]


SHADOWED = """schema = 1
[upstream.demo]
git = "{url}"
packages = ["src/flake"]
[profile.card]
python = "=={python}.*"
packages = ["tiny-flake==1.0"]
leave-out = ["tiny-gone"]
lines = ["demo/1.0"]
prepare = [["{{{{ python }}}}", "-c", "open('{{{{ models }}}}/made', 'w')"]]
env = {{ WHAT = "it's {{{{ profile }}}}" }}
"""


def test_the_script_shadows_packages_as_build_does(
    tmp_path: Path, upstream: RepoBuilder, own_wheels: Path
) -> None:
    files = {"flake/__init__.py": b"", "flake/core.py": b"X = 1\n", "flake/old.py": b""}
    make_wheel(own_wheels, "tiny-flake", "1.0", files, ["tiny-gone"])
    make_wheel(own_wheels, "tiny-gone", "1.0", {"tiny_gone.py": b""})
    upstream.commit("begin", {f"src/{name}": data for name, data in files.items()})
    upstream.git("tag", "begin")
    upstream.commit("Change, add, remove", {
        "src/flake/core.py": b"X = 2\n", "src/flake/sub/new.py": b"N = 3\n",
        "src/flake/old.py": None, "docs.md": b"x\n",
    })
    (tmp_path / "my project").mkdir()
    stack = Stack(tmp_path / "my project")
    (stack.folder / "stack.toml").write_text(SHADOWED.format(url=upstream.url, python=PYTHON))
    stack.ok("line", "add", "demo@begin", "--label", "1.0")
    stack.ok("import", "--upstream", "demo@1.0", *upstream.patches("begin", tmp_path / "m"))
    script = tmp_path / "by hand.sh"
    script.write_text(stack.ok("build", "--profile", "card", "--print").out)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ran = subprocess.run(
        ["bash", str(script)], check=False, capture_output=True, text=True,
        env={**os.environ, "PATH": path},
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    hand = stack.folder / ".stack/by-hand/card"
    assert (hand / "models/made").is_file()
    assert not list(hand.glob("venv/lib/python*/site-packages/tiny_gone.py"))
    layer = hand / "layers/demo/1.0"
    done = stack.ok("build", "--profile", "card", "--json").json["data"]
    built = Path(done["layers"][-1]["path"])

    def files_of(folder: Path) -> dict[str, bytes]:
        return {
            str(file.relative_to(folder)): file.read_bytes()
            for file in sorted(folder.rglob("*.py"))
        }

    assert files_of(layer) == files_of(built)
    assert set(files_of(layer)) == {"flake/__init__.py", "flake/core.py", "flake/sub/new.py"}
    *exports, python = ran.stdout.splitlines()[-3:]
    ask = f"{python} -c 'import os, flake.core as c; print(c.X, os.environ[\"WHAT\"])'"
    told = subprocess.run(
        ["bash", "-c", "\n".join([*exports, ask])],
        check=True, capture_output=True, text=True, cwd=tmp_path,
    )
    assert told.stdout == "2 it's card\n"


def test_gc_keeps_what_a_prefix_reads_and_removes_the_rest(card: Card) -> None:
    rows = card.build()
    assert "0 things" in card.stack.ok("gc").err
    assert card.states() == ["kept"] * 3
    patch = card.stack.folder / "patches/kernels/1.0/answer-two.patch"
    patch.write_bytes(patch.read_bytes().replace(b"return 2", b"return 3"))
    card.stack.ok("gc")
    assert not Path(rows[2]["path"]).exists()
    assert card.states() == ["kept", "kept", "new"]
