"""`stack ci`: one exit code, and the files that mend what it found."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.conftest import numbered
from tests.support.cli import Stack
from tests.support.project import Demo

ROOT = Path(__file__).parents[2]


@pytest.fixture
def demo(stack: Stack, tmp_path: Path) -> Demo:
    """A project in which everything holds; its upstream has a newer release."""
    made = Demo(stack, tmp_path)
    made.patches(3)
    for name in made.names():
        path = made.line / f"{name}.patch"
        path.write_bytes(path.read_bytes().replace(
            b"Patch-Id:", b"Upstream-Status: Pending\nPatch-Id:"))
    return made


def results(demo: Demo, *arguments: str | Path) -> dict[str, str]:
    document = demo.stack("ci", "--json", *arguments).json
    assert document["exit_code"] == (0 if document["data"]["ok"] else 1)
    return {step["name"]: step["result"] for step in document["data"]["steps"]}


def test_everything_holds_in_a_fresh_clone(demo: Demo, tmp_path: Path) -> None:
    for words in ("init --quiet", "add --all", "commit --quiet -m begin"):
        subprocess.run(["git", *shlex.split(words)], cwd=demo.stack.folder, check=True)
    subprocess.run(["git", "clone", "--quiet", demo.stack.folder, tmp_path / "clone"], check=True)
    there = Stack(tmp_path / "clone")
    output = there("ci")
    assert output.code == 0, output
    assert "all 4 steps hold" in output.err
    assert "the line stands on v1.0, the newest release" in output.out
    assert not (there.folder / ".stack/workspaces").exists()


def test_a_file_that_export_would_write_otherwise_is_mended_by_the_artefact(
    demo: Demo, tmp_path: Path
) -> None:
    path = demo.line / "edit-1.patch"
    right = path.read_bytes()
    path.write_bytes(right.replace(b" line 6\n", b" line 6 \n").replace(b" line 6 \n", b" line 6\n")
                     .replace(b"Date: ", b"X-Mailer: mine\nDate: "))
    artifact = tmp_path / "fixed"
    output = demo.stack("ci", "--artifact", artifact, "--no-forecast")
    assert output.code == 1
    assert re.search(r"patches/demo/1.0/edit-1.patch:\d+: export: not as stack export", output.out)
    assert (artifact / "patches/demo/1.0/edit-1.patch").read_bytes() == right
    apply = ["git", "apply", artifact / "export.diff"]
    subprocess.run(apply, cwd=demo.stack.folder, check=True)
    assert path.read_bytes() == right
    assert results(demo, "--artifact", tmp_path / "none") == {
        "apply": "ok", "export": "ok", "lint": "ok", "forecast": "ok"}
    assert not (tmp_path / "none").exists()


def test_a_patch_that_does_not_apply_is_named_at_its_line(demo: Demo) -> None:
    path = demo.line / "edit-1.patch"
    path.write_bytes(path.read_bytes().replace(b" line 6\n", b" line six\n"))
    output = demo.stack("ci", env={"GITHUB_ACTIONS": "true",
                                   "GITHUB_WORKSPACE": str(demo.stack.folder.parent)})
    assert output.code == 1
    assert "patch `edit-1` does not apply on demo/1.0" in output.out
    file = "project/patches/demo/1.0/edit-1.patch"
    assert re.search(rf"::error file={file},line=\d+,title=stack apply::", output.out), output
    assert results(demo)["apply"] == "failed"


def test_lint_needs_and_an_unexported_workspace_fail(demo: Demo) -> None:
    demo.stack.ok("apply")
    assert results(demo, "--no-forecast") == {"apply": "ok", "export": "ok", "lint": "ok"}
    demo.commit("No reason", {"src/n": b"1\n"})
    assert results(demo)["workspace"] == "failed"
    demo.stack.ok("export")
    assert results(demo)["lint"] == "failed"
    series = demo.line / "series.toml"
    series.write_text(series.read_text().replace(
        'name = "edit-0"', 'needs = ["demo:nothing"]\nname = "edit-0"'))
    toml = demo.stack.folder / "stack.toml"
    toml.write_text(toml.read_text() + '\n[profile.p]\nlines = ["demo"]\n')
    assert results(demo)["needs"] == "failed"


def test_the_newest_release_tells_and_fails_only_when_asked_to(demo: Demo) -> None:
    demo.upstream.commit("Go on", {"src/f1.py": numbered(20).replace(b"line 7\n", b"theirs\n")})
    demo.upstream.git("tag", "v1.1")
    assert results(demo)["forecast"] == "note"
    output = demo.stack("ci")
    assert output.code == 0
    assert "v1.1: +!+, 1 questions open" in output.out
    assert "hint: stack forecast --line demo/1.0 --onto demo@v1.1 --why" in output.err
    assert results(demo, "--strict")["forecast"] == "failed"
    assert "forecast" not in results(demo, "--no-forecast")


def test_a_repository_that_was_not_fetched_for_long_tells_no_future(demo: Demo) -> None:
    demo.stack.ok("line", "add", "demo@v1.0", "--label", "2.0")
    (mail,) = demo.line.glob("edit-0.patch")
    demo.stack.ok("import", "--line", "demo/2.0", mail)
    output = demo.stack.ok("ci", "--line", "demo/2.0")
    assert "the newest release at hand, v1.0, is older than the line's" in output.out


def test_without_a_source_for_releases_the_forecast_is_skipped(demo: Demo) -> None:
    demo.upstream.git("tag", "--delete", "v1.0")
    demo.stack.ok("apply")
    assert results(demo)["forecast"] == "skipped"


def test_the_command_of_the_documentation_is_ours(demo: Demo) -> None:
    text = (ROOT / "docs/ci.md").read_text()
    (line,) = re.findall(r"run: stack (.*)", text)
    assert demo.stack(*shlex.split(line)).code == 0
    said = {row.split("|")[1].strip() for row in text.splitlines() if row.startswith("| ")}
    assert set(results(demo)) <= said
