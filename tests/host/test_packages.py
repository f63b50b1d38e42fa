"""Edited, added and missing files of an environment are found; sizes and links are told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stack.host import packages
from tests.host.tiny_wheels import unpack

FILES = {"flake/__init__.py": b"V = 1\n", "flake/deep/a.py": b"a\n", "flake/deep/b.py": b"b\n"}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    unpack(tmp_path, "tiny-flake", "1.0", FILES)
    unpack(tmp_path, "other", "2.0", {"other/__init__.py": b"", "flakes/x.py": b""})
    return tmp_path


def test_an_untouched_package_has_no_edited_files(site: Path) -> None:
    (site / "flake/__pycache__").mkdir()
    (site / "flake/__pycache__/x.pyc").write_bytes(b"anything")
    assert packages.edited(site, ["flake"], packages.record_digests(site)) == []


def test_every_kind_of_edit_is_named(site: Path) -> None:
    records = packages.record_digests(site)
    (site / "flake/deep/a.py").write_bytes(b"A\n")
    (site / "flake/deep/b.py").unlink()
    (site / "flake/mine.py").write_bytes(b"")
    (site / "other/__init__.py").write_bytes(b"not asked for\n")
    assert packages.edited(site, ["flake"], records) == [
        "flake/deep/a.py", "flake/deep/b.py (gone)", "flake/mine.py (added)",
    ]


def test_a_record_rewritten_to_fit_an_edit_is_named(site: Path) -> None:
    records = packages.record_digests(site)
    unpack(site, "tiny-flake", "1.0", {**FILES, "flake/deep/a.py": b"A\n"})
    assert "tiny_flake-1.0.dist-info/RECORD" in packages.edited(site, ["flake"], records)


def test_a_distribution_that_was_removed_is_named(site: Path) -> None:
    records = packages.record_digests(site)
    for path in (site / "other-2.0.dist-info").iterdir():
        path.unlink()
    assert packages.edited(site, ["flake"], records) == ["other-2.0.dist-info/RECORD (gone)"]


def test_installed_lists_names_and_versions(site: Path) -> None:
    assert packages.installed(site) == ("other==2.0", "tiny-flake==1.0")


def test_measure_counts_bytes_and_names_hard_links_and_follows_no_link(tmp_path: Path) -> None:
    folder = tmp_path / "venv"
    (folder / "lib").mkdir(parents=True)
    (folder / "lib/one").write_bytes(b"12345")
    (folder / "lib/two").write_bytes(b"678")
    (folder / "link").symlink_to(tmp_path)
    alone = packages.measure(folder)
    assert (alone.files, alone.hard_links) == (3, ())
    assert alone.size == 8 + (folder / "link").lstat().st_size
    os.link(folder / "lib/one", tmp_path / "cache")
    assert packages.measure(folder).hard_links == ("lib/one",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\nxpu: Optional[str] = None\n",
         "2.13.0+cpu: CPU build"),
        ("__version__ = '2.13.0+cu130'\ncuda: Optional[str] = '13.0'\n",
         "2.13.0+cu130: CUDA 13.0 build"),
    ],
)
def test_torch_says_what_it_is_built_for(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/version.py").write_text(f"from typing import Optional\n{text}")
    assert packages.torch_build(tmp_path) == said


def test_no_torch_no_build(tmp_path: Path) -> None:
    assert packages.torch_build(tmp_path) is None
