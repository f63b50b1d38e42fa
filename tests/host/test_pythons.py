"""The Python of a profile is found, and a missing one is said in one line."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest

from stack.errors import BuildFailed, ConfigError
from stack.host import pythons


def test_the_python_that_runs_us_comes_first() -> None:
    found = pythons.find(f"=={platform.python_version()}", "profile.x.python")
    assert found.path == sys.executable
    assert found.version == platform.python_version()


def test_none_that_fits_names_the_key_and_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shim = tmp_path / "python3.19"
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildFailed) as caught:
        pythons.find(">=4.2", "profile.x.python")
    assert caught.value.message == (
        f"profile.x.python: no Python >=4.2 on this machine (there is {platform.python_version()})"
    )
    assert caught.value.exit_code == 4


def test_a_python_on_path_is_asked_for_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "python3.14"
    other.write_text(
        '#!/bin/sh\necho \'{"path": "/there/python", "version": "3.14.2", "platform": "p"}\'\n'
    )
    other.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    assert pythons.find(">=3.14.1", "key").path == "/there/python"


def test_a_range_that_is_none() -> None:
    with pytest.raises(ConfigError, match=r"key: 'three' is not a version range"):
        pythons.find("three", "key")
