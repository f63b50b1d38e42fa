"""`stack install`: layers in environments that somebody made with venv and pip."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.flows.test_build import CORE, FILES, Tiny, snapshot
from tests.host.tiny_wheels import unpack

LINE_7 = "import flake.core as c; print(c.LINE_7)"
WORKER = """
import multiprocessing

def ask():
    import flake.core
    assert flake.core.LINE_7 == 77

if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=ask)
    process.start(), process.join()
    raise SystemExit(process.exitcode)
"""


@pytest.fixture
def venv(tiny: Tiny, tmp_path: Path) -> Path:
    """An environment with the package, installed without our help."""
    return make_venv(tmp_path / "mine", FILES)


def make_venv(folder: Path, files: dict[str, bytes], version: str = "1.0") -> Path:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    unpack(site(folder), "tiny-flake", version, {**files, "flake/_version.py": b"1\n"})
    return folder


def site(venv: Path) -> Path:
    return next(venv.glob("lib/python*/site-packages"))


def says(venv: Path, code: str = LINE_7) -> str:
    """What the environment's Python prints, started without any help; nothing is left behind."""
    done = subprocess.run(
        [venv / "bin/python", "-B", "-c", code],
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
        env={k: v for k, v in os.environ.items() if not k.startswith("PYTHON")},
    )
    return (done.stdout + done.stderr).strip()


def test_installed_loaded_also_by_workers_and_removed_without_a_trace(
    tiny: Tiny, venv: Path, tmp_path: Path
) -> None:
    before = snapshot(venv)
    assert says(venv) == "7"
    done = tiny.stack.ok("install", "--into", venv, "demo/1.0:change-a-line", "--json").json["data"]
    assert done["changed"] is True
    assert list(done["record"]["files"]) == ["flake/core.py"]
    assert says(venv) == "77"
    assert says(venv, "import flake, flake.sub.x as x; print(x.X, flake.__path__)").startswith("1 ")
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    subprocess.run([venv / "bin/python", "-B", script], check=True)
    added = set(snapshot(venv)) - set(before)
    assert {Path(name).relative_to(venv).parts[0] for name in added} == {"lib", "stack-layers"}
    pths = [path.name for path in site(venv).iterdir() if str(path) in added]
    assert pths == ["stack-layers-demo.pth"]
    assert tiny.stack.ok("install", "--into", venv, "demo:change-a-line", "--json").json["data"][
        "changed"] is False
    tiny.stack.ok("install", "--into", venv, "--remove")
    assert says(venv) == "7"
    after = snapshot(venv)
    assert set(after) == set(before)
    assert {name for name in after if after[name] != before[name]} <= {
        str(venv), str(site(venv))}  # whose own time changed
    refused = tiny.stack("install", "--into", venv, "--remove")
    assert (refused.code, "no layer of this project" in refused.err) == (2, True)


def test_another_prefix_replaces_the_first(tiny: Tiny, venv: Path) -> None:
    tiny.stack.ok("install", "--into", venv)
    assert says(venv, "import flake.sub.new as n; print(n.NEW)") == "1"
    tiny.stack.ok("install", "--into", venv, "demo:change-a-line")
    assert says(venv, "import os, flake.sub as s; print('new.py' in os.listdir(*s.__path__))") == (
        "False")
    assert len(list((venv / "stack-layers/demo").glob("*/"))) == 2  # running programs load from it
    tiny.stack.ok("install", "--into", venv, "demo:")
    assert says(venv) == "7"
    assert len(list((venv / "stack-layers/demo").glob("*/"))) == 2
    tiny.stack.ok("install", "--into", venv, "--remove", "demo")
    assert not (venv / "stack-layers").exists()


def test_files_that_differ_are_named_and_nothing_is_changed(
    tiny: Tiny, tmp_path: Path
) -> None:
    other = make_venv(tmp_path / "other", {**FILES, "flake/core.py": CORE + b"# mine\n"})
    before = snapshot(other)
    refused = tiny.stack("install", "--into", other, "--json")
    assert refused.code == 4
    (error,) = refused.json["errors"]
    assert "flake/core.py: the installed file is not the pin's" in error["context"]
    assert "stack capture --venv" in error["hint"]
    assert snapshot(other) == before


def test_another_version_is_refused_whatever_its_files(
    tiny: Tiny, tmp_path: Path
) -> None:
    other = make_venv(tmp_path / "other", FILES, "1.1")
    refused = tiny.stack("install", "--into", other)
    assert refused.code == 4
    assert "version 1.1 is installed, but the line is pinned at 1.0" in refused.err
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "begin"], cwd=tiny.url.removeprefix("file://"),
        capture_output=True, text=True, check=True,
    ).stdout.strip()
    fits = make_venv(tmp_path / "fits", FILES, f"0.9.dev4+g{commit}")
    tiny.stack.ok("install", "--into", fits)
    assert says(fits) == "77"


def test_a_hand_edit_elsewhere_stays_and_is_said(tiny: Tiny, venv: Path) -> None:
    (site(venv) / "flake/sub/x.py").write_bytes(b"X = 5\n")
    output = tiny.stack.ok("install", "--into", venv)
    assert "flake/sub/x.py: edited by hand, and stays as it is" in output.err
    assert says(venv, "import flake.sub.x as x, flake.core as c; print(x.X, c.LINE_7)") == "5 77"


def test_an_upgraded_package_is_never_mixed_with_an_old_layer(
    tiny: Tiny, venv: Path
) -> None:
    tiny.stack.ok("install", "--into", venv)
    shutil.rmtree(site(venv) / "tiny_flake-1.0.dist-info")
    unpack(site(venv), "tiny-flake", "1.1", {**FILES, "flake/core.py": b"LINE_7 = 'new'\n"})
    assert "new" in says(venv)
    assert "stack: demo/1.0:add-and-remove is not used" in says(venv)
    tiny.stack.ok("install", "--into", venv, "--remove")
    assert says(venv) == "new"


def test_wrong_words_are_named(tiny: Tiny, venv: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", empty], check=True)
    for arguments, said in (
        (("--into", tmp_path), "not a virtual environment"),
        (("--into", empty), "`flake` is not installed there"),
        (("--into", venv, "demo:none"), "no patch `none`"),
        ((), "Missing option '--into'"),
    ):
        output = tiny.stack("install", *arguments)
        assert output.code == 2, output
        assert said in output.err
    dry = tiny.stack.ok("install", "--into", venv, "--dry-run")
    assert "would be put before tiny_flake-1.0.dist-info" in dry.err
    assert not (venv / "stack-layers").exists()
