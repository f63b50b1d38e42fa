"""What every verb promises: one JSON document, nothing written by --dry-run, and its normal use."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import Output, Stack
from tests.support.project import Demo
from tests.support.repo import RepoBuilder

KEYS = {"stack_result", "command", "status", "exit_code", "data", "errors"}
ERROR_KEYS = {"code", "message", "context", "hint"}


@pytest.fixture
def demo(stack: Stack, tmp_path: Path) -> Demo:
    made = Demo(stack, tmp_path)
    made.patches(3)
    return made


def document(output: Output) -> Any:
    """The one document of a run, after checking all that is promised of it."""
    found = json.loads(output.out)
    assert set(found) == KEYS
    assert found["stack_result"] == 1
    assert found["exit_code"] == output.code
    assert isinstance(found["data"], dict)
    assert (found["status"] == "error") == bool(found["errors"])
    for error in found["errors"]:
        assert set(error) == ERROR_KEYS
        assert "\n" not in error["message"]
    return found


@pytest.mark.parametrize(
    ("arguments", "keys"),
    [
        (["list"], {"lines"}),
        (["status"], {"lines", "cut_off"}),
        (["show", "edit-1"], {"line", "file", "name", "subject", "author", "trailers", "files"}),
        (["log"], {"operations"}),
        (["apply"], {"line", "base", "source", "digest", "head", "tree", "workspace", "patches"}),
        (["apply", "--dry-run"], {"line", "patches", "changed"}),
        (["upstream", "list"], {"upstreams"}),
        (["line", "list"], {"lines"}),
        (["doctor"], {"checks", "missing"}),
        (["completion", "bash"], {"shell", "script"}),
        (["undo"], {"operation", "redo"}),
    ],
)
def test_one_document_on_success(demo: Demo, arguments: list[str], keys: set[str]) -> None:
    for command in ([*arguments, "--json"], ["--json", *arguments]):
        output = demo.stack(*command)
        found = document(output)
        assert found["status"] == "success"
        assert found["command"] == command
        assert keys <= set(found["data"])
        if arguments == ["undo"]:
            break


@pytest.mark.parametrize(
    ("arguments", "code", "exit_code"),
    [
        (["--json", "nonsense"], "usage", 2),
        (["apply", "--json", "--nonsense"], "usage", 2),
        (["apply", "--json", "--line", "demo/9"], "usage", 2),
        (["export", "--json"], "state", 2),
        (["--json", "show"], "usage", 2),
        (["-C", "/nowhere", "list", "--json"], "usage", 2),
        (["line", "add", "demo@nothing", "--json"], "source", 2),
    ],
)
def test_one_document_on_failure(
    demo: Demo, arguments: list[str], code: str, exit_code: int
) -> None:
    output = demo.stack(*arguments)
    found = document(output)
    assert (output.code, found["errors"][0]["code"]) == (exit_code, code)
    assert output.err == ""


def test_a_conflict_has_its_patches_in_the_document(demo: Demo) -> None:
    patch = demo.line / "edit-1.patch"
    patch.write_bytes(patch.read_bytes().replace(b" line 5\n", b" line five\n"))
    output = demo.stack("apply", "--json")
    found = document(output)
    assert (output.code, found["errors"][0]["code"]) == (3, "conflict")
    rows = found["data"]["patches"]
    assert [row["outcome"] for row in rows] == ["clean", "conflict", "not-tried"]
    clash = rows[1]["clashes"][0]
    assert (clash["path"], clash["hunk"], clash["line"]) == ("src/f1.py", 1, 5)
    assert (clash["expected"][0], clash["found"][0]) == ("line five", "line 5")
    text = demo.stack("apply").err.splitlines()
    assert text[0] == (
        f"error: patches/demo/1.0/edit-1.patch:{clash['patch_line']}: "
        "patch `edit-1` does not apply on demo/1.0"
    )
    assert not demo.tree.exists()


def test_an_interrupt_is_130_and_still_one_document(demo: Demo) -> None:
    (demo.stack.folder / ".stack").mkdir(exist_ok=True)
    from stack.store import lock

    with lock.hold(demo.stack.folder / ".stack/lock", "the test"):
        child = subprocess.Popen(
            demo.stack.argv("apply", "--json"),
            cwd=demo.stack.folder,
            env=os.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert child.stderr is not None
        assert b"the test" in child.stderr.readline()
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=60)
    assert child.returncode == 130
    found = json.loads(out)
    assert (found["exit_code"], found["errors"][0]["code"]) == (130, "interrupted")


def entries(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "index" and "objects" not in path.parts
    }


def test_dry_run_writes_nothing(demo: Demo, tmp_path: Path) -> None:
    demo.stack.ok("apply", "--to", "edit-0")
    demo.commit("Another", {"src/n": b"1\n"})
    demo.upstream.commit("Late", {"src/late": b"1\n"})
    (mail,) = demo.upstream.patches("HEAD~1", tmp_path / "late")
    before = entries(demo.stack.folder)
    assert demo.stack("apply", "--dry-run").code == 2  # the commit would be lost
    done = demo.stack.ok("export", "--dry-run", "--json").json["data"]
    assert [row["name"] for row in done["patches"]] == ["another"]
    done = demo.stack.ok("import", "--dry-run", mail, "--json").json["data"]
    assert [(row["name"], row["added"]) for row in done["patches"]] == [("late", True)]
    assert entries(demo.stack.folder) == before


def test_nothing_of_ours_shows_in_the_users_own_repository(
    stack: Stack, upstream: RepoBuilder
) -> None:
    """`.stack` ignores itself from the first command that makes it."""

    def untracked() -> set[str]:
        done = subprocess.run(
            ["git", "status", "--porcelain", "--untracked-files=all"],
            cwd=stack.folder,
            capture_output=True,
            check=True,
        )
        return {row[3:] for row in done.stdout.decode().splitlines()}

    subprocess.run(["git", "init", "--quiet"], cwd=stack.folder, check=True)
    stack.ok("init")
    ours = {"stack.toml", "patches/.gitattributes"}
    assert untracked() == ours
    stack.ok("upstream", "add", "demo", str(upstream.folder))
    assert untracked() == ours
    stack.ok("line", "add", "demo@v1.0")
    assert untracked() == {*ours, "patches/demo/1.0/series.toml"}
    subprocess.run(["rm", "-r", stack.folder / ".stack"], check=True)
    for verb in (["apply", "--dry-run"], ["status"], ["export", "--check"], ["log"], ["doctor"]):
        stack(*verb)
        assert untracked() == {*ours, "patches/demo/1.0/series.toml"}, verb


class TestBegin:
    """From an empty folder to a line."""

    def test_init_upstream_and_line(self, stack: Stack, upstream: RepoBuilder) -> None:
        assert "stack upstream add" in stack.ok("init").err
        first = (stack.folder / "stack.toml").read_text()
        assert stack.ok("upstream", "add", "demo", str(upstream.folder))
        assert stack.ok("upstream", "add", "demo", upstream.url)
        assert (stack.folder / "stack.toml").read_text().startswith(first)
        shown = stack.ok("upstream", "list", "--json").json["data"]["upstreams"]["demo"]
        assert (shown["git"], shown["path"]) == (upstream.url, str(upstream.folder))
        pin = stack.ok("line", "add", "demo@v1.0", "--json").json["data"]["pin"]
        assert (pin["label"], pin["commit"], pin["tree"]) == (
            "1.0",
            upstream.head(),
            upstream.tree(),
        )
        old = upstream.git("rev-parse", "HEAD~1").decode().strip()
        pin = stack.ok("line", "add", f"demo@{old[:9]}", "--json").json["data"]["pin"]
        assert (pin["label"], pin["commit"]) == (old[:7], old)
        pin = stack.ok("line", "add", "demo@main", "--label", "second", "--json").json["data"][
            "pin"
        ]
        assert (pin["label"], pin["commit"]) == ("second", upstream.head())
        rows = stack.ok("line", "list", "--json").json["data"]["lines"]
        lines = {row["line"]: row["default"] for row in rows}
        assert lines == {f"demo/{old[:7]}": False, "demo/1.0": True, "demo/second": False}

    def test_every_way_to_name_a_line(self, demo: Demo) -> None:
        for text in ("demo", "demo@1.0", "demo@v1.0", f"demo@{demo.base}", f"demo@{demo.base[:6]}"):
            done = demo.stack.ok("apply", "--upstream", text, "--dry-run", "--json")
            assert done.json["data"]["line"] == "demo/1.0"
        assert demo.stack.ok("apply", "--line", "demo/1.0", "--dry-run")


class TestImport:
    """Mail patches join a line."""

    def test_a_mailbox_a_folder_and_a_series_file(self, demo: Demo, tmp_path: Path) -> None:
        mails = []
        for number in range(4):
            demo.upstream.commit(f"[Core] Late {number}", {f"src/late{number}": b"1\n"})
        mails = demo.upstream.patches("v1.0", tmp_path / "late")
        box = tmp_path / "two.mbox"
        box.write_bytes(b"".join(mail.read_bytes() for mail in mails[:2]))
        done = demo.stack.ok("import", "--upstream", "demo@1.0", box, "--json").json["data"]
        assert [row["name"] for row in done["patches"]] == ["late-0", "late-1"]
        for mail in mails[:2]:
            mail.unlink()
        (tmp_path / "late/series").write_text(
            f"# in order\n{mails[2].name} -p1\n\n{mails[3].name}\n"
        )
        done = demo.stack.ok("import", tmp_path / "late", "--json").json["data"]
        assert [row["name"] for row in done["patches"]] == ["late-2", "late-3"]
        again = demo.stack.ok("import", tmp_path / "late", box, "--json").json["data"]
        assert [row["known"] for row in again["patches"]] == [True] * 4
        assert demo.names() == [*(f"edit-{n}" for n in range(3)), *(f"late-{n}" for n in range(4))]
        demo.stack.ok("apply")
        assert demo.stack.ok("export", "--check")
        assert (
            demo.git("log", "-1", "--format=%an <%ae> %s")
            == "Ann Author <ann@example.com> [Core] Late 3"
        )

    def test_one_file_twice(self, demo: Demo, tmp_path: Path) -> None:
        demo.upstream.commit("Late", {"src/late": b"1\n"})
        (mail,) = demo.upstream.patches("HEAD~1", tmp_path / "late")
        done = demo.stack.ok("import", mail, mail, "--json").json["data"]
        assert [(row["name"], row["added"]) for row in done["patches"]] == [("late", True)]
        assert demo.names().count("late") == 1

    def test_what_is_upstream_is_set_aside_and_a_conflict_changes_nothing(
        self, demo: Demo, tmp_path: Path
    ) -> None:
        upstream = demo.upstream
        there = upstream.git("show", "v1.0:README")
        upstream.git("checkout", "--quiet", "--orphan", "other")
        upstream.commit("old", {"README": b"older\n"})
        upstream.commit("There already", {"README": there})
        (same,) = upstream.patches("HEAD~1", tmp_path / "same")
        upstream.commit("Clash", {"README": b"x\ny\n"})
        upstream.commit("Clash more", {"README": b"x\nz\n"})
        (clash,) = upstream.patches("HEAD~1", tmp_path / "clash")
        output = demo.stack("import", same, "--json")
        found = document(output)
        assert (output.code, found["status"]) == (1, "partial")
        assert found["data"]["patches"][0]["outcome"] == "upstreamed"
        before = demo.files()
        output = demo.stack("import", clash)
        assert output.code == 3
        assert "README:" in output.err
        assert demo.files() == before


class TestShowAndLog:
    """Looking changes nothing."""

    def test_show(self, demo: Demo) -> None:
        text = demo.stack.ok("show", "edit-1").out
        assert text.startswith("demo/1.0: edit-1  feature, active\n[Core] Edit 1\n")
        assert "Why: reason 1\n" in text
        assert " src/f1.py  +1 -1\n" in text
        assert "+changed 1\n" in text
        assert "+changed 1\n" not in demo.stack.ok("show", "edit-1", "--stat").out
        raw = demo.stack.ok("show", "demo/1.0:edit-1", "--raw").out
        assert raw.encode() == demo.files()["edit-1.patch"]

    def test_log_and_undo_name_what_was_done(self, demo: Demo) -> None:
        demo.apply()
        rows = demo.stack.ok("log").out.splitlines()
        assert rows[0].startswith("demo:3  ")
        assert rows[0].endswith("  applied 3 patches of demo/1.0")
        assert [row.split("  ")[2] for row in rows[1:]] == [
            "imported 3 patches into demo/1.0",
            "began line demo/1.0",
        ]
        assert "undid 3: applied" in demo.stack.ok("undo").err
        assert not demo.tree.exists()
        assert "redid 3: applied" in demo.stack.ok("undo", "--redo").err
        assert demo.tree.exists()
        assert len(demo.stack.ok("log", "-n", "2").out.splitlines()) == 2

    def test_status_words(self, demo: Demo) -> None:
        def state() -> str:
            return str(demo.stack.ok("status", "--json").json["data"]["lines"][0]["state"])

        assert state() == "absent"
        demo.apply()
        assert state() == "clean"
        (demo.tree / "README").write_bytes(b"edited\n")
        assert state() == "edited"
        demo.commit("Commit it", {})
        assert state() == "ahead"
        demo.stack.ok("export")
        assert state() == "clean"
        patch = demo.line / "edit-0.patch"
        patch.write_bytes(patch.read_bytes().replace(b"+changed 0", b"+by hand"))
        assert state() == "behind"
        assert demo.stack("status", "--check").code == 1
        demo.apply()
        assert state() == "clean"
        demo.stack.ok("apply", "--without", "edit-1")
        row = demo.stack.ok("status", "--json").json["data"]["lines"][0]
        assert (row["state"], row["applied"], row["selected"]) == ("clean", 3, 4)
        assert row["notes"] == ["without edit-1"]

    def test_parked_patches_with_and_to(self, demo: Demo) -> None:
        demo.park("edit-1")

        def applied(*arguments: str) -> list[str]:
            done = demo.stack.ok("apply", *arguments, "--json").json["data"]
            return [row["name"] for row in done["patches"]]

        assert applied() == ["edit-0", "edit-2"]
        assert applied("--with", "edit-1") == ["edit-0", "edit-1", "edit-2"]
        assert applied("--with", "edit-1", "--to", "edit-1") == ["edit-0", "edit-1"]
        assert applied("--without", "edit-0", "--without", "edit-2") == []
        assert demo.head() == demo.base
        assert demo.stack("apply", "--to", "edit-1").code == 2


def test_help_names_every_verb_and_no_verb_needs_a_project_for_it(stack: Stack) -> None:
    text = stack.ok("--help").out
    for verb in ("init", "apply", "export", "undo", "doctor"):
        assert f"  {verb} " in text
        assert f"Usage: stack {verb}" in stack.ok(verb, "--help").out
    assert stack.ok("--version").out.startswith("stack, version ")


def test_running_the_same_verb_twice_at_once(demo: Demo) -> None:
    first = [demo.stack.start("apply", "--to", f"edit-{n}") for n in range(3)]
    codes = [child.wait(timeout=120) for child in first]
    assert codes == [0, 0, 0]
    time.sleep(0)
    assert demo.git("status", "--porcelain") == ""
    assert demo.stack.ok("status", "--check")
