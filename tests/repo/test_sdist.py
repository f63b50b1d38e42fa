"""Release archives: the tree is upstream's own, and nothing leaves the archive's folder."""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

from stack.errors import SourceError
from stack.model.line.line import Sdist
from stack.model.objects import Entry
from stack.repo import sdist
from stack.repo.odb import ObjectStore
from tests.support.repo import RepoBuilder

VERSION = b"__version__ = '1.0'\n__commit_id__ = commit_id = 'gabc1234de'\n"
GENERATED = {
    "PKG-INFO": b"Metadata-Version: 2.1\n",
    "setup.cfg": b"[egg_info]\ntag_build = \ntag_date = 0\n\n",
    "demo.egg-info/SOURCES.txt": b"x\n",
    "demo/_version.py": VERSION,
}
FILES = {"pyproject.toml": b"[project]\n", "demo/__init__.py": b"", "demo/core.py": b"x = 1\n"}


def member(name: str, data: bytes = b"", **fields: Any) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in fields.items():
        setattr(info, key, value)
    return info, data


def archive(folder: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    path = folder / "demo-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    return path


def usual() -> list[tuple[tarfile.TarInfo, bytes]]:
    made = [member(f"demo-1.0/{name}", data) for name, data in {**FILES, **GENERATED}.items()]
    made += [member("demo-1.0/run.sh", b"#!/bin/sh\n", mode=0o755)]
    made += [member("demo-1.0/link", type=tarfile.SYMTYPE, linkname="demo/core.py")]
    return made


def test_the_tree_is_the_upstreams_own(repo: RepoBuilder, odb: ObjectStore, tmp_path: Path) -> None:
    tree, short = sdist.read(archive(tmp_path, *usual()), odb)
    assert short == "gabc1234de"
    other = RepoBuilder(tmp_path / "upstream")
    other.write({**FILES, "run.sh": b"#!/bin/sh\n"})
    (other.folder / "run.sh").chmod(0o755)
    (other.folder / "link").symlink_to("demo/core.py")
    other.commit("all", {})
    assert tree == other.tree()


def test_a_projects_own_files_with_such_names_are_kept(odb: ObjectStore, tmp_path: Path) -> None:
    own = {"setup.cfg": b"[metadata]\nname = demo\n", "demo/_version.py": b"V = 1\n"}
    made = [member(f"demo-1.0/{name}", data) for name, data in own.items()]
    tree, short = sdist.read(archive(tmp_path, *made), odb)
    assert short is None
    assert all(isinstance(odb.find(tree, name.encode()), Entry) for name in own)


def test_the_base_commit_depends_on_the_pin_alone(odb: ObjectStore, tmp_path: Path) -> None:
    path = archive(tmp_path, *usual())
    tree, _ = sdist.read(path, odb)
    sha = hashlib.sha256(path.read_bytes()).hexdigest()
    pinned = Sdist(version="1.0", sha256=sha, short="gabc1234de")
    oid = sdist.import_pin(path, "demo", pinned, tree, odb)
    made = odb.commit(oid)
    assert (made.tree, made.parents, made.author.date) == (tree, (), b"0 +0000")
    assert oid == sdist.import_pin(path, "demo", pinned, tree, odb)
    wrong = Sdist(version="1.0", sha256=sha, short="g0000000")
    with pytest.raises(SourceError, match="names commit gabc1234de, but the pin is g0000000"):
        sdist.import_pin(path, "demo", wrong, tree, odb)
    with pytest.raises(SourceError, match=f"its tree is {tree}, but the pin's is 1111"):
        sdist.import_pin(path, "demo", pinned, "1" * 40, odb)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (member("demo-1.0/../evil", b"x"), "a path outside"),
        (member("/etc/evil", b"x"), "a path outside"),
        (member("demo-1.0/a/../../../evil", b"x"), "a path outside"),
        (member("demo-1.0\\evil", b"x"), "a path outside"),
        (member("other/evil", b"x"), "a path outside"),
        (member("evil", b"x"), "a path outside"),
        (member("demo-1.0/.git/config", b"x"), "a path into .git"),
        (member("demo-1.0/demo/.GIT/hooks/x", b"x"), "a path into .git"),
        (member("demo-1.0/.git /config", b"x"), "a path into .git"),
        (member("demo-1.0/git~1/config", b"x"), "a path into .git"),
        (member("demo-1.0/dev", type=tarfile.CHRTYPE), "neither a file nor a folder"),
        (member("demo-1.0/blk", type=tarfile.BLKTYPE), "neither a file nor a folder"),
        (member("demo-1.0/fifo", type=tarfile.FIFOTYPE), "neither a file nor a folder"),
        (
            member("demo-1.0/hard", type=tarfile.LNKTYPE, linkname="demo-1.0/run.sh"),
            "neither a file",
        ),
        (
            member("demo-1.0/l", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
            "a link that leads out",
        ),
        (member("demo-1.0/l", type=tarfile.SYMTYPE, linkname="../x"), "a link that leads out"),
        (
            member("demo-1.0/d/l", type=tarfile.SYMTYPE, linkname="a/../../../x"),
            "a link that leads",
        ),
        (member("demo-1.0/link/through", b"x"), "a path through something that is not a folder"),
        (member("demo-1.0/demo", b"x"), "a path through something that is not a folder"),
    ],
)
def test_hostile_members_are_refused(
    odb: ObjectStore, tmp_path: Path, bad: tuple[tarfile.TarInfo, bytes], why: str
) -> None:
    path = archive(tmp_path, *usual(), bad)
    with pytest.raises(SourceError) as wrong:
        sdist.read(path, odb)
    assert wrong.value.message.startswith(f"{path}: {why}")


def test_names_that_are_not_utf_8_and_links_inside_are_fine(
    odb: ObjectStore, tmp_path: Path
) -> None:
    made = [
        member("demo-1.0/gr\udcfcn", b"x"),
        member("demo-1.0/a/l", type=tarfile.SYMTYPE, linkname="../run.sh"),
    ]
    tree, _ = sdist.read(archive(tmp_path, *usual(), *made), odb)
    assert odb.find(tree, b"gr\xfcn") is not None
    entry = odb.find(tree, b"a/l")
    assert entry is not None
    assert odb.blob(entry.oid) == b"../run.sh"


@pytest.mark.parametrize("cut", [0, 10, 200, -20])
def test_a_damaged_archive_is_named(odb: ObjectStore, tmp_path: Path, cut: int) -> None:
    path = archive(tmp_path, *usual())
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(SourceError, match="damaged archive"):
        sdist.read(path, odb)


def test_fetch_takes_the_archive_from_a_folder_of_links_and_checks_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    links, cache = tmp_path / "links", tmp_path / "cache"
    links.mkdir()
    path = archive(links, *usual())
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    sha = hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(SourceError, match="the archive is not the pinned one") as wrong:
        sdist.fetch("demo", "1.0", "0" * 64, cache, lambda *_: None)
    assert f"found   sha256 {sha}" in wrong.value.context
    assert list(cache.iterdir()) == []
    held = sdist.fetch("demo", "1.0", sha, cache, lambda *_: None)
    assert held.read_bytes() == path.read_bytes()
    path.unlink()
    assert sdist.fetch("demo", "1.0", sha, cache, lambda *_: None) == held
    with pytest.raises(SourceError, match=r"no source archive of demo 2\.0"):
        sdist.fetch("demo", "2.0", None, cache, lambda *_: None)


def test_no_network_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple/")
    monkeypatch.delenv("PIP_NO_INDEX", raising=False)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(SourceError) as wrong:
        sdist.fetch("demo", "1.0", None, tmp_path, lambda *_: None)
    assert "127.0.0.1:9" in wrong.value.message
    assert "\n" not in wrong.value.message
