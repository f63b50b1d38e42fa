"""A line shared: mailboxes, quilt folders, branches, imports of branches, and merges by git."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import numbered
from tests.support.cli import Stack
from tests.support.project import Demo
from tests.support.repo import RepoBuilder


@pytest.fixture
def demo(stack: Stack, tmp_path: Path) -> Demo:
    made = Demo(stack, tmp_path)
    made.patches(3)
    made.more("[Core] Rename\n\nWhy: names", {"src/f9.py": None, "src/g9.py": numbered(20)})
    made.more("[Core] Gr\u00fc\u00dfe, Ann\n\nWhy: new", {"src/new.py": b"new\n"})
    made.apply()
    return made


def clone(demo: Demo, folder: Path) -> RepoBuilder:
    """Upstream at the pin, in a work tree of its own."""
    made = RepoBuilder(folder)
    made.git("fetch", "--quiet", demo.upstream.folder, "v1.0")
    made.git("reset", "--quiet", "--hard", "FETCH_HEAD")
    return made


def run(argv: list[str | Path], cwd: Path, stdin: bytes = b"") -> bytes:
    done = subprocess.run(
        list(map(str, argv)), cwd=cwd, input=stdin, capture_output=True, check=False,
        env=os.environ,
    )
    assert done.returncode == 0, (done.stdout + done.stderr).decode("utf-8", "replace")
    return done.stdout


def test_git_am_reads_the_mailbox(demo: Demo, tmp_path: Path) -> None:
    there = clone(demo, tmp_path / "there")
    demo.stack.ok("export", "--format", "mbox", "-o", tmp_path / "all.mbox")
    there.git("am", "--quiet", "--keep-non-patch", tmp_path / "all.mbox")
    assert there.tree() == demo.tree_id()
    assert there.git("log", "-1", "--format=%s").decode() == "[Core] Gr\u00fc\u00dfe, Ann\n"
    piped = demo.stack.ok("export", "--format", "mbox").out
    assert piped.encode() == (tmp_path / "all.mbox").read_bytes()
    data = demo.stack.ok("export", "--format", "mbox", "--to", "edit-1", "--json").json["data"]
    assert [row["name"] for row in data["patches"]] == ["edit-0", "edit-1"]
    assert data["text"].count("\nSubject: ") == 2


def test_patch_git_and_stack_read_the_quilt_folder(demo: Demo, tmp_path: Path) -> None:
    folder = tmp_path / "quilt"
    demo.stack.ok("export", "--format", "quilt", "-o", folder)
    names = (folder / "series").read_text().split()
    assert names == [f"{name}.patch" for name in demo.names()]
    for number, argv in enumerate((["git", "apply"], ["patch", "-p1", "-s", "-F0"])):
        if shutil.which(argv[0]) is None:
            continue
        there = clone(demo, tmp_path / f"there-{number}")
        for name in names:
            run([*argv, *(["-i"] if argv[0] == "patch" else []), folder / name], there.folder)
        there.git("add", "--all")
        assert there.git("write-tree").decode().strip() == demo.tree_id()
    other = Stack(tmp_path / "other")
    other.folder.mkdir()
    other.ok("init")
    other.ok("upstream", "add", "demo", demo.upstream.folder)
    other.ok("line", "add", "demo@v1.0")
    other.ok("import", folder)
    assert other.ok("apply", "--json").json["data"]["tree"] == demo.tree_id()
    demo.stack.ok("export", "--format", "quilt", "-o", folder, "--to", "edit-0")
    assert sorted(path.name for path in folder.iterdir()) == ["edit-0.patch", "series"]
    (folder / "notes.txt").write_text("mine")
    refused = demo.stack("export", "--format", "quilt", "-o", folder)
    assert (refused.code, "holds files that are not of a series" in refused.err) == (2, True)
    demo.stack.ok("export", "--format", "quilt", "-o", folder, "--force")
    assert (folder / "notes.txt").read_text() == "mine"


def test_what_quilt_cannot_carry_is_refused_by_name(demo: Demo, tmp_path: Path) -> None:
    demo.more("Binary", {"src/data.bin": bytes(range(256))})
    refused = demo.stack("export", "--format", "quilt", "-o", tmp_path / "quilt")
    assert refused.code == 2
    assert "patch `binary`: src/data.bin: a binary file, which quilt cannot carry" in refused.err
    assert not (tmp_path / "quilt").exists()


def test_the_squashed_diff_gives_the_same_tree(demo: Demo, tmp_path: Path) -> None:
    there = clone(demo, tmp_path / "there")
    diff = demo.stack.ok("export", "--format", "squashed").out
    there.git("apply", "--index", "-", stdin=diff.encode())
    assert there.git("write-tree").decode().strip() == demo.tree_id()
    assert diff.count("diff --git") == 6


def test_a_branch_stands_on_upstreams_commit_and_is_pushed_again_after_a_change(
    demo: Demo, tmp_path: Path
) -> None:
    fork = RepoBuilder(tmp_path / "fork")
    push = ("export", "--branch", "ours", "--push", fork.folder)
    dry = demo.stack.ok(*push, "--dry-run", "--json").json["data"]
    assert (dry["before"], dry["changed"]) == (None, True)
    assert fork.git("branch", "--list", "ours") == b""
    first = demo.stack.ok(*push, "--json").json["data"]
    assert first["base"] == demo.base
    assert fork.git("merge-base", "ours", first["base"]).decode().strip() == demo.base
    assert fork.tree("ours") == demo.tree_id()
    assert fork.git("rev-list", "--count", f"{demo.base}..ours") == b"5\n"
    assert demo.stack.ok(*push, "--json").json["data"]["changed"] is False
    demo.edit_commit(0, "src/f0.py", numbered(20).replace(b"line 4\n", b"amended\n"))
    assert "not in the patch files: stack export" in demo.stack.ok(*push).err
    demo.stack.ok("export")
    demo.stack.ok(*push)  # we know what stands there: our own
    assert fork.tree("ours") == demo.tree_id()
    fork.git("checkout", "--quiet", "-b", "theirs", "ours")
    theirs = fork.commit("Theirs", {"x": b"x\n"})
    fork.git("branch", "--force", "ours", theirs)
    demo.commit("Another", {"src/another.py": b"1\n"})
    demo.stack.ok("export")
    refused = demo.stack(*push)
    assert refused.code == 2
    assert f"branch ours stands at {theirs[:12]}, which was not pushed from here" in refused.err
    assert fork.git("rev-parse", "ours").decode().strip() == theirs
    demo.stack.ok(*push, "--force")
    assert fork.tree("ours") == demo.tree_id()
    local = RepoBuilder(tmp_path / "local")
    demo.stack.ok("export", "--format", "branch", "--branch", "ours", "-o", local.folder)
    assert local.git("rev-parse", "ours") == fork.git("rev-parse", "ours")


def test_push_takes_the_name_of_a_remote_and_names_what_is_wrong(
    demo: Demo, tmp_path: Path
) -> None:
    fork = RepoBuilder(tmp_path / "fork")
    demo.upstream.git("remote", "add", "fork", fork.folder)
    demo.stack.ok("export", "--branch", "ours", "--push", "fork")
    assert fork.tree("ours") == demo.tree_id()
    fork.git("checkout", "--quiet", "ours")
    demo.commit("Another", {"src/another.py": b"1\n"})
    demo.stack.ok("export")
    for arguments, said in (
        (("--branch", "ours", "--push", "fork"), "the push of ours was refused"),
        (("--branch", "ours", "--push", tmp_path / "none"), "does not answer"),
        (("--branch", "ours", "--push", "nobody"), "no remote `nobody`"),
        (("--branch", "a..b", "--push", "fork"), "`a..b` cannot name a branch"),
        (("--push", "fork"), "--branch NAME goes with --push"),
        (("--branch", "x"), "--branch NAME goes with --push"),
        (("-o", "x"), "nothing says where to"),
        (("--format", "quilt"), "nothing says where to"),
        (("--format", "mbox", "--branch", "x", "--push", "fork"), "--push takes --branch"),
        (("--format", "tar"), "Invalid value"),
    ):
        output = demo.stack("export", *arguments)
        assert output.code == 2, output
        assert said in output.err, output


def test_a_forks_branch_becomes_the_patches_of_a_line(
    stack: Stack, upstream: RepoBuilder, tmp_path: Path
) -> None:
    stack.ok("init")
    stack.ok("upstream", "add", "demo", upstream.folder)
    stack.ok("line", "add", "demo@v1.0")
    fork = RepoBuilder(tmp_path / "fork")
    fork.git("fetch", "--quiet", upstream.folder, "v1.0")
    fork.git("reset", "--quiet", "--hard", "FETCH_HEAD")
    fork.git("tag", "base")
    fork.commit("[XPU] One\n\nBody.", {"src/app.py": numbered(40).replace(b"line 7\n", b"7\n")})
    fork.commit("[XPU] Two", {"src/two.py": b"2\n", "tool.sh": None})
    before = json.dumps(sorted(path.name for path in (stack.folder / "patches").rglob("*")))
    dry = stack.ok("import", "--git", fork.folder, "base..main", "--dry-run", "--json").json["data"]
    assert [row["name"] for row in dry["patches"]] == ["one", "two"]
    assert json.dumps(sorted(p.name for p in (stack.folder / "patches").rglob("*"))) == before
    stack.ok("import", "--git", fork.folder, "base..main")
    assert stack.ok("apply", "--json").json["data"]["tree"] == fork.tree()
    again = stack.ok("import", "--git", fork.folder, "base..main")
    assert "0 imported, 2 there already" in again.err
    fork.git("checkout", "--quiet", "-b", "side", "base")
    fork.commit("Side", {"side": b"1\n"})
    fork.git("checkout", "--quiet", "main")
    fork.git("merge", "--quiet", "--no-edit", "side")
    for span, code, said in (
        ("base..main", 2, "1 merges in the range, which a series cannot hold\n  "),
        ("base..none", 2, "no revision `none`"),
        ("main..base", 2, "holds no commits"),
        ("base", 2, "`base` is not a range"),
    ):
        output = stack("import", "--git", fork.folder, span)
        assert output.code == code, output
        assert said in output.err, output
    fork.git("checkout", "--quiet", "-b", "far", "base")
    fork.commit("Moved on", {"src/app.py": numbered(30)})
    fork.git("tag", "later")
    fork.commit("Late", {"src/app.py": numbered(30).replace(b"line 30\n", b"x\n")})
    failed = stack("import", "--git", fork.folder, "later..far")
    assert failed.code == 3
    assert "hint: begin a line where the branch begins: stack line add demo@" in failed.err


def test_line_default_and_remove(demo: Demo) -> None:
    stack = demo.stack
    stack.ok("line", "add", "demo@v1.0", "--label", "trial")
    stack.ok("line", "default", "demo/trial")
    rows = stack.ok("line", "list", "--json").json["data"]["lines"]
    assert [row["line"] for row in rows if row["default"]] == ["demo/trial"]
    refused = stack("line", "remove", "demo/trial")
    assert "hint: stack line default demo/LABEL names another one first" in refused.err
    assert "was already the default" in stack.ok("line", "default", "demo/trial").err
    before, tree = demo.files(), demo.tree_id()
    (demo.tree / "README").write_bytes(b"mine\n")
    refused = stack("line", "remove", "demo/1.0")
    assert (refused.code, "uncommitted work" in refused.err) == (2, True)
    demo.git("checkout", "--quiet", "README")
    stack.ok("line", "remove", "demo/1.0", "--dry-run")
    assert demo.files() == before
    stack.ok("line", "remove", "demo/1.0")
    assert not demo.line.exists()
    assert not demo.tree.exists()
    stack.ok("undo")
    assert demo.files() == before
    assert demo.tree_id() == tree
    stack.ok("line", "remove", "demo/1.0")
    stack.ok("line", "remove", "demo/trial")
    assert "default =" not in (stack.folder / "stack.toml").read_text()
    assert "began line demo/1.0" in stack.ok("line", "add", "demo@v1.0").err


def test_a_line_that_a_profile_names_stays(demo: Demo) -> None:
    toml = demo.stack.folder / "stack.toml"
    toml.write_text(toml.read_text() + '\n[profile.p]\nlines = ["demo"]\n')
    refused = demo.stack("line", "remove", "demo/1.0")
    assert (refused.code, "profile p names line demo/1.0" in refused.err) == (2, True)
    assert demo.line.exists()


def test_two_people_add_patches_and_git_merges_them(demo: Demo, tmp_path: Path) -> None:
    """No file is touched by both but the series, and git's own merge keeps both entries whole."""
    home = demo.stack.folder

    def git(folder: Path, *arguments: str | Path) -> bytes:
        return run(["git", *arguments], folder)

    git(home, "init", "--quiet", "--initial-branch=main")
    git(home, "add", "--all")
    git(home, "commit", "--quiet", "-m", "begin")
    people = {}
    for who, kind in (("ann", "fix"), ("bob", "fix")):
        folder = tmp_path / who
        git(tmp_path, "clone", "--quiet", home, folder)
        stack = people[who] = Stack(folder)
        for number in range(2):
            demo.upstream.commit(f"By {who} {number}", {f"src/{who}{number}.py": b"1\n"})
            (mail,) = demo.upstream.patches("HEAD~1", tmp_path / f"mails-{who}-{number}")
            demo.upstream.git("reset", "--quiet", "--hard", "v1.0")
            stack.ok("import", mail)
        series = folder / "patches/demo/1.0/series.toml"
        text = series.read_text()
        for number in range(2):
            text = text.replace(
                f'# by-{who}-{number}\nstate = "active"\nkind = "feature"',
                f'# by-{who}-{number}\nstate = "active"\nkind = "{kind}"',
            )
        series.write_text(text)
        git(folder, "add", "--all")
        git(folder, "commit", "--quiet", "-m", f"{who}'s patches")
        changed = git(folder, "diff", "--name-only", "HEAD~1").decode().split()
        assert [name for name in changed if "by-" not in name] == ["patches/demo/1.0/series.toml"]
    pull = ("pull", "--quiet", "--no-rebase", "--no-edit")
    git(people["bob"].folder, *pull, tmp_path / "ann", "main")
    rows = people["bob"].ok("list", "--json").json["data"]["lines"]
    (line,) = rows
    found = {row["name"]: row["kind"] for row in line["patches"]}
    assert list(found)[-4:] in (
        ["by-bob-0", "by-bob-1", "by-ann-0", "by-ann-1"],
        ["by-ann-0", "by-ann-1", "by-bob-0", "by-bob-1"],
    )
    assert {found[name] for name in list(found)[-4:]} == {"fix"}
    applied = people["bob"].ok("apply", "--json").json["data"]["patches"]
    assert {row["outcome"] for row in applied} == {"clean"}
    assert people["bob"].ok("export", "--check")


def test_a_line_of_a_release_archive_is_not_published(demo: Demo, tmp_path: Path) -> None:
    """Its base is a commit of our own: nobody could merge with what stands on it."""
    series = demo.line / "series.toml"
    text = series.read_text().replace(f'commit = "{demo.base}"\n', "")
    sdist = f'[pin.sdist]\nversion = "1.0"\nsha256 = "{"0" * 64}"\nshort = "g{demo.base[:9]}"\n'
    series.write_text(text.replace("[[patch]]", f"{sdist}\n[[patch]]", 1))
    refused = demo.stack("export", "--branch", "ours", "--push", tmp_path)
    assert refused.code == 2
    assert f"pinned at a release archive, which names g{demo.base[:9]} in part" in refused.err
    assert "hint: stack rebase --line demo/1.0 --onto demo@COMMIT" in refused.err
