"""Where a base comes from: path, git and sdist give the same tree, and say so when none can."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.support.cli import Stack
from tests.support.repo import RepoBuilder


def begin(stack: Stack, where: str) -> None:
    stack.ok("init")
    stack.ok("upstream", "add", "demo", where)
    stack.ok("line", "add", "demo@v1.0")


@pytest.fixture
def promisor(upstream: RepoBuilder) -> RepoBuilder:
    """An upstream whose server lets clients leave out blobs, as public ones do."""
    upstream.git("config", "uploadpack.allowFilter", "true")
    upstream.git("config", "uploadpack.allowAnySHA1InWant", "true")
    return upstream


def mirror_of(stack: Stack) -> Path:
    import os

    return Path(os.environ["STACK_CACHE_DIR"]) / "mirrors/demo.git"


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, check=True)
    return done.stdout.decode().strip()


def test_the_mirror_is_bare_blobless_and_whole(stack: Stack, promisor: RepoBuilder) -> None:
    begin(stack, promisor.url)
    mirror = mirror_of(stack)
    assert git(mirror, "rev-parse", "--is-bare-repository") == "true"
    assert git(mirror, "rev-parse", "--is-shallow-repository") == "false"
    assert git(mirror, "rev-list", "--all", "--count") == "3"
    listed = git(mirror, "rev-list", "--objects", "--all", "--missing=print")
    missing = [row for row in listed.splitlines() if row.startswith("?")]
    assert len(missing) == 5  # every blob: nothing was fetched that nobody asked for
    done = stack.ok("apply", "--json").json["data"]
    assert (done["source"], done["base"], done["tree"]) == ("git", promisor.head(), promisor.tree())
    tree = Path(done["workspace"])
    assert (tree / "src/app.py").read_bytes().startswith(b"line 1\n")
    promisor.git("config", "uploadpack.allowFilter", "false")
    promisor.folder.rename(promisor.folder.with_name("gone"))
    assert stack.ok("apply", "--json").json["data"]["changed"] is False  # no network any more


def test_fetch_follows_a_branch_that_was_rewritten(stack: Stack, promisor: RepoBuilder) -> None:
    begin(stack, promisor.url)
    promisor.git("reset", "--quiet", "--hard", "HEAD~1")
    new = promisor.commit("another", {"README": b"other\n"})
    stack.ok("upstream", "fetch", "demo")
    assert git(mirror_of(stack), "rev-parse", "refs/heads/main") == new
    assert git(mirror_of(stack), "rev-parse", "v1.0^{commit}") != new


def test_locks_of_a_killed_fetch_do_not_stop_the_next(stack: Stack, promisor: RepoBuilder) -> None:
    begin(stack, promisor.url)
    promisor.commit("another", {"README": b"other\n"})
    for name in (
        "config.lock",
        "HEAD.lock",
        "packed-refs.lock",
        "refs/heads/main.lock",
        "shallow.lock",
    ):
        (mirror_of(stack) / name).write_bytes(b"")
    stack.ok("upstream", "fetch", "demo")
    assert not list(mirror_of(stack).rglob("*.lock"))


@pytest.mark.parametrize("kind", ["worktree", "bare", "linked", "variable"])
def test_a_local_repository_serves_without_a_copy(
    stack: Stack, upstream: RepoBuilder, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = str(upstream.folder)
    if kind == "bare":
        where = str(tmp_path / "bare.git")
        upstream.git("clone", "--quiet", "--bare", ".", where)
    elif kind == "linked":
        where = str(tmp_path / "linked")
        upstream.git("worktree", "add", "--quiet", "--detach", where)
    begin(stack, where)
    if kind == "variable":
        config = stack.folder / "stack.toml"
        config.write_text(config.read_text().replace(where, "$DEMO_GIT"))
        monkeypatch.setenv("DEMO_GIT", where)
    done = stack.ok("apply", "--json").json["data"]
    assert (done["source"], done["base"], done["tree"]) == (
        "path",
        upstream.head(),
        upstream.tree(),
    )


def archive(upstream: RepoBuilder, folder: Path) -> Path:
    """The sdist of `v1.0`, with the files that a build backend adds."""
    folder.mkdir()
    path = folder / "demo-1.0.tar.gz"
    plain = upstream.git("archive", "--format=tar", "--prefix=demo-1.0/", "v1.0")
    short = upstream.head()[:10]
    version = f"__commit_id__ = commit_id = 'g{short}'\n".encode()
    with tarfile.open(path, "w:gz") as new, tarfile.open(fileobj=io.BytesIO(plain)) as old:
        for info in old:
            new.addfile(info, old.extractfile(info) if info.isreg() else None)
        for name, data in (("PKG-INFO", b"Name: demo\n"), ("demo/_version.py", version)):
            info = tarfile.TarInfo(f"demo-1.0/{name}")
            info.size = len(data)
            new.addfile(info, io.BytesIO(data))
    return path


@pytest.fixture
def released(upstream: RepoBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = archive(upstream, tmp_path / "links")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(path.parent))
    return path


def test_every_source_gives_the_same_trees_and_the_sdist_proves_its_pin(
    stack: Stack, upstream: RepoBuilder, released: Path, tmp_path: Path
) -> None:
    begin(stack, upstream.url)
    stack.ok("upstream", "add", "demo", str(upstream.folder))
    stack.ok("upstream", "add", "demo", "pypi:demo")
    import hashlib

    series = stack.folder / "patches/demo/1.0/series.toml"
    sha = hashlib.sha256(released.read_bytes()).hexdigest()
    pin = f'\n[pin.sdist]\nversion = "1.0"\nsha256 = "{sha}"\nshort = "g{upstream.head()[:10]}"\n'
    series.write_text(series.read_text() + pin)
    upstream.commit("[Core] Edit", {"README": b"patched\n"})
    mail = upstream.patches("v1.0", tmp_path / "mails")
    stack.ok("import", *mail)
    found = {}
    for source in ("path", "git", "sdist"):
        done = stack.ok("apply", "--from", source, "--json").json["data"]
        assert done["source"] == source
        found[source] = done
    assert {done["tree"] for done in found.values()} == {upstream.tree()}
    assert {done["base_tree"] for done in found.values()} == {upstream.tree("v1.0")}
    assert found["path"]["head"] == found["git"]["head"] != found["sdist"]["head"]
    assert stack("apply", "--from", "ftp").code == 2
    series.write_text(series.read_text().replace(sha, "0" * 64))
    for held in (stack.folder / ".stack/repos/demo.git/refs/stack/base/1.0").glob("sdist"):
        held.unlink()
    output = stack("apply", "--from", "sdist")
    assert output.code == 2
    assert "the archive is not the pinned one" in output.err


def test_a_line_on_a_release_that_no_history_names(stack: Stack, released: Path) -> None:
    stack.ok("init")
    stack.ok("upstream", "add", "demo", "pypi:demo")
    made = stack.ok("line", "add", "demo@1.0", "--json").json["data"]["pin"]
    assert made["commit"] is None
    assert stack.ok("apply", "--json").json["data"]["base_tree"] == made["tree"]
    short = made["sdist"]["short"]
    assert (
        stack.ok("apply", "--upstream", f"demo@{short[1:8]}", "--json").json["data"]["changed"]
        is False
    )


def test_a_release_keeps_its_own_label_whatever_another_project_called_it(
    stack: Stack, released: Path, tmp_path: Path
) -> None:
    """The archive is read once for all projects; a label is one project's own word."""
    stack.ok("init")
    stack.ok("upstream", "add", "demo", "pypi:demo")
    first = stack.ok("line", "add", "demo@1.0", "--label", "mine", "--json").json["data"]["pin"]
    other = Stack(tmp_path / "other")
    other.folder.mkdir()
    other.ok("init")
    other.ok("upstream", "add", "demo", (tmp_path / "nowhere").as_uri())
    other.ok("upstream", "add", "demo", "pypi:demo")
    second = other.ok("line", "add", "demo@v1.0", "--json").json["data"]["pin"]
    assert (first["label"], second["label"]) == ("mine", "1.0")
    assert first["tree"] == second["tree"]


def test_a_pin_that_no_source_can_serve_is_one_error_with_every_reason(
    stack: Stack, upstream: RepoBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(stack, upstream.url)
    config = stack.folder / "stack.toml"
    empty = RepoBuilder(tmp_path / "empty")
    text = config.read_text().replace(upstream.url, "http://127.0.0.1:9/demo.git")
    config.write_text(
        text.replace(
            "[upstream.demo]\n", f'[upstream.demo]\npath = "{empty.folder}"\nsdist = "demo"\n'
        )
    )
    series = stack.folder / "patches/demo/1.0/series.toml"
    series.write_text(
        series.read_text() + f'\n[pin.sdist]\nversion = "1.0"\nsha256 = "{"0" * 64}"\n'
    )
    subprocess.run(["rm", "-r", mirror_of(stack)], check=True)
    monkeypatch.setenv("GIT_ALLOW_PROTOCOL", "file:http")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple/")
    output = stack("apply", "--json")
    assert output.code == 2
    (error,) = output.json["errors"]
    assert error["code"] == "source"
    assert error["message"].startswith("no source can serve demo/1.0")
    reasons = error["context"]
    assert [row.split(":")[0] for row in reasons] == ["path", "git", "sdist"]
    assert "has no commit" in reasons[0]
    assert "127.0.0.1" in reasons[1]
    assert "127.0.0.1" in reasons[2]
    assert error["hint"]
    assert not (stack.folder / ".stack/workspaces").exists()
