"""The shipped profile of four B70 cards: applied, printed and refused on a machine without them."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from stack.model.measure.screen import candidates
from stack.model.measure.screen_setting import environment, label
from stack.model.project.settings import Settings
from tests.support.cli import Stack
from tests.support.engine import REAL_ENVIRONMENT, ROOT, real_project

KNOBS = re.compile(r'^    Knob\(\s*"(\w+)"', re.MULTILINE)


def settings() -> Settings:
    return real_project().settings


def project(stack: Stack, folder: Path) -> Stack:
    """The shipped stack.toml and lines, in a folder whose name has a blank."""
    at = folder / "my project"
    at.mkdir()
    shutil.copy(ROOT / "stack.toml", at)
    for name in ("patches", "scripts", "kernels"):
        (at / name).symlink_to(ROOT / name)
    return Stack(at)


@pytest.mark.upstream
def test_both_lines_of_the_profile_are_clean(stack: Stack, tmp_path: Path) -> None:
    if "STACK_LLM_SCALER_GIT" not in REAL_ENVIRONMENT:
        pytest.skip("STACK_LLM_SCALER_GIT names no clone of intel/llm-scaler")
    env = {**REAL_ENVIRONMENT, "NO_COLOR": "1"}
    done = project(stack, tmp_path).ok("apply", "--profile", "xpu-b70", "--json", env=env)
    data = done.json["data"]
    assert [line["line"] for line in data["lines"]] == ["vllm/0.20.1", "llm-scaler/e0b0703"]
    assert [row["outcome"] for row in data["patches"]] == ["clean"] * 10
    for line in data["lines"]:
        assert Path(line["workspace"]).is_dir()


def test_without_the_kernels_line_the_missing_patches_are_named(
    stack: Stack, tmp_path: Path
) -> None:
    here = project(stack, tmp_path)
    config = here.folder / "stack.toml"
    text = config.read_text().replace('"vllm/0.20.1", "llm-scaler/e0b0703"', '"vllm/0.20.1"')
    config.write_text(text.replace('recipes = ["moe-int4-ops"]\n', ""))
    for verb in ("apply", "build"):
        output = here(verb, "--profile", "xpu-b70", "--json")
        assert output.code == 2
        (error,) = output.json["errors"]
        said = " ".join([error["message"], *error["context"]])
        for name in ("u4-nibble-decode", "fp32-route-weights", "bf16-activations"):
            assert f"needs `llm-scaler:{name}`" in said
        assert error["hint"].startswith('add "llm-scaler/e0b0703" to `lines` of [profile.xpu-b70]')


@pytest.mark.parametrize("profile", ["xpu-b70", "cpu-smoke", "cuda"])
def test_every_profile_can_be_printed_and_is_sound_shell(
    stack: Stack, tmp_path: Path, profile: str
) -> None:
    here = project(stack, tmp_path)
    script = here.ok("build", "--profile", profile, "--print").out
    assert script == here.ok("build", "--profile", profile, "--print").out
    assert script.startswith("#!/usr/bin/env bash\n")
    path = tmp_path / "script.sh"
    path.write_text(script)
    subprocess.run(["bash", "-n", str(path)], check=True)
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed; bash itself read the script")
    checked = subprocess.run(["shellcheck", str(path)], check=False, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


def test_the_script_holds_the_recipe_that_was_measured(stack: Stack, tmp_path: Path) -> None:
    here = project(stack, tmp_path)
    script = here.ok("build", "--profile", "xpu-b70", "--print").out
    venv = here.folder / ".stack/by-hand/xpu-b70/venv"
    libraries = f"{venv}/lib:{venv}/lib/python3.12/site-packages/torch/lib"
    steps = [
        "unset CPATH CPLUS_INCLUDE_PATH C_INCLUDE_PATH",
        f"export PATH='/opt/intel/oneapi/compiler/2025.3/bin:{venv}/bin':\"$PATH\"",
        f"export LIBRARY_PATH='{venv}/lib'", f"export LD_LIBRARY_PATH='{libraries}'",
        "export MAX_JOBS=2", "export TORCH_XPU_ARCH_LIST=bmg",
        "rm -rf -- build python/custom_esimd_kernels_vllm/moe_int4_ops*.so",
        f"'{venv}/bin/python' setup_moe_int4_only.py build_ext --inplace -v",
    ]
    places = [script.index(f"  {step}\n") for step in steps]
    assert places == sorted(places)
    assert "VLLM_TARGET_DEVICE=xpu" in script


def test_without_oneapi_the_build_says_so_in_one_line(stack: Stack, tmp_path: Path) -> None:
    here = project(stack, tmp_path)
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "git").symlink_to(str(shutil.which("git")))
    config = here.folder / "stack.toml"
    config.write_text(config.read_text().replace("/opt/intel", str(tmp_path / "intel")))
    output = here("build", "--profile", "xpu-b70", env={"PATH": str(tools)})
    assert output.code == 4
    error, hint = output.err.splitlines()
    assert "recipe `moe-int4-ops` needs `icpx`" in error
    assert hint.startswith("hint: stack doctor --profile xpu-b70")
    assert not (here.folder / ".stack/venvs").exists()


def varied_settings() -> dict[str, dict[str, str]]:
    """The environments of all benches and screens of the XPU machine."""
    said = settings()
    found = {name: dict(one.env) for name, one in said.bench.items() if name.startswith("b70-")}
    for name, screen in said.screen.items():
        if screen.profile == "xpu-b70":
            for setting in candidates(screen):
                found[f"{name}: {label(setting)}"] = environment(setting)
    return found


def test_every_knob_of_the_wrapper_is_set_or_varied_by_a_bench_or_screen() -> None:
    said = settings()
    knobs = set(KNOBS.findall((ROOT / "scripts/bench_minimax_xpu.py").read_text()))
    fixed = set(said.profile["xpu-b70"].env)
    varied = {name for env in varied_settings().values() for name in env}
    assert len(knobs) == 24
    assert knobs <= fixed | varied
    assert varied <= knobs


def test_every_bench_and_screen_hands_its_knobs_to_the_engine() -> None:
    said = settings()
    fixed = {**said.profile["xpu-b70"].env, "MODEL": "/m", "PATH": os.environ["PATH"]}
    for name, env in varied_settings().items():
        done = subprocess.run(
            [sys.executable, ROOT / "scripts/bench_minimax_xpu.py", "--print"],
            env={**fixed, **env}, capture_output=True, text=True, check=True,
        )
        words = shlex.split(done.stdout)
        for knob, value in env.items():
            switch = "--" + knob.lower().replace("_", "-")
            assert (
                value in words or switch in words or any(w.endswith(f"={value}") for w in words)
                or (not value and switch not in words)
            ), (name, knob, words)
    for name, bench in said.bench.items():
        if name.startswith("b70-"):
            assert bench.metric == "output_tokens_per_second"
            assert "--result" in bench.command
            assert bench.command[1] == "{{ root }}/scripts/bench_minimax_xpu.py"


def test_the_screen_of_the_xpu_machine_starts_nothing_that_was_refused(stack: Stack) -> None:
    for name in ("patches", "scripts", "stack.toml"):
        (stack.folder / name).symlink_to(ROOT / name)
    model = stack.folder / ".stack/models/minimax-m2-autoround-int4"
    model.mkdir(parents=True)
    (model / "config.json").write_text(json.dumps({
        "num_hidden_layers": 62, "num_attention_heads": 48, "num_key_value_heads": 8,
        "head_dim": 128, "hidden_size": 3072, "intermediate_size": 1536, "num_local_experts": 256,
        "quantization_config": {"bits": 4, "group_size": 128},
    }))
    rows = stack.ok("screen", "xpu-b70", "--dry-run", "--json").json["data"]["candidates"]
    assert len(rows) == 18
    assert {row["label"]: row["refused"]["what"] for row in rows if row["refused"]} == {
        "DECODE_CONTEXT_PARALLEL_SIZE=2": "decode-context-parallel",
        "KV_CACHE_DTYPE=fp8_inc": "kv-cache-dtype",
    }
    more = stack.ok("screen", "xpu-b70-steady", "--dry-run").out.splitlines()
    assert more == ["MAX_MODEL_LEN=4096", "ASYNC_ENGINE=1", "DISABLE_DETOKENIZE=1"]


def test_shipped_needs_and_benches_are_those_of_the_notes() -> None:
    series = tomllib.loads((ROOT / "patches/vllm/0.20.1/series.toml").read_text())
    patches = {patch["name"]: patch for patch in series["patch"]}
    assert {name: patch["needs"] for name, patch in patches.items() if "needs" in patch} == {
        "u4-decode-gating": ["llm-scaler:u4-nibble-decode"],
        "fp32-route-weights": ["llm-scaler:fp32-route-weights"],
        "bf16-activations": ["llm-scaler:bf16-activations"],
        "graph-force-comm": ["vllm:graph-comm-noop"],
    }
    known = settings().bench
    for patch in patches.values():
        assert patch["bench"]
        assert set(patch["bench"]) <= set(known)
        assert all(bench.startswith("b70-") for bench in patch["bench"])
