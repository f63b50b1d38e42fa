"""What is wrong is said in one line with its place, a hint and an exit code; nothing changes."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli import Output, Stack
from tests.support.project import Demo


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """One applied project for every case here: none of them may change it."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("GIT_")]:
            patch.delenv(name)
        for role in ("AUTHOR", "COMMITTER"):
            patch.setenv(f"GIT_{role}_NAME", "Ann Author")
            patch.setenv(f"GIT_{role}_EMAIL", "ann@example.com")
        patch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
        folder = tmp_path_factory.mktemp("made")
        (folder / "project").mkdir()
        demo = Demo(Stack(folder / "project"), folder)
        demo.patches(2)
        demo.apply()
    return demo


def snapshot(folder: Path) -> dict[str, bytes | str]:
    """Every file that a person would miss; git's own index and logs aside."""
    found: dict[str, bytes | str] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if name.endswith(("/index", "/lock")) or "/logs/" in name or name.startswith(".stack/logs"):
            continue
        if path.is_symlink():
            found[name] = str(path.readlink())
        elif path.is_file():
            found[name] = path.read_bytes()
    return found


@pytest.fixture
def demo(made: Demo) -> Iterator[Demo]:
    """The project; what a test wrote into `patches/` and `stack.toml` is taken back after it."""
    root = made.stack.folder
    kept = {path: path.read_bytes() for path in [root / "stack.toml", *made.line.iterdir()]}
    yield made
    for path in made.line.iterdir():
        if path not in kept:
            path.unlink()
    for path, data in kept.items():
        path.write_bytes(data)


def refused(output: Output, code: int = 2) -> list[str]:
    """The lines of a refusal: `error: ...`, indented context, `hint: ...`."""
    assert output.code == code, output
    assert output.out == ""
    lines = output.err.splitlines()
    assert lines[0].startswith("error: "), output
    assert sum(line.startswith("error: ") for line in lines) == 1
    assert lines[-1].startswith("hint: "), output
    assert all(line.startswith("  ") for line in lines[1:-1]), output
    assert "Traceback" not in output.err
    return lines


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["apply", "--upstream", "demmo"], "no upstream `demmo`", "did you mean `demo`?"),
        (["apply", "--line", "demo/1.1"], "no line demo/1.1", "did you mean `demo/1.0`?"),
        (["apply", "--line", "demo"], "`demo` is not a line", "--line UPSTREAM/LABEL"),
        (["apply", "--upstream", "demo@9.9"], "no line of demo is pinned at `9.9`", "stack rebase"),
        (["apply", "--upstream", "demo", "--line", "demo/1.0"], "both name a line", "one of them"),
        (["apply", "--to", "edit-x"], "has no patch `edit-x`", "did you mean"),
        (["apply", "--with", "nothing-like-it"], "has no patch `nothing-like-it`", "stack list"),
        (["apply", "--with", "edit-0", "--without", "edit-0"], "stands in both", "one of them"),
        (["apply", "--from", "ftp"], "no source `ftp`", "git|path|sdist"),
        (["apply", "--nonsense"], "No such option", "stack apply --help"),
        (["aply"], "no verb `aply`", "did you mean `apply`?"),
        (["show", "edit-9"], "no line has a patch `edit-9`", "did you mean"),
        (["show"], "Missing argument", "stack show --help"),
        (["list", "demo/2"], "no line or upstream `demo/2`", "did you mean"),
        (["status", "--line", "demo/2"], "no line demo/2", "did you mean"),
        (["export", "--line", "demo/2"], "no line demo/2", "did you mean"),
        (["log", "--upstream", "x"], "no upstream `x`", "stack upstream list"),
        (["undo", "--upstream", "x"], "no upstream `x`", "stack upstream list"),
        (["undo", "--redo"], "nothing to redo", "stack log"),
        (["import", "/nowhere/x.patch"], "/nowhere/x.patch: no such file", "stack import"),
        (["upstream", "add", "Bad Name", "pypi:x"], "cannot name an upstream", "small letters"),
        (["upstream", "add", "new", "/nowhere"], "neither a URL", "stack upstream add"),
        (["upstream", "fetch", "demo"], "has no git URL", "stack upstream add"),
        (["line", "add", "demo"], "names no revision", "stack line add demo@REV"),
        (["line", "add", "demo@v1.0"], "is pinned there already", "--label"),
        (["line", "add", "demo@nothing"], "no source of demo knows `nothing`", "stack upstream"),
        (["init"], "there is a project already", "stack upstream add"),
        (["build", "--profile", "nope"], "no profile `nope`", "stack.toml"),
        (["verify", "--profile", "nope"], "no profile `nope`", "stack.toml"),
        (["completion", "tcsh"], "'tcsh' is not one of", "stack completion --help"),
        (["-C", "/nowhere", "list"], "/nowhere: no such folder", "-C"),
    ],
)
def test_what_was_typed(demo: Demo, arguments: list[str], message: str, hint: str) -> None:
    before = snapshot(demo.stack.folder)
    lines = refused(demo.stack(*arguments))
    assert message in lines[0]
    assert hint in lines[-1]
    assert snapshot(demo.stack.folder) == before
    document = demo.stack(*arguments, "--json")
    assert document.err == ""
    assert document.json["exit_code"] == document.code == 2
    assert message in document.json["errors"][0]["message"]


def test_a_revision_without_a_line_lists_the_lines(demo: Demo) -> None:
    lines = refused(demo.stack("apply", "--upstream", "demo@0.9"))
    assert lines[1].split() == ["demo/1.0", demo.base[:12]]
    assert "--line demo/1.0" in lines[-1]
    assert "--onto demo@0.9" in lines[-1]


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("stack.toml", "schema = 1", "schema = ", "stack.toml:2: "),
        ("stack.toml", "schema = 1", "schem = 1", "stack.toml:1: no `schema` number"),
        ("stack.toml", "schema = 1", "schema = 99", "stack.toml: schema 99 is newer"),
        ("stack.toml", "[upstream.demo]", "[upstream.demo]\ngitt = 'x'", "unknown key `upstream"),
        ("stack.toml", "[upstream.demo]", "[upstream.demo]\ngit = 1", "stack.toml:5: `upstream"),
        ("stack.toml", "schema = 1", "schema = 1\n\u00ff", "stack.toml:3: "),
        ("series.toml", "[pin]", "[pin", "patches/demo/1.0/series.toml:4: "),
        ("series.toml", 'tree = "', 'tree = "x', "series.toml:7: `pin.tree`"),
        ("series.toml", 'label = "1.0"', 'label = "2.0"', "series.toml:5: `pin.label` is '2.0'"),
        (
            "series.toml",
            'name = "edit-1"',
            'name = "edit-0"',
            "series.toml:17: patch `edit-0` is l",
        ),
        ("series.toml", 'name = "edit-1"', 'name = "../x"', "series.toml:17: `patch[1].name`"),
        ("series.toml", 'state = "active"', 'state = "actve"', "series.toml:10: `patch[0].state`"),
        (
            "series.toml",
            'state = "active"',
            'state = "parked"',
            "series.toml:12: patch `edit-0`: a",
        ),
        ("series.toml", 'kind = "feature"', 'kindd = "fix"', "unknown key `patch[0].kindd`"),
        ("series.toml", "schema = 1", "schema = 2", "series.toml: schema 2 is newer"),
        ("series.toml", 'name = "edit-1"', 'name = "edit-7"', "patch `edit-7` has no file"),
    ],
)
def test_malformed_toml_names_file_line_and_key(
    demo: Demo, file: str, old: str, new: str, message: str
) -> None:
    path = demo.stack.folder / file if file == "stack.toml" else demo.line / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    before = snapshot(demo.stack.folder)
    for verb in (["apply"], ["status"], ["export"]):
        output = demo.stack(*verb)
        assert output.code == 2, output
        assert message in output.err.splitlines()[0], output
        assert len(output.err.splitlines()) <= 3
    assert snapshot(demo.stack.folder) == before


PATCH_DAMAGE = {
    "empty": (lambda data: b"", "edit-1.patch:1: not a patch in mail format"),
    "no patch": (lambda data: b"\x7fELF\0\0" * 99, "edit-1.patch:1: not a patch in mail format"),
    "cut in the header": (lambda data: data[:60], "edit-1.patch:"),
    "cut in the message": (
        lambda data: data[: data.index(b"diff --git")],
        "the mail ends without a diff",
    ),
    "cut in the diff": (lambda data: data[:-30], "edit-1.patch:21: the patch ends in the middle"),
    "cut after the names": (lambda data: data[: data.index(b"@@")], "a file without hunks"),
    "count": (
        lambda data: data.replace(b"-4,7 +4,7", b"-4,6 +4,6"),
        "edit-1.patch:24: the hunk goes",
    ),
    "outside": (lambda data: data.replace(b"src/f1.py", b"../../f1.py"), "a path outside the tree"),
    "into .git": (lambda data: data.replace(b"src/f1.py", b".git/config"), "a path into .git"),
    "absolute": (lambda data: data.replace(b"a/src/f1.py", b"/etc/f1"), "edit-1.patch:"),
    "utf-16": (lambda data: data.decode().encode("utf-16"), "edit-1.patch:1: looks like UTF-16"),
}


@pytest.mark.parametrize("kind", PATCH_DAMAGE)
def test_a_damaged_patch_file(demo: Demo, kind: str, tmp_path: Path) -> None:
    damage, message = PATCH_DAMAGE[kind]
    path = demo.line / "edit-1.patch"
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    before = snapshot(demo.stack.folder)
    output = demo.stack("apply")
    assert output.code == 2, output
    first = output.err.splitlines()[0]
    assert first.startswith("error: patches/demo/1.0/edit-1.patch:")
    assert message in first
    assert demo.stack("doctor").code == 1
    assert snapshot(demo.stack.folder) == before
    path.write_bytes(whole)
    stray = tmp_path / "edit-1.patch"
    stray.write_bytes(damage(whole).replace(b"Patch-Id: ", b"Patch-Id: f"))
    output = demo.stack("import", stray)
    assert output.code == 2, output
    assert message in output.err.splitlines()[0]
    assert snapshot(demo.stack.folder) == {**before, "patches/demo/1.0/edit-1.patch": whole}


def test_no_git(demo: Demo, tmp_path: Path) -> None:
    env = {"PATH": str(tmp_path)}
    for verb in ("apply", "status", "export", "undo"):
        lines = refused(demo.stack(verb, env=env))
        assert lines[0] == "error: `git` is not installed"
        assert "install git" in lines[-1]
    assert demo.stack("doctor", env=env).code == 1
    assert "git" in demo.stack("doctor", env=env).out
    assert demo.stack.ok("list", env=env)
    assert demo.stack.ok("show", "edit-0", env=env)


def test_no_project(stack: Stack) -> None:
    for verb in (["apply"], ["list"], ["status"], ["show", "x"], ["log"], ["upstream", "list"]):
        lines = refused(stack(*verb))
        assert "no stack.toml here or in a folder above" in lines[0]
        assert lines[-1] == "hint: stack init"


def test_an_empty_project_says_what_comes_next(stack: Stack) -> None:
    stack.ok("init")
    assert "stack line add" in stack.ok("list").out
    assert "stack upstream add" in stack.ok("upstream", "list").err
    assert "no upstream named" in refused(stack("apply"))[0]
    stack.ok("upstream", "add", "demo", "pypi:demo")
    assert "stack line add demo@REV" in refused(stack("apply"))[-1]
    assert "nothing to undo" in refused(stack("undo"))[0]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "stack-test", folder],
        check=False,
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip("no right to mount a file system here")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk(small_disk: Path, tmp_path: Path) -> None:
    folder = small_disk / "project"
    folder.mkdir()
    demo = Demo(Stack(folder), tmp_path)
    demo.patches(3)
    demo.stack.ok("apply", "--to", "edit-0")
    files, head = demo.files(), demo.head()
    fill = small_disk / "fill"
    handle = os.open(fill, os.O_WRONLY | os.O_CREAT)
    with contextlib.suppress(OSError):
        while True:
            os.write(handle, b"x" * 4096)
    os.close(handle)
    output = demo.stack("apply")
    assert output.code == 2, output
    assert output.err.startswith("error: ")
    assert "No space left" in output.err or "disk" in output.err
    assert "Traceback" not in output.err
    assert demo.files() == files
    fill.unlink()
    demo.stack.ok("apply")
    assert demo.head() != head
    assert demo.git("status", "--porcelain") == ""
    assert demo.stack.ok("export", "--check")


def test_stdout_is_a_full_disk(demo: Demo) -> None:
    for verb in (["list"], ["list", "--json"], ["show", "edit-0"], ["apply"]):
        with open("/dev/full", "wb") as full:
            done = subprocess.run(
                demo.stack.argv(*verb),
                cwd=demo.stack.folder,
                stdout=full,
                stderr=subprocess.PIPE,
                check=False,
            )
        assert done.returncode == 2, done
        assert done.stderr.startswith(b"error: ")
        assert b"No space left" in done.stderr
        assert b"Traceback" not in done.stderr


def test_a_closed_pipe_is_nobodys_error(demo: Demo) -> None:
    for verb in ("list", "show edit-0", "log"):
        script = f"{' '.join(demo.stack.argv())} {verb} | true; exit ${{PIPESTATUS[0]}}"
        done = subprocess.run(
            ["bash", "-c", script], cwd=demo.stack.folder, capture_output=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, b"")


def test_a_state_folder_that_cannot_be_written(demo: Demo, tmp_path: Path) -> None:
    """A read-only mount, since root may write anywhere else."""
    state = demo.stack.folder / ".stack"
    if subprocess.run(
        ["mount", "--bind", state, state], check=False, capture_output=True
    ).returncode:
        pytest.skip("no right to mount a file system here")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", state], check=True)
        for verb in (["apply", "--to", "edit-0"], ["export"], ["undo"]):
            output = demo.stack(*verb)
            assert output.code == 2, output
            assert "Read-only file system" in output.err.splitlines()[0]
            assert "hint:" in output.err
        assert demo.stack.ok("status", "--check")
        assert demo.stack.ok("list")
        assert demo.stack.ok("log")
        assert demo.stack("doctor").code == 1
    finally:
        subprocess.run(["umount", "-l", state], check=True)


def test_a_bug_is_one_line_with_a_file_to_send(demo: Demo) -> None:
    """Forced by a receipt whose shape no release ever wrote."""
    journal = demo.stack.folder / ".stack/journal.json"
    journal.write_bytes(b"not json")
    output = demo.stack("apply")
    journal.unlink()
    assert output.code in (2, 70)
    assert "Traceback" not in output.err
    shutil.rmtree(demo.stack.folder / ".stack/logs", ignore_errors=True)
