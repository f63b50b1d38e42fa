"""Repositories and configurations as users have them: the same trees, or the reason why not."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.conftest import numbered
from tests.support.cli import Stack
from tests.support.project import Demo
from tests.support.repo import RepoBuilder


@pytest.fixture
def demo(stack: Stack, tmp_path: Path) -> Demo:
    made = Demo(stack, tmp_path)
    made.patches(2)
    return made


def config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> None:
    """Give the user a global git configuration."""
    path = tmp_path / "gitconfig"
    path.write_text(text)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(path))


HABITS = [
    "[core]\n\tautocrlf = true\n\teol = crlf\n",
    "[core]\n\tautocrlf = input\n\tsafecrlf = true\n",
    "[core]\n\tfileMode = false\n\tsymlinks = false\n\tignoreCase = true\n",
    "[core]\n\tquotePath = true\n\tprecomposeUnicode = true\n\tabbrev = 4\n",
    "[diff]\n\tnoprefix = true\n\trenames = copies\n\talgorithm = histogram\n\tcontext = 1\n",
    "[diff]\n\tmnemonicPrefix = true\n\texternal = false\n\tsubmodule = log\n",
    "[format]\n\tsignOff = true\n\tthread = shallow\n\tattach = x\n\tsuffix = .eml\n",
    "[commit]\n\tgpgSign = true\n[tag]\n\tgpgSign = true\n[user]\n\tsigningKey = none\n",
    "[merge]\n\tconflictStyle = diff3\n\tdirectoryRenames = true\n[rerere]\n\tenabled = true\n",
    "[apply]\n\twhitespace = fix\n\tignoreWhitespace = change\n[am]\n\tkeepcr = true\n",
    "[init]\n\tdefaultObjectFormat = sha256\n\tdefaultBranch = trunk\n",
    "[core]\n\thooksPath = /nowhere\n\tfsmonitor = false\n\tuntrackedCache = true\n",
    "[i18n]\n\tcommitEncoding = latin-1\n\tlogOutputEncoding = utf-16\n",
]


@pytest.mark.parametrize("text", HABITS, ids=lambda text: text.split("\n")[1].strip())
def test_a_users_habits_change_no_byte(
    demo: Demo, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo.apply()
    tree, before = demo.tree_id(), demo.files()
    config(monkeypatch, tmp_path, text)
    demo.fresh_apply()
    assert demo.tree_id() == tree
    assert (demo.tree / "src/f0.py").read_bytes() == numbered(20).replace(
        b"line 7\n", b"changed 0\n"
    )
    (demo.tree / "src/new.py").write_bytes(b"1\n")
    demo.stack.ok("new", "fresh", "-m", "Fresh", "--why", "it is new")
    demo.stack.ok("export")
    after = demo.files()
    assert {name: after[name] for name in before if name != "series.toml"} == {
        name: data for name, data in before.items() if name != "series.toml"
    }
    assert b"diff --git a/src/new.py b/src/new.py\n" in after["fresh.patch"]


def test_a_repository_with_sha256_ids_is_refused_by_name(stack: Stack, tmp_path: Path) -> None:
    folder = tmp_path / "sha256"
    subprocess.run(["git", "init", "-q", "--object-format=sha256", str(folder)], check=True)
    for command in (["add", "."], ["commit", "-q", "--allow-empty", "-m", "x"], ["tag", "v1"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    stack.ok("init")
    added = stack("upstream", "add", "demo", str(folder))
    done = stack("line", "add", "demo@v1") if added.code == 0 else added
    assert done.code == 2
    assert "sha256" in done.err
    assert not (stack.folder / "patches/demo").exists()


def test_replaced_and_grafted_commits_are_seen_as_they_are(demo: Demo) -> None:
    """A pin is what upstream committed, whatever its owner put in its place here."""
    demo.apply()
    tree = demo.tree_id()
    repo = demo.upstream
    other = repo.commit("other", {"README": b"replaced\n"})
    repo.git("reset", "--quiet", "--hard", "v1.0")
    repo.git("replace", demo.base, other)
    demo.fresh_apply()
    assert demo.tree_id() == tree
    assert (demo.tree / "README").read_bytes() == b"demo\n"
    repo.git("replace", "--delete", demo.base)
    (repo.folder / ".git/info").mkdir(exist_ok=True)
    (repo.folder / ".git/info/grafts").write_text(f"{demo.base} {other}\n")
    head = demo.head()
    demo.fresh_apply()
    assert (demo.tree_id(), demo.head()) == (tree, head)


def test_a_partial_clone_that_lost_its_remote_says_so(
    stack: Stack, upstream: RepoBuilder, tmp_path: Path
) -> None:
    upstream.git("config", "uploadpack.allowFilter", "true")
    clone = tmp_path / "partial"
    subprocess.run(
        ["git", "clone", "-q", "--no-checkout", "--filter=blob:none", upstream.url, str(clone)],
        check=True,
    )
    upstream.folder.rename(tmp_path / "gone")
    stack.ok("init")
    stack.ok("upstream", "add", "demo", str(clone))
    line = stack("line", "add", "demo@v1.0")
    done = stack("apply") if line.code == 0 else line
    assert done.code == 2
    assert "partial clone" in done.err


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to somebody else")
def test_a_repository_of_somebody_else_says_what_git_wants(
    stack: Stack, upstream: RepoBuilder
) -> None:
    for path in (upstream.folder, *upstream.folder.rglob("*")):
        os.chown(path, 12345, 12345)
    stack.ok("init")
    stack("upstream", "add", "demo", str(upstream.folder))
    done = stack("line", "add", "demo@v1.0")
    if done.code:  # else git was told to trust it
        assert "safe.directory" in done.err


@pytest.mark.parametrize("how", ["worktree", "bare", "shallow"])
def test_every_shape_of_a_local_repository_serves(
    stack: Stack, upstream: RepoBuilder, tmp_path: Path, how: str
) -> None:
    place = tmp_path / how
    if how == "worktree":
        upstream.git("worktree", "add", "-q", str(place))
    elif how == "bare":
        subprocess.run(["git", "clone", "-q", "--bare", upstream.url, str(place)], check=True)
    else:
        subprocess.run(["git", "clone", "-q", "--depth=1", upstream.url, str(place)], check=True)
        subprocess.run(["git", "tag", "-f", "v1.0"], cwd=place, check=True, capture_output=True)
    stack.ok("init")
    stack.ok("upstream", "add", "demo", str(place))
    stack.ok("line", "add", "demo@v1.0")
    tree = Path(stack.ok("apply", "--json").json["data"]["workspace"])
    assert (tree / "src/lib.py").read_bytes() == numbered(30)


@pytest.mark.skipif(
    len({Path(one).stat().st_dev for one in ("/dev/shm", "/var/tmp") if Path(one).is_dir()}) < 2,
    reason="one file system only",
)
@pytest.mark.parametrize(("cache", "home"), [("/dev/shm", "/var/tmp"), ("/var/tmp", "/dev/shm")])
def test_the_cache_may_lie_on_another_file_system(
    upstream: RepoBuilder, cache: str, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tempfile.TemporaryDirectory
    with made(dir=cache) as one, made(dir=home) as two:
        monkeypatch.setenv("STACK_CACHE_DIR", f"{one}/cache")
        stack = Stack(Path(two))
        stack.ok("init")
        stack.ok("upstream", "add", "demo", upstream.url)
        stack.ok("line", "add", "demo@v1.0")
        tree = Path(stack.ok("apply", "--json").json["data"]["workspace"])
        assert (tree / "src/lib.py").read_bytes() == numbered(30)
        assert (Path(one) / "cache/mirrors/demo.git").is_dir()
        assert stack.ok("gc").code == 0
