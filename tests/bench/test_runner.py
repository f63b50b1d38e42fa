"""Trials of real programs that are good, slow, wrong, crash, hang, fork and ignore TERM."""

from __future__ import annotations

import hashlib
import os
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from stack.bench import runner
from stack.bench.logs import catalogue
from stack.host import survivors

BENCH = Path(runner.__file__).parent
CATALOGUE = catalogue()
GOOD = """
    import json, sys
    print("Throughput: 1.00 requests/s, 20.00 total tokens/s, 5.00 output tokens/s")
    json.dump({"rate": 20.001}, open(sys.argv[1], "w"))
"""


def job(tmp_path: Path, text: str, **changes: Any) -> runner.Job:
    script = tmp_path / "engine.py"
    script.write_text(textwrap.dedent(text))
    folder = tmp_path / "trial"
    result = folder / "result.json"
    settings: dict[str, Any] = {
        "id": f"t-{os.getpid()}-{tmp_path.name}",
        "argv": (sys.executable, str(script), str(result)),
        "knobs": {}, "layers": (), "site_packages": tmp_path / "site",
        "python": Path(sys.executable),
        "probe": BENCH / "drivers" / "probe.py", "files": {}, "patched": (), "folder": folder,
        "caches": tmp_path / "caches", "pyc": tmp_path / "pyc", "limit": 20.0, "stall": 20.0,
        "result": result, "metric": "rate", "unit": "tok/s",
        "log_pattern": r"Throughput: .* ([0-9.]+) total tokens/s",
    }
    return runner.Job(**settings | changes)


def run(made: runner.Job, outer: dict[str, str] | None = None) -> runner.Ran:
    own = {"PATH": os.environ["PATH"], "HOME": "/nowhere"} if outer is None else outer
    return runner.run(made, CATALOGUE, lambda seconds, size: None, own)


def test_a_good_trial_gives_both_figures_and_the_next_one_is_warm(tmp_path: Path) -> None:
    made = job(tmp_path, GOOD)
    first = run(made)
    assert (first.outcome, first.exit_code, first.cold) == ("ok", 0, True)
    assert first.figures is not None
    assert (first.figures.value, first.figures.logged) == (20.001, 20.0)
    assert run(made).cold is False
    assert 0 < first.processor_seconds < 10


def test_the_log_line_must_agree_with_the_result(tmp_path: Path) -> None:
    ran = run(job(tmp_path, GOOD.replace("20.001", "23.5")))
    assert ran.outcome == "quality:figures_differ"
    assert ran.cause == "the result says 23.5, the log says 20.00"
    assert ran.figures is None


def test_ending_well_without_a_result_is_blocked(tmp_path: Path) -> None:
    ran = run(job(tmp_path, "print('all is well')"))
    assert ran.outcome == "blocked:no_result"
    assert ran.cause == "it ended without writing result.json"


def test_a_native_crash_is_told_by_its_signal(tmp_path: Path) -> None:
    text = "import os, signal\nprint('loading')\nos.kill(os.getpid(), signal.SIGSEGV)"
    ran = run(job(tmp_path, text))
    assert (ran.outcome, ran.exit_code) == ("blocked:native_crash", -11)


def test_the_innermost_cause_is_dug_out_from_behind_cancelled(tmp_path: Path) -> None:
    ran = run(job(tmp_path, """
        import os, sys
        if os.fork() == 0:
            os.write(2, b"free(): invalid size\\n")
            os.abort()
        os.wait()
        print("ERROR Worker proc VllmWorker-0 died unexpectedly, shutting down executor.")
        raise RuntimeError("cancelled")
    """))
    assert ran.outcome == "blocked:native_crash"
    assert ran.cause == "free(): invalid size"
    assert ran.cause_line == 1
    assert ran.figures is None


def test_a_result_does_not_hide_a_crash_after_it(tmp_path: Path) -> None:
    ran = run(job(tmp_path, GOOD + "    sys.stdout.flush()\n    import os; os.abort()\n"))
    assert ran.outcome == "blocked:native_crash"
    assert ran.figures is None


def test_a_hanging_trial_is_stalled_and_one_over_its_limit_timed_out(tmp_path: Path) -> None:
    hanging = run(job(tmp_path, "import time; print('x'); time.sleep(60)", stall=1.0))
    assert hanging.stalled
    assert not hanging.timed_out
    assert hanging.outcome.startswith("stalled:")
    busy = "import time\nwhile True: print('x'); time.sleep(.1)"
    endless = run(job(tmp_path, busy, limit=1.5, stall=1.0))
    assert endless.timed_out
    assert endless.outcome.startswith("stalled:")
    assert endless.seconds < 10


def test_a_cold_trial_may_compute_in_silence_but_a_warm_one_may_not(tmp_path: Path) -> None:
    busy = "import time\nend = time.monotonic() + 4\nwhile time.monotonic() < end: pass\n"
    made = job(tmp_path, busy + textwrap.dedent(GOOD), stall=1.5)
    assert run(made).outcome == "ok"
    ran = run(made)
    assert (ran.cold, ran.stalled, ran.outcome) == (False, True, "stalled:no_progress")


IGNORES_TERM = """
    import os, signal, sys, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(300)
        time.sleep(300)
    open(sys.argv[1] + ".pid", "w").write(str(os.getpid()))
    print("started")
    time.sleep(300)
"""


def test_nothing_survives_not_even_what_left_the_group_and_ignores_term(tmp_path: Path) -> None:
    made = job(tmp_path, IGNORES_TERM, stall=1.0)
    ran = run(made)
    assert ran.stalled
    assert ran.survivors == 2
    assert survivors.marked(f"STACK_TRIAL={made.id}\0".encode()) == []
    with pytest.raises(ProcessLookupError):
        os.kill(int((made.folder / "result.json.pid").read_text()), 0)


def test_a_good_trial_that_leaves_daemons_is_cleaned_up_and_says_so(tmp_path: Path) -> None:
    ran = run(job(tmp_path, GOOD + """
    import os, time
    if os.fork() == 0:
        os.setsid()
        time.sleep(300)
    """))
    assert (ran.outcome, ran.survivors) == ("ok", 1)


def test_an_interrupt_leaves_nothing_running(tmp_path: Path) -> None:
    made = job(tmp_path, IGNORES_TERM)

    def interrupt(seconds: float, size: int) -> None:
        if size:
            raise KeyboardInterrupt

    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        runner.run(made, CATALOGUE, interrupt, {"PATH": os.environ["PATH"]})
    assert time.monotonic() - begun < 15
    assert survivors.marked(f"STACK_TRIAL={made.id}\0".encode()) == []


def test_the_environment_holds_what_the_arm_says_and_little_else(tmp_path: Path) -> None:
    made = job(
        tmp_path,
        "import json, os, sys\nsaid = {'rate': 1, 'env': dict(os.environ), 'cwd': os.listdir()}\n"
        "json.dump(said, open(sys.argv[1], 'w'))",
        knobs={"VLLM_X": "1"}, layers=(tmp_path / "layer",), log_pattern=None,
    )
    outer = {
        "PATH": os.environ["PATH"], "HOME": "/h", "VLLM_STRAY": "1", "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": "/evil", "HTTPS_PROXY": "p", "LD_LIBRARY_PATH": "/l",
    }
    assert run(made, outer).outcome == "ok"
    import json

    said = json.loads((made.folder / "result.json").read_text())
    env = said["env"]
    assert said["cwd"] == []
    assert env["VLLM_X"] == "1"
    assert env["PYTHONPATH"] == str(tmp_path / "layer")
    assert env["PYTHONSAFEPATH"] == "1"
    assert env["VLLM_CACHE_ROOT"] == str(tmp_path / "caches" / "vllm")
    assert env["LD_LIBRARY_PATH"] == "/l"
    assert not {"VLLM_STRAY", "PYTHONDONTWRITEBYTECODE"} & env.keys()
    assert not Path(env["TMPDIR"]).exists()


def layered(tmp_path: Path) -> tuple[Path, Path]:
    site, layer = tmp_path / "site" / "pack", tmp_path / "layer" / "pack"
    for folder, value in ((site, 1), (layer, 2)):
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("")
        (folder / "code.py").write_text(f"VALUE = {value}\n")
    return layer.parent, site.parent


def sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


USES_PACK = GOOD + "    import pack.code\n    assert pack.code.VALUE == 2\n"


def test_the_files_of_an_arm_are_proved_from_inside(tmp_path: Path) -> None:
    layer, site = layered(tmp_path)
    files = {"pack/code.py": sha(layer / "pack/code.py"), "pack/gone.py": None}
    made = job(
        tmp_path, USES_PACK, layers=(layer,), site_packages=site, files=files,
        patched=("pack/code.py",),
    )
    ran = run(made)
    assert (ran.outcome, ran.proved, ran.loaded) == ("ok", 2, ("pack/code.py",))


def test_a_trial_with_other_files_is_refused_before_it_starts(tmp_path: Path) -> None:
    layer, site = layered(tmp_path)
    files = {"pack/code.py": sha(layer / "pack/code.py")}
    (layer / "pack/code.py").write_text("VALUE = 3\n")
    ran = run(job(tmp_path, USES_PACK, layers=(layer,), site_packages=site, files=files))
    assert ran.outcome == "blocked:wrong_files"
    assert ran.cause == "not the files of this arm: pack/code.py"
    assert not (tmp_path / "trial/result.json").exists()


def test_a_trial_that_imported_past_its_layer_is_refused(tmp_path: Path) -> None:
    layer, site = layered(tmp_path)
    files = {"pack/code.py": sha(layer / "pack/code.py")}
    text = GOOD + f"    sys.path.insert(0, {str(site)!r})\n    import pack.code\n"
    ran = run(
        job(
            tmp_path, text, layers=(layer,), site_packages=site, files=files,
            patched=("pack/code.py",),
        )
    )
    assert ran.outcome == "blocked:wrong_files"
    assert ran.cause == "imported from outside the layer: pack/code.py"
    assert ran.figures is None


@pytest.mark.parametrize(
    ("said", "code", "outcome"),
    [
        ('{"sha256": "abc", "repeat_equal": true, "degenerate": false}', 0, "ok"),
        ('{"sha256": "abc", "repeat_equal": false, "degenerate": false}', 1, "quality:determinism"),
        ('{"sha256": "abc", "repeat_equal": true, "degenerate": true}', 1, "quality:degenerate"),
        ("{}", 0, "blocked:no_result"),
    ],
)
def test_a_gate_is_green_red_or_blocked(
    tmp_path: Path, said: str, code: int, outcome: str
) -> None:
    text = f"import sys\nprint('log')\nprint({said!r})\nsys.exit({code})"
    ran = run(job(tmp_path, text, field="sha256", result=None))
    assert ran.outcome == outcome
    assert ran.tokens == ("abc" if outcome == "ok" else None)


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        ('{"error": 0.004}', "ok"), ('{"error": 0.02}', "quality:tolerance"),
        ('{"error": NaN}', "quality:nan"), ('{"error": 0.004, "nan": true}', "quality:nan"),
        ('{"error": [0.001]}', "quality:tolerance"), ('{"other": 1}', "blocked:no_result"),
        ("[1]", "blocked:no_result"),
        ('{"error": 0.0, "repeat_equal": false}', "quality:determinism"),
        ('{"error": 0.0, "degenerate": true}', "quality:degenerate"),
    ],
)
def test_a_gate_of_numbers_in_a_file(tmp_path: Path, said: str, outcome: str) -> None:
    text = f"open({str(tmp_path / 'gate.json')!r}, 'w').write({said!r})"
    ran = run(job(tmp_path, text, field="error", gate_result=tmp_path / "gate.json", at_most=0.01))
    assert ran.outcome == outcome
    assert (ran.tokens == "0.004") is (outcome == "ok")


def test_a_full_disk_is_the_cause_and_not_the_patch(tmp_path: Path) -> None:
    text = "import sys\nprint('loading')\nopen('/dev/full', 'w').write('x' * 100_000)\n"
    ran = run(job(tmp_path, text))
    assert (ran.outcome, ran.exit_code) == ("blocked:disk_full", 1)
    assert ran.cause is not None
    assert "No space left on device" in ran.cause
    assert ran.hint is not None
    assert "free space" in ran.hint


def _layer(tmp_path: Path, text: str) -> tuple[Path, str]:
    package = tmp_path / "layer" / "toy"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "core.py").write_text(text)
    return package.parent, hashlib.sha256(text.encode()).hexdigest()


WORKERS = """
    import json, multiprocessing, os, sys
    from toy import core

    def work():
        from toy import core

    if __name__ == "__main__":
        for method in ("spawn", "fork"):
            worker = multiprocessing.get_context(method).Process(target=work)
            worker.start()
            worker.join()
        print("Throughput: 1.00 requests/s, 20.00 total tokens/s, 5.00 output tokens/s")
        json.dump({"rate": 20.001}, open(sys.argv[1], "w"))
"""


def test_every_process_reports_the_files_that_it_loads(tmp_path: Path) -> None:
    layer, digest = _layer(tmp_path, "RATE = 1\n")
    made = job(
        tmp_path, WORKERS, layers=(layer,), files={"toy/core.py": digest}, patched=("toy/core.py",)
    )
    ran = run(made)
    assert (ran.outcome, ran.loaded, ran.processes) == ("ok", ("toy/core.py",), 2)
    said = (made.folder / "loaded.jsonl").read_text()
    assert said.count(digest) == 2, "a forked worker has what its parent loaded"


def test_a_worker_that_loads_another_file_is_found_out(tmp_path: Path) -> None:
    """Its parent looks on the import path of the trial; the worker is given another one."""
    layer, digest = _layer(tmp_path, "RATE = 1\n")
    other = tmp_path / "other" / "toy"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("")
    (other / "core.py").write_text("RATE = 2\n")
    stray = WORKERS.replace(
        "for method in", f"sys.path.insert(0, {str(other.parent)!r})\n        for method in"
    )
    ran = run(job(
        tmp_path, stray, layers=(layer,), files={"toy/core.py": digest}, patched=("toy/core.py",)
    ))
    assert ran.outcome == "blocked:wrong_files"
    assert ran.cause is not None
    assert f"loaded {other / 'core.py'}, which is not toy/core.py of this arm" in ran.cause
    assert ran.figures is None
