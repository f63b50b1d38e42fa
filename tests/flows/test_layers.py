"""A layer holds real folders only on the way to changed files, and links to the base elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stack.errors import BuildFailed
from stack.flows.builds import layers
from stack.flows.builds.environment import Base
from stack.flows.prefixes import Prefix, Replayed
from stack.model.project.build import BuildRecord, Fetched, Interpreter
from stack.repo.client import Git
from stack.repo.odb import ObjectStore
from stack.store.paths import Paths
from stack.store.project import Project
from tests.host.tiny_wheels import unpack
from tests.support.repo import RepoBuilder

FILES = {
    "flake/__init__.py": b"", "flake/a.py": b"A = 1\n", "flake/deep/__init__.py": b"",
    "flake/deep/er/__init__.py": b"", "flake/deep/er/b.py": b"B = 1\n",
    "flake/deep/er/only/c.py": b"C = 1\n", "flake/other/__init__.py": b"", "flake/run.sh": b"#!\n",
}


class Bed:
    """A repository, a base environment with its package, and a project around them."""

    def __init__(self, tmp_path: Path) -> None:
        self.repo = RepoBuilder(tmp_path / "upstream")
        self.start = self.repo.commit("begin", FILES)
        venv = tmp_path / "project/.stack/venvs/k/a"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
        site = next(venv.glob("lib/python*/site-packages"))
        unpack(site, "tiny-flake", "1.0", {**FILES, "flake/_C.so": b"compiled"})
        record = BuildRecord(
            key="k", venv="a", requested=(), indexes=(), skipped=(), installer="pip",
            interpreter=Interpreter(path=sys.executable, version="3", platform="p"),
            installed=(), records={}, fetched=Fetched(), torch=None, size=0, files=0, seconds=0.0,
        )
        self.base = Base(
            key="k-a", venv=venv, python=venv / "bin/python", site_packages=site, packages=(),
            record=record,
        )
        self.project = Project(Paths(tmp_path / "project", tmp_path / "cache"))
        self.odb = ObjectStore(Git(self.repo.folder / ".git"))

    def line(self) -> Replayed:
        """The pin, then one prefix for everything committed after it."""
        prefixes = [
            Prefix(name=name, commit=commit, tree=self.repo.tree(commit))
            for name, commit in ((None, self.start), ("patch", self.repo.head()))
        ]
        return Replayed(
            odb=self.odb, git=self.odb.git, base=self.start, source="path", steps=[],
            prefixes=prefixes,
        )

    def make(self) -> layers.Layer:
        line = self.line()
        return layers.make(self.project, self.base, line, line.prefixes[-1], ["flake"])

    def find(self) -> layers.Layer | None:
        tree = self.line().prefixes[-1].tree
        return layers.find(self.project, self.base, tree, ["flake"])


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    made = Bed(tmp_path)
    yield made
    made.odb.close()


def shape(folder: Path) -> dict[str, str]:
    """Every path of a layer: `folder`, `file`, or `link`."""
    found = {}
    for here, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = Path(here, name)
            kind = "link" if path.is_symlink() else "file" if path.is_file() else "folder"
            found[path.relative_to(folder).as_posix()] = kind
    return found


def test_only_the_way_to_a_changed_file_is_real(bed: Bed) -> None:
    pycache = bed.base.site_packages / "flake/deep/__pycache__"
    pycache.mkdir()
    bed.repo.commit("change", {"flake/deep/er/b.py": b"B = 2\n", "README": b"outside\n"})
    layer = bed.make()
    assert shape(layer.path) == {
        "flake": "folder", "flake/__init__.py": "link", "flake/_C.so": "link",
        "flake/a.py": "link", "flake/other": "link", "flake/run.sh": "link",
        "flake/deep": "folder", "flake/deep/__init__.py": "link", "flake/deep/er": "folder",
        "flake/deep/er/__init__.py": "link", "flake/deep/er/b.py": "file",
        "flake/deep/er/only": "link",
    }
    assert list(layer.files) == ["flake/deep/er/b.py"]
    assert (layer.path / "flake/other/__init__.py").exists()
    assert bed.find() == layer


def test_added_removed_renamed_and_executable_files(bed: Bed) -> None:
    bed.repo.write({"flake/a.py": None, "flake/z/new.py": b"N = 1\n", "flake/run.sh": b"#!/x\n"})
    bed.repo.git("mv", "flake/deep/er/only/c.py", "flake/deep/er/d.py")
    bed.repo.git("add", "--all")
    bed.repo.git("update-index", "--chmod=+x", "flake/run.sh")
    bed.repo.git("commit", "--quiet", "--message", "change")
    layer = bed.make()
    real = shape(layer.path)
    assert "flake/a.py" not in real
    assert "flake/deep/er/only" not in real  # nothing is left of it
    assert real["flake/deep/er/d.py"] == real["flake/z/new.py"] == "file"
    assert os.access(layer.path / "flake/run.sh", os.X_OK)
    assert {name for name, digest in layer.files.items() if not digest} == {
        "flake/a.py", "flake/deep/er/only/c.py",
    }


def test_a_prefix_that_changes_nothing_inside_is_one_link(bed: Bed) -> None:
    bed.repo.commit("docs", {"docs/x": b"x\n"})
    layer = bed.make()
    assert shape(layer.path) == {"flake": "link"}
    assert layer.files == {}


@pytest.mark.parametrize(
    ("change", "install", "said"),
    [
        ({"flake/a.py": b"A = 2\n"}, {"flake/a.py": b"A = 0\n"},
         "flake/a.py: the installed file is not the pin's"),
        ({"flake/a.py": b"A = 2\n"}, {"flake/a.py": None},
         "flake/a.py: the installed package has no such file"),
        ({"flake/a.py": None}, {"flake/a.py": b"A = 0\n"},
         "flake/a.py: the installed file is not the pin's"),
        ({"flake/n.py": b"N = 1\n"}, {"flake/n.py": b"N = 1\n"},
         "flake/n.py: the patch adds this file, but the installed package has one"),
    ],
)
def test_another_text_than_the_pins_is_refused_by_name(
    bed: Bed, change: dict[str, bytes | None], install: dict[str, bytes | None], said: str
) -> None:
    bed.repo.commit("change", {"flake/deep/er/b.py": b"B = 2\n", **change})
    for name, data in install.items():
        path = bed.base.site_packages / name
        path.unlink() if data is None else path.write_bytes(data)
    with pytest.raises(BuildFailed) as caught:
        bed.make()
    assert caught.value.context == (said,)
    assert bed.find() is None
    assert not bed.project.paths.layers.exists()


def test_a_symbolic_link_in_a_patch_is_refused(bed: Bed) -> None:
    (bed.repo.folder / "flake/out").symlink_to("/etc/passwd")
    bed.repo.commit("link", {})
    with pytest.raises(BuildFailed, match="cannot become a layer") as caught:
        bed.make()
    assert caught.value.context == ("flake/out: a link or a submodule cannot stand in a layer",)


def test_a_path_file_that_comes_first_is_found_by_the_probe(bed: Bed, tmp_path: Path) -> None:
    bed.repo.commit("change", {"flake/a.py": b"A = 2\n"})
    (tmp_path / "first").mkdir()
    unpack(tmp_path / "first", "tiny-flake", "1.0", FILES)
    (bed.base.site_packages / "first.pth").write_text(
        f"import sys; sys.path.insert(0, {str(tmp_path / 'first')!r})\n"
    )
    with pytest.raises(BuildFailed, match="a worker would not load") as caught:
        bed.make()
    assert caught.value.context == ("flake/a.py",)
    assert bed.find() is None


def test_a_layer_without_its_record_does_not_count_and_is_made_again(bed: Bed) -> None:
    bed.repo.commit("change", {"flake/a.py": b"A = 2\n"})
    layer = bed.make()
    record = layer.path.with_name(f"{layer.path.name}.json")
    record.unlink()
    (layer.path / "flake/a.py").write_bytes(b"half")
    assert bed.find() is None
    assert bed.make() == layer
    assert bed.find() == layer
