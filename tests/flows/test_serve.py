"""`stack use`, `rollback` and `run`: real environments, real programs, and what they load."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.flows.test_build import FILES, Tiny
from tests.flows.test_install_into import make_venv, site
from tests.support.cli import Output, cold
from tests.support.processes import until

LINE_7 = "import flake.core as c; print(c.LINE_7)"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the first test leaves a built project for the others to copy."""
    return tmp_path_factory.mktemp("kept") / "project"


@pytest.fixture
def built(tiny: Tiny, kept: Path) -> Tiny:
    """A built project of two patches; a copy of one that was built once."""
    if not kept.exists():
        tiny.build()
        shutil.copytree(tiny.stack.folder, kept, symlinks=True)
    else:
        shutil.rmtree(tiny.stack.folder)
        shutil.copytree(kept, tiny.stack.folder, symlinks=True)
    return tiny


def run(tiny: Tiny, *arguments: str, env: dict[str, str] | None = None) -> Output:
    return tiny.stack("run", *arguments, env=env)


def line_7(tiny: Tiny, *options: str) -> str:
    """What a program that `stack run` starts reads out of the package."""
    return run(tiny, *options, "--", "python", "-c", LINE_7).out.strip()


def test_use_run_and_rollback_give_the_files_of_each_prefix(built: Tiny) -> None:
    stack = built.stack
    assert line_7(built) == "77"  # nothing chosen yet: the whole profile
    assert line_7(built, "--line", "demo:") == "7"
    assert stack.ok("use", "demo/1.0:change-a-line", "--json").json["data"]["changed"] is True
    assert line_7(built) == "77"
    stack.ok("use", "demo:")
    assert line_7(built) == "7"
    assert stack.ok("use", "demo:", "--json").json["data"]["changed"] is False
    assert "would run demo/1.0:change-a-line again" in stack.ok("rollback", "--dry-run").err
    assert line_7(built) == "7"
    done = stack.ok("rollback", "--json").json["data"]
    assert (done["left"]["patch"], done["serving"]["patch"]) == (None, "change-a-line")
    assert line_7(built) == "77"
    assert "would run demo/1.0:" in stack.ok("use", "demo:", "--dry-run").err
    assert line_7(built) == "77"
    refused = stack("rollback")
    assert refused.code == 2
    assert "nothing was in use before demo/1.0:change-a-line" in refused.err
    stack.ok("use", "demo")
    stack.ok("rollback")
    assert (built.state / "active/tiny/current").readlink() == Path("1.json")


def test_exit_code_signals_input_and_output_are_the_programs_own(built: Tiny) -> None:
    assert run(built, "--", "python", "-c", "raise SystemExit(7)").code == 7
    assert run(built, "--", "false").code == 1
    assert run(built, "--", "python", "-c", "import os; os.kill(os.getpid(), 9)").code == -9
    done = subprocess.run(
        built.stack.argv("run", "--", "cat"), cwd=built.stack.folder, input=b"\x00\xffbytes",
        capture_output=True, check=True,
    )
    assert done.stdout == b"\x00\xffbytes"
    code = (
        "import signal, sys, time; signal.signal(15, lambda *a: sys.exit(33))\n"
        "print(1, flush=True); time.sleep(60)"
    )
    process = subprocess.Popen(
        built.stack.argv("run", "--", "python", "-c", code), cwd=built.stack.folder,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"1\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 33
    process.stdout.close()
    pipe = run(built, "--", "sh", "-c", "yes | head -1; echo ${PIPESTATUS:-ok}")
    assert pipe.out.startswith("y\n")


def test_options_of_the_command_are_not_ours(built: Tiny) -> None:
    code = "import sys; print(sys.argv[1:])"
    done = run(built, "--", "python", "-c", code, "--json", "-q", "--profile", "x", "--", "y")
    assert done.out.strip() == "['--json', '-q', '--profile', 'x', '--', 'y']"


def test_paths_caches_and_switches(built: Tiny) -> None:
    series = built.stack.folder / "patches/demo/1.0/series.toml"
    text = series.read_text().replace(
        'name = "change-a-line"\n', 'name = "change-a-line"\nenv = { FLAKE_ON = "1" }\n'
    )
    series.write_text(text)
    code = "import json, os; print(json.dumps(dict(os.environ)))"
    show = ("--", "python", "-c", code)
    env = {"PYTHONPATH": "/mine", "TRITON_CACHE_DIR": "/my/triton", "PYTHONSTARTUP": "/nowhere"}
    off = json.loads(run(built, *show, env=env).out)
    on = json.loads(run(built, "--on", *show).out)
    bare = json.loads(run(built, "--line", "demo:", *show).out)
    assert "FLAKE_ON" not in off
    assert on["FLAKE_ON"] == "1"
    assert run(built, "--on", *show, env={"FLAKE_ON": "0"}).out.count('"FLAKE_ON": "0"') == 1
    first, second = off["PYTHONPATH"].split(os.pathsep)
    assert (Path(first) / "flake/core.py").exists()
    assert second == "/mine"
    assert "PYTHONSTARTUP" not in off
    assert off["PATH"].startswith(off["VIRTUAL_ENV"] + "/bin:")
    assert off["TRITON_CACHE_DIR"] == "/my/triton"
    assert off["VLLM_CACHE_ROOT"] == on["VLLM_CACHE_ROOT"] != bare["VLLM_CACHE_ROOT"]
    printed = built.stack.ok("run", "--json", "--print", "--", "python").json["data"]
    assert printed["env"]["PYTHONPATH"] == on["PYTHONPATH"]


def test_what_runs_keeps_its_files_while_another_prefix_is_chosen(built: Tiny) -> None:
    built.stack.ok("use", "demo/1.0:change-a-line")
    code = "import sys; sys.stdin.readline(); " + LINE_7
    process = subprocess.Popen(
        built.stack.argv("run", "--", "python", "-c", code), cwd=built.stack.folder,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )
    until(lambda: b"sys.stdin" in Path(f"/proc/{process.pid}/cmdline").read_bytes()
             and b"stack" not in Path(f"/proc/{process.pid}/cmdline").read_bytes())
    built.stack.ok("use", "demo:")
    out, _ = process.communicate(b"go\n", timeout=20)
    assert out.strip() == b"77"


def test_killed_while_switching_the_old_or_the_new_prefix_is_in_use(built: Tiny) -> None:
    stack = built.stack
    stack.ok("use", "demo:")
    started = time.monotonic()
    with cold():
        stack.ok("use", "demo")
    length = time.monotonic() - started
    for round_ in range(8):
        process = stack.start("use", "demo:" if round_ % 2 == 0 else "demo")
        time.sleep(length * (0.3 + round_ / 10))
        process.kill()
        process.wait()
        assert line_7(built) in ("7", "77")
    stack.ok("use", "demo")
    assert line_7(built) == "77"


def test_a_layer_or_a_base_that_is_gone_is_named_with_the_way_out(built: Tiny) -> None:
    stack = built.stack
    stack.ok("use", "demo/1.0:change-a-line")
    stack.ok("use", "demo")
    stack.ok("gc")
    stack.ok("rollback")  # gc keeps what rollback needs
    assert line_7(built) == "77"
    built.build("--fresh")
    refused = run(built, "--", "true")
    assert refused.code == 2
    assert "was made again since demo/1.0:change-a-line" in refused.err
    assert "hint: stack use demo/1.0:change-a-line --profile tiny" in refused.err
    stack.ok("use", "demo/1.0:change-a-line", "--profile", "tiny")
    assert line_7(built) == "77"


def test_gc_keeps_a_prefix_that_is_in_use_though_the_line_lost_it(built: Tiny) -> None:
    built.stack.ok("use", "demo")
    series = built.stack.folder / "patches/demo/1.0/series.toml"
    series.write_text(series.read_text().replace(
        '# add-and-remove\nstate = "active"', '\nstate = "parked"\nreason = "neutral"'
    ))
    built.stack.ok("gc")
    ask = "import flake.sub.new as n; print(n.NEW)"
    assert run(built, "--", "python", "-c", ask).out.strip() == "1"


def test_wrong_words_are_named(built: Tiny) -> None:
    for arguments, code, said in (
        (("use", "demo:none"), 2, "no patch `none`"),
        (("use", "other"), 2, "no upstream `other`"),
        (("use", "demo@9.9"), 2, "no line of demo is pinned at `9.9`"),
        (("use", "demo", "--profile", "none"), 2, "no profile `none`"),
        (("run",), 2, "hint:"),
        (("run", "--", "no-such-program"), 2, "`no-such-program` is neither in the environment"),
    ):
        output = built.stack(*arguments)
        assert output.code == code, output
        assert said in output.err
    failed = built.stack("run", "--json", "--", "no-such-program")
    assert failed.json["errors"][0]["code"] == "missing-tool"


def test_without_a_build_the_next_step_is_said(tiny: Tiny) -> None:
    refused = tiny.stack("use", "demo")
    assert refused.code == 2
    assert "hint: stack build --profile tiny" in refused.err


def test_a_folder_that_python_would_prefer_is_warned_of(built: Tiny) -> None:
    (built.stack.folder / "flake").mkdir()
    (built.stack.folder / "flake/__init__.py").write_text("")
    assert "./flake may be imported instead" in run(built, "--", "python", "-c", "").err
    assert "instead" not in run(built, "--", "python", "-P", "-c", "").err
    assert "instead" not in run(built, "--", "true").err


def test_status_says_what_each_environment_runs_and_who_was_edited(
    built: Tiny, tmp_path: Path
) -> None:
    stack = built.stack
    assert stack.ok("status", "--json").json["data"]["environments"] == []
    venv = make_venv(tmp_path / "mine", FILES)
    stack.ok("use", "demo:change-a-line")
    stack.ok("install", "--into", venv, "demo")

    def states() -> list[tuple[str, str, list[str]]]:
        rows = stack.ok("status", "--json").json["data"]["environments"]
        return [(row["runs"], row["state"], row["edited"]) for row in rows]

    one, two = "demo/1.0:change-a-line", "demo/1.0:add-and-remove"
    assert states() == [(one, "whole", []), (two, "whole", [])]
    base = next((built.state / "venvs").glob("*/*/lib/python*/site-packages"))
    (base / "flake/sub/x.py").write_bytes(b"X = 9\n")
    (base / "flake/sub/y.py").write_bytes(b"")
    (site(venv) / "flake/sub/x.py").unlink()
    (next((venv / "stack-layers/demo").glob("*/")) / "flake/core.py").write_bytes(b"")
    assert states() == [
        (one, "edited", ["flake/sub/x.py", "flake/sub/y.py (added)"]),
        (two, "edited", ["flake/core.py", "flake/sub/x.py (gone)"]),
    ]
    text = stack.ok("status")
    assert f"profile tiny  runs {one} (number 1)  edited\n    flake/sub/x.py\n" in text.out
    assert f"stack capture --venv {venv} --line demo/1.0 NAME keeps the edits" in text.err
    shutil.rmtree(built.state / "layers")
    shutil.rmtree(venv)
    assert states() == [(one, "gone", [])]


def _runs(process: subprocess.Popen[bytes], code: bytes) -> bool:
    """Whether the program itself has taken the place of stack."""
    words = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")
    return words[-2:] == [code, b""] and b"stack" not in words


def test_a_base_on_which_a_program_runs_is_not_taken_away(built: Tiny) -> None:
    started = built.stack.argv("run", "--", "python", "-c", "input()")
    programs = [
        subprocess.Popen(started, cwd=built.stack.folder, stdin=subprocess.PIPE) for _ in range(2)
    ]
    until(lambda: all(_runs(one, b"input()") for one in programs))
    refused = built.stack("build", "--fresh")
    assert refused.code == 2
    assert "serving.lock: held by process" in refused.err
    assert "stack run -- python" in refused.err
    assert line_7(built) == "77"
    assert built.build()["changed"] is False
    programs[0].communicate(b"\n")
    assert built.stack("build", "--fresh").code == 2
    programs[1].communicate(b"\n")
    built.build("--fresh")
