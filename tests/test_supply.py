"""What is released stands in the repository, and what it is made of is pinned by its bytes."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.host.tiny_wheels import make_wheel
from tests.support.engine import REAL_ENVIRONMENT

ROOT = Path(__file__).parents[1]
COPIED = ("pyproject.toml", "README.md", "LICENSE", "stack")


def wheel(folder: Path) -> Path:
    """A wheel built from a copy of the sources in `folder`."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", "out", "."]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, check=False, env=REAL_ENVIRONMENT
    )
    if done.returncode and b"hatchling" in done.stderr:
        pytest.skip("the build backend cannot be fetched")
    assert done.returncode == 0, done.stderr
    (made,) = (folder / "out").glob("*.whl")
    return made


@pytest.mark.upstream
def test_two_builds_of_the_wheel_are_identical(tmp_path: Path) -> None:
    made = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        made.append(wheel(tmp_path / name))
    assert len({hashlib.sha256(path.read_bytes()).hexdigest() for path in made}) == 1
    with zipfile.ZipFile(made[0]) as archive:
        names = archive.namelist()
    assert "stack/verbs.py" in names
    assert "stack/bench/signatures.toml" in names
    assert not [name for name in names if name.startswith(("tests", "patches", "kernels"))]


def locked(name: str) -> dict[str, list[tuple[Requirement, int]]]:
    """The pins of a lock file by distribution: several where Pythons differ; with their hashes."""
    found: dict[str, list[tuple[Requirement, int]]] = {}
    text = (ROOT / name).read_text().replace("\\\n", " ")
    for row in text.splitlines():
        if row.strip() and not row.lstrip().startswith("#"):
            pin, *hashes = re.split(r"\s+--hash=sha256:(?=[0-9a-f]{64}\b)", row)
            one = Requirement(pin)
            found.setdefault(canonicalize_name(one.name), []).append((one, len(hashes)))
    return found


def asked(group: str | None) -> list[Requirement]:
    """What pyproject.toml asks for, without or with a group and what an install needs."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    rows = list(document["project"]["dependencies"])
    if group:
        rows += document["dependency-groups"][group] + document["build-system"]["requires"]
        rows += re.findall(r"(?m)^[^#\n]+", (ROOT / "scripts/build.in").read_text())
    return [Requirement(row) for row in rows]


LOCKS = [("requirements.lock", None), ("requirements-dev.lock", "dev")]


@pytest.mark.parametrize(("name", "group"), LOCKS)
def test_the_lock_is_what_pyproject_asks_for(name: str, group: str | None) -> None:
    pins = locked(name)
    for one in asked(group):
        assert canonicalize_name(one.name) in pins, f"{one}: make lock"
        for pin, _ in pins[canonicalize_name(one.name)]:
            (version,) = pin.specifier
            assert version.operator == "=="
            assert one.specifier.contains(version.version, prereleases=True), f"{one}: make lock"
    assert all(hashes for rows in pins.values() for _, hashes in rows), "a pin without a hash"
    # Nothing stands there that nobody needs any more.
    tops = {canonicalize_name(one.name) for one in asked(group)}
    said = re.findall(
        r"(?m)^([A-Za-z0-9_.-]+)==.*?\n((?:    #.*\n?)+)", (ROOT / name).read_text()
    )
    via = {canonicalize_name(at): set(re.findall(r"[\w.-]+", text)) for at, text in said}
    for at, words in via.items():
        assert at in tops or any(canonicalize_name(one) in via for one in words - {at}), at


@pytest.mark.parametrize(("name", "group"), LOCKS)
def test_everything_that_is_needed_here_is_locked(name: str, group: str | None) -> None:
    """The closure of what is installed here, by each distribution's own word."""
    pins, todo, seen = locked(name), asked(group), set[str]()
    while todo:
        one = todo.pop()
        at = canonicalize_name(one.name)
        if at in seen or (one.marker and not one.marker.evaluate({"extra": ""})):
            continue
        seen.add(at)
        assert at in pins, f"{at} is not locked: make lock"
        try:
            todo += [Requirement(row) for row in metadata.requires(at) or ()]
        except metadata.PackageNotFoundError:
            assert group, at  # a group's tool may be missing where only the rest was installed
    assert len(seen) >= len(asked(group))


def test_the_locks_agree() -> None:
    more = locked("requirements-dev.lock")
    for at, rows in locked("requirements.lock").items():
        assert {str(pin.specifier) for pin, _ in rows} == {str(p.specifier) for p, _ in more[at]}


def test_an_archive_with_another_hash_stops_the_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_wheel(tmp_path / "links", "tiny", "1.0", {"tiny.py": b""})
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "links"))
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "requirements-dev.lock").write_text(f"tiny==1.0 --hash=sha256:{'0' * 64}\n")
    done = subprocess.run(
        ["make", "venv", f"PYTHON={sys.executable}"], cwd=tmp_path, capture_output=True,
        check=False, text=True,
    )
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr
    assert "without hashes" not in done.stderr
    assert not (tmp_path / ".venv/.installed").exists()
