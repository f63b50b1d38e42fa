"""Locks that a killed git leaves go; those of a user's git stay, and are waited for."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stack.errors import GitError, GitHeld
from stack.repo import locks
from stack.repo.client import Git
from stack.repo.workspace import Workspace
from stack.store import lock
from tests.support.cli import Stack
from tests.support.project import Demo
from tests.support.repo import RepoBuilder


@pytest.fixture
def demo(stack: Stack, tmp_path: Path) -> Demo:
    made = Demo(stack, tmp_path)
    made.patches(3)
    made.apply()
    return made


def index_lock(demo: Demo) -> Path:
    return Path(demo.git("rev-parse", "--absolute-git-dir")) / "index.lock"


def test_what_a_killed_git_locked_in_a_worktree_is_free_for_the_next_command(demo: Demo) -> None:
    held = index_lock(demo)
    marks = (demo.stack.folder / ".stack/stack-writes", held.with_name("stack-writes"))
    for path in (*marks, held):
        path.touch()
    demo.stack.ok("apply", "--to", "edit-1")
    for path in (*marks, held):
        assert not path.exists()
    assert demo.git("status", "--porcelain") == ""


def test_a_lock_of_a_users_own_git_stays_and_is_named(demo: Demo) -> None:
    held = index_lock(demo)
    held.touch()
    head = demo.head()
    refused = demo.stack("apply", "--to", "edit-1")
    assert refused.code == 2
    assert f"error: {held}: another git is at work" in refused.err
    assert "remove that file" in refused.err
    assert held.exists()
    assert demo.head() == head
    assert not (demo.stack.folder / ".stack/journal.json").exists()
    assert demo.stack("status").code == 0
    held.unlink()
    demo.stack.ok("apply", "--to", "edit-1")
    assert not held.with_name("stack-writes").exists()
    assert demo.git("status", "--porcelain") == ""
    assert demo.git("log", "--format=%s", f"{demo.base}..HEAD").splitlines() == [
        "[Core] Edit 1", "[Core] Edit 0",
    ]


def test_a_users_git_that_ends_soon_is_waited_for(demo: Demo) -> None:
    held = index_lock(demo)
    held.touch()
    ends = threading.Timer(0.7, held.unlink)
    ends.start()
    demo.stack.ok("apply", "--to", "edit-1")
    ends.join()


def test_a_git_that_is_about_to_end_is_let_end(repo: RepoBuilder) -> None:
    git_dir = repo.folder / ".git"
    held = git_dir / "index.lock"
    (git_dir / locks.MARK).touch()
    held.write_bytes(b"new")
    began = time.monotonic()
    ends = threading.Timer(0.3, lambda: held.rename(git_dir / "index"))
    ends.start()
    locks.free_worktree(git_dir)
    assert 0.2 < time.monotonic() - began < 0.9
    assert (git_dir / "index").read_bytes() == b"new"


@pytest.mark.parametrize(
    "name", ["packed-refs.lock", "packed-refs.new", "refs/heads/main.lock", "config.lock",
             "objects/info/commit-graphs/commit-graph-chain.lock"]
)
def test_locks_of_a_repository_that_only_stack_writes_to_go(repo: RepoBuilder, name: str) -> None:
    held = repo.folder / ".git" / name
    held.parent.mkdir(parents=True, exist_ok=True)
    held.touch()
    locks.free(repo.folder / ".git")
    assert not held.exists()


def test_looking_takes_no_lock(demo: Demo) -> None:
    """A reader that rewrites the index would be in a writer's way."""
    for path in demo.tree.rglob("*.py"):
        path.touch()
    index = index_lock(demo).with_name("index")
    before = index.read_bytes()
    demo.stack.ok("status")
    assert index.read_bytes() == before
    demo.stack.ok("apply", "--to", "edit-1")  # though every file looks touched to git


def test_a_git_that_a_signal_ends_is_told_so(repo: RepoBuilder) -> None:
    with pytest.raises(GitError, match="git die failed with signal 9"):
        Git(repo.folder / ".git").run("-c", "alias.die=!kill -9 $PPID", "die")


def test_a_worktree_that_a_killed_git_was_adding_goes_and_a_users_stays(
    demo: Demo, tmp_path: Path
) -> None:
    repository = demo.stack.folder / ".stack/repos/demo.git"
    demo.git("worktree", "add", "--quiet", "--detach", "--lock", str(tmp_path / "mine"))
    half = repository / "worktrees/half"
    half.mkdir()
    (half / "locked").write_bytes(b"initializing\n")
    (half / "HEAD").write_bytes(b"0" * 40 + b"\n")
    (half / "gitdir").write_bytes(bytes(demo.tree)[:20])
    demo.git("worktree", "add", "--quiet", "--detach", str(tmp_path / "disk"))
    demo.git("worktree", "lock", str(tmp_path / "disk"))  # without a reason: an empty file
    (tmp_path / "disk").rename(tmp_path / "away")
    for folder in (repository, demo.stack.folder / ".stack"):
        (folder / locks.MARK).touch()
    subprocess.run(["rm", "-rf", demo.tree.parent], check=True)
    demo.stack.ok("apply")
    assert str(tmp_path / "disk") in demo.git("worktree", "list")
    assert not half.exists()
    assert not (repository / "stack-writes").exists()
    assert str(tmp_path / "mine") in demo.git("worktree", "list")


def test_who_looks_at_the_work_is_in_nobodys_way(demo: Demo) -> None:
    """`refresh --dry-run` takes no lock, and a writer may take the same work in meanwhile."""
    demo.write({"src/f2.py": b"mine\n"})
    git = Git(demo.stack.folder / ".stack/repos/demo.git")
    workspace = Workspace(git, demo.tree.parent, "1.0")
    wanted = workspace.written_tree()
    with ThreadPoolExecutor(4) as crowd:
        assert set(crowd.map(lambda _: workspace.written_tree(), range(24))) == {wanted}


def test_a_lock_is_free_when_its_block_ends_whoever_was_given_it(tmp_path: Path) -> None:
    with lock.hold(tmp_path / "lock", "one"):
        child = subprocess.Popen(["sleep", "60"], pass_fds=lock.handles())
    try:
        with lock.hold(tmp_path / "lock", "two"):
            assert lock.handles()
    finally:
        child.kill()
        child.wait()
    assert lock.handles() == ()


def test_a_users_lock_is_not_taken_for_one_of_a_stack_that_was_killed(demo: Demo) -> None:
    held = index_lock(demo)
    mark = held.with_name(locks.MARK)
    for path, age in ((demo.stack.folder / ".stack" / locks.MARK, 60), (mark, 60), (held, 0)):
        path.touch()
        os.utime(path, (time.time() - age,) * 2)
    ref = demo.stack.folder / ".stack/repos/demo.git/refs/heads/1.0.lock"
    ref.touch()
    os.utime(ref, (time.time() - 90,) * 2)
    assert demo.stack("apply", "--to", "edit-1").code == 2
    assert held.exists()
    assert ref.exists()
    held.unlink()
    ref.unlink()
    demo.stack.ok("apply", "--to", "edit-1")


def test_locks_of_refs_are_left_alone_where_nobody_was_killed(demo: Demo) -> None:
    ref = demo.stack.folder / ".stack/repos/demo.git/refs/heads/1.0.lock"
    ref.touch()
    refused = demo.stack("apply", "--to", "edit-1")
    assert refused.code == 2
    assert f"{ref}: another git is at work" in refused.err
    assert ref.exists()


def test_a_commit_made_after_a_kill_is_not_thrown_off_the_branch(demo: Demo) -> None:
    """The lock of the branch is held, so the change stays half done, as after a kill."""
    ref = demo.stack.folder / ".stack/repos/demo.git/refs/heads/1.0.lock"
    ref.touch()
    assert demo.stack("apply", "--to", "edit-1").code == 2
    assert (demo.stack.folder / ".stack/journal.json").exists()
    ref.unlink()
    stood = demo.head()
    demo.git("commit", "--quiet", "--allow-empty", "-m", "mine")
    mine = demo.head()
    refused = demo.stack("apply", "--to", "edit-1")
    assert refused.code == 2
    assert f"HEAD was moved to {mine[:12]} since" in refused.err
    assert demo.head() == mine
    demo.git("branch", "kept", mine)
    demo.git("reset", "--quiet", "--soft", stood)
    demo.stack.ok("apply", "--to", "edit-1")
    assert demo.git("status", "--porcelain") == ""


def test_an_edit_in_the_second_of_the_index_is_seen(demo: Demo) -> None:
    """Of one size: git looks into a file that is as young as its index."""
    git = Git(demo.stack.folder / ".stack/repos/demo.git")
    workspace = Workspace(git, demo.tree.parent, "1.0")
    before = workspace.written_tree()
    path = demo.tree / "src/f5.py"
    edited = path.read_bytes().replace(b"line 7", b"LINE 7")
    time.sleep(1.05 - time.time() % 1)
    path.touch()
    demo.git("update-index", "--refresh")
    path.write_bytes(edited)
    time.sleep(1.1)
    assert workspace.written_tree() != before


def test_a_lock_in_a_remote_is_told_in_the_remotes_words(repo: RepoBuilder) -> None:
    bare = repo.folder.with_name("bare.git")
    repo.git("clone", "--quiet", "--bare", ".", bare)
    (bare / "refs/heads/topic.lock").touch()
    git = Git(repo.folder / ".git")
    with pytest.raises(GitError) as refused:
        git.run("push", str(bare), "HEAD:refs/heads/topic", user_config=True)
    assert any("remote rejected" in row for row in refused.value.context)


def test_a_held_configuration_is_named(repo: RepoBuilder) -> None:
    held = repo.folder / ".git/config.lock"
    held.touch()
    with pytest.raises(GitHeld, match=r"config\.lock: another git"):
        Git(repo.folder / ".git").run("config", "a.b", "c")
