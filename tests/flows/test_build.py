"""`stack build` with real environments, installers, git repositories and kills."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stack.store import lock
from tests.host.tiny_wheels import make_wheel
from tests.support.cli import Output, Stack, cold
from tests.support.processes import until
from tests.support.repo import RepoBuilder

CORE = b"".join(b"LINE_%d = %d\n" % (n, n) for n in range(30))
FILES = {
    "flake/__init__.py": b"from flake import core\n", "flake/core.py": CORE,
    "flake/sub/__init__.py": b"", "flake/sub/x.py": b"X = 1\n", "flake/data.txt": b"data\n",
}
TOML = """schema = 1
[defaults]
upstream = "demo"
profile = "tiny"
[upstream.demo]
git = "{url}"
packages = ["src/flake"]
[profile.tiny]
packages = ["tiny-flake==1.0"]
indexes = {indexes}
lines = ["demo/1.0"]
prepare = {prepare}
"""


class Tiny:
    """A project whose profile installs a package of four files, with a line of two patches."""

    def __init__(self, stack: Stack, upstream: RepoBuilder, tmp_path: Path) -> None:
        self.stack = stack
        self.links = tmp_path / "links"
        make_wheel(
            self.links, "tiny-flake", "1.0", {**FILES, "flake/_version.py": b"1\n"}, ["tiny-dep"]
        )
        make_wheel(self.links, "tiny-dep", "2.0", {"tiny_dep.py": b""})
        upstream.commit("begin", {f"src/{name}": data for name, data in FILES.items()})
        upstream.git("tag", "begin")
        upstream.commit("Change a line", {"src/flake/core.py": CORE.replace(b"= 7\n", b"= 77\n")})
        upstream.commit("Add and remove", {
            "src/flake/sub/new.py": b"NEW = 1\n", "src/flake/data.txt": None, "docs/x.md": b"x\n",
        })
        mails = upstream.patches("begin", tmp_path / "mails")
        self.url = upstream.url
        self.configure()
        stack.ok("line", "add", "demo@begin", "--label", "1.0")
        stack.ok("import", "--upstream", "demo@1.0", *mails)

    def configure(self, *, indexes: str = "[]", prepare: str = "[]", package: str = "") -> None:
        text = TOML.format(url=self.url, indexes=indexes, prepare=prepare)
        if package:
            text = text.replace("tiny-flake==1.0", package)
        (self.stack.folder / "stack.toml").write_text(text)

    @property
    def state(self) -> Path:
        return self.stack.folder / ".stack"

    def build(self, *arguments: str) -> dict[str, object]:
        data = self.stack.ok("build", "--json", *arguments).json["data"]
        assert isinstance(data, dict)
        return data

    def loads(self, build: dict, code: str, patch: str | None) -> str:  # type: ignore[type-arg]
        """What the base's Python prints with the layer of a prefix first on its path."""
        layer = next(row["path"] for row in build["layers"] if row["patch"] == patch)
        done = subprocess.run(
            [build["base"]["python"], "-P", "-c", code], env={"PYTHONPATH": layer}, cwd="/",
            capture_output=True, check=True, text=True,
        )
        return done.stdout.strip()


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    """Inode and mtime of everything below a folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        found[str(path)] = (status.st_ino, status.st_mtime_ns)
    return found


def test_every_prefix_loads_its_own_files_and_a_second_build_touches_nothing(tiny: Tiny) -> None:
    plan = tiny.build("--dry-run")
    assert plan["changed"] is True
    assert not (tiny.state / "venvs").exists()
    first = tiny.build()
    assert [row["state"] for row in first["layers"]] == ["new"] * 3
    assert {"tiny-flake==1.0", "tiny-dep==2.0"} <= set(first["base"]["packages"])
    assert first["base"]["downloaded"] == 0
    assert first["base"]["size_bytes"] > 0
    ask = "import flake.core as c, flake.sub as s, os; print(c.LINE_7, *os.listdir(*s.__path__))"
    assert tiny.loads(first, ask, None).startswith("7 ")
    assert "new.py" not in tiny.loads(first, ask, "change-a-line")
    assert "new.py" in tiny.loads(first, ask, "add-and-remove")
    last = Path(first["layers"][2]["path"])
    assert not (last / "flake/data.txt").exists()
    assert (last / "flake/__init__.py").is_symlink()
    assert first["layers"][2]["files"]["flake/data.txt"] == ""
    record = json.loads(last.with_name(f"{last.name}.json").read_text())
    assert record["outside"] == ["docs/x.md"]
    before = snapshot(tiny.state)
    second = tiny.build()
    assert second["changed"] is False
    assert [row["state"] for row in second["layers"]] == ["kept"] * 3
    assert snapshot(tiny.state) == before
    assert "nothing to do" in tiny.stack.ok("build").out


def test_a_fresh_base_replaces_the_old_one_and_its_layers(tiny: Tiny) -> None:
    first, second = tiny.build(), tiny.build("--fresh")
    assert first["base"]["key"] == second["base"]["key"]
    assert first["base"]["venv"] != second["base"]["venv"]
    assert [path.name for path in (tiny.state / "layers").iterdir()] == [
        f"{second['base']['key']}-{Path(second['base']['venv']).name}"
    ]
    assert not Path(first["base"]["venv"]).exists()
    assert tiny.loads(second, "import flake.core as c; print(c.LINE_7)", "change-a-line") == "77"


def test_an_edited_base_is_refused_by_name_until_it_is_made_again(tiny: Tiny) -> None:
    built = tiny.build()
    site = next(Path(built["base"]["venv"]).glob("lib/python*/site-packages"))
    (site / "flake/core.py").write_bytes(b"LINE_7 = 0\n")
    for arguments in (["build"], ["build", "--dry-run"]):
        refused = tiny.stack(*arguments)
        assert refused.code == 4
        said = "1 file was edited since the build\n  flake/core.py\nhint: stack build"
        assert said in refused.err
    tiny.stack.ok("build", "--fresh")
    tiny.stack.ok("build")


def test_an_edit_in_a_layer_makes_that_layer_again(tiny: Tiny) -> None:
    built = tiny.build()
    layer = Path(built["layers"][1]["path"])
    (layer / "flake/core.py").write_bytes(b"LINE_7 = 0\n")
    again = tiny.stack.ok("build", "--json")
    assert [row["state"] for row in again.json["data"]["layers"]] == ["kept", "new", "kept"]
    said = "the layer of change-a-line was edited by hand and is made again: flake/core.py"
    assert said in again.err
    (layer / "flake/__init__.py").unlink()
    (layer / "flake/__init__.py").write_bytes(b"")
    assert [row["state"] for row in tiny.build()["layers"]] == ["kept", "new", "kept"]


def test_a_project_that_was_moved_still_stands_and_never_reaches_into_the_old_place(
    tiny: Tiny, tmp_path: Path
) -> None:
    tiny.build()
    moved = Tiny.__new__(Tiny)
    moved.stack = Stack(tmp_path / "elsewhere/deeper")
    moved.stack.folder.parent.mkdir()
    shutil.move(tiny.stack.folder, moved.stack.folder)
    data = moved.build()
    assert data["changed"] is False
    ask = "import flake, os; print(os.path.realpath(flake.__file__))"
    assert moved.loads(data, ask, None).startswith(str(moved.stack.folder))


def test_a_patched_file_that_is_installed_with_another_text_is_refused(tiny: Tiny) -> None:
    altered = {**FILES, "flake/core.py": CORE + b"# altered\n", "flake/sub/new.py": b"mine\n"}
    make_wheel(tiny.links, "tiny-flake", "1.1", altered)
    tiny.configure(package="tiny-flake==1.1")
    refused = tiny.stack("build", "--json")
    assert refused.code == 4
    (error,) = refused.json["errors"]
    assert error["context"] == ["flake/core.py: the installed file is not the pin's"]
    assert "change-a-line" in error["message"]


PREPARE = """[["{{ python }}", "{{ root }}/make.py", "{{ models }}/one"],
    ["{{ python }}", "-c", "open('{{ models }}/two', 'w')"]]"""


def test_prepare_runs_once_and_again_when_its_script_changes(tiny: Tiny) -> None:
    script = tiny.stack.folder / "make.py"
    script.write_text("import os, sys; os.mkdir(sys.argv[1]); open(sys.argv[1] + '/a', 'w')\n")
    tiny.configure(prepare=PREPARE)
    assert tiny.build()["prepared"] == ["one", "two"]
    assert (tiny.state / "models/one/a").exists()
    assert tiny.build()["prepared"] == []
    script.write_text(script.read_text().replace("/a", "/b"))
    assert tiny.build("--dry-run")["prepare"] == 1
    assert tiny.build()["prepared"] == ["one"]
    assert [path.name for path in (tiny.state / "models/one").iterdir()] == ["b"]
    shutil.rmtree(tiny.state / "models/one")
    assert tiny.build()["prepared"] == ["one"]
    script.write_text("print('no good'); raise SystemExit(3)\n")
    failed = tiny.stack("build")
    assert failed.code == 4
    assert "stack.toml: profile.tiny.prepare[0]: the command ended with 3" in failed.err
    assert "| no good" in failed.err
    assert (tiny.state / "models/one/b").exists()
    script.write_text("")
    assert "made nothing in {{ models }}" in tiny.stack("build").err


def test_a_package_that_is_nowhere_names_log_and_skipped_index(tiny: Tiny) -> None:
    tiny.configure(package="tiny-flake==9.9", indexes='["https://index.invalid/simple"]')
    failed = tiny.stack("build")
    assert failed.code == 4
    assert "could not be built: there is no tiny-flake==9.9" in failed.err
    assert "skipped index https://index.invalid/simple" in failed.err
    assert "log: .stack/logs/build-" in failed.err
    assert "hint: check `packages` and `indexes`" in failed.err
    leftovers = [path for path in (tiny.state / "venvs").glob("*/*") if path.is_dir()]
    assert leftovers == []


def test_without_a_network_local_wheels_do_and_a_missing_one_says_so(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        closed = f"http://127.0.0.1:{held.getsockname()[1]}/simple"
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", closed)
    built = tiny.stack.ok("build")
    assert f"package index {closed} is skipped: Connection refused" in built.err
    assert "no package index answers" in built.err
    tiny.configure(package="tiny-flake==9.9")
    failed = tiny.stack("build")
    assert "there is no tiny-flake==9.9 (and no package index answers)" in failed.err
    assert "hint: check the network" in failed.err


@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_what_a_profile_leaves_out_is_not_in_the_base(
    tiny: Tiny, installer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which(installer) is None and installer == "uv":
        pytest.skip("uv is not installed")
    monkeypatch.setenv("STACK_INSTALLER", installer)
    toml = tiny.stack.folder / "stack.toml"
    toml.write_text(toml.read_text() + 'leave-out = ["Tiny_Dep"]\n')
    built = tiny.build()
    assert built["base"]["installer"] == installer
    assert not [name for name in built["base"]["packages"] if name.startswith("tiny-dep")]
    assert tiny.build()["changed"] is False


def test_a_base_on_which_somebody_measures_is_not_taken_away(tiny: Tiny) -> None:
    built = tiny.build()
    with lock.hold(tiny.state / "measuring.lock", "stack verify"):
        refused = tiny.stack("build", "--fresh")
        assert refused.code == 2
        assert "stack verify" in refused.err
        assert tiny.build()["changed"] is False
    assert Path(built["base"]["python"]).exists()


def test_wrong_words_in_the_profile_name_their_key(tiny: Tiny) -> None:
    def refused(old: str, new: str) -> Output:
        tiny.configure()
        path = tiny.stack.folder / "stack.toml"
        path.write_text(path.read_text().replace(old, new))
        return tiny.stack("build")

    for old, new, code, message in (
        ("tiny-flake==1.0", "{{ pyton }}", 2, "profile.tiny.packages[0]: 'pyton' is undefined"),
        ("[profile.tiny]", '[profile.tiny]\npython = ">=9"', 4, "profile.tiny.python: no Python"),
        ('["src/flake"]', "[]", 2, "upstream.demo has no `packages`"),
        ('["src/flake"]', '["src/none"]', 4, "no import package `none`"),
        ("tiny-flake==1.0", "no such thing", 4, "not a requirement"),
        ("demo/1.0", "demo/1.1", 2, "no line demo/1.1"),
    ):
        output = refused(old, new)
        assert output.code == code, output
        assert message in output.err
    assert "no profile `none`" in tiny.stack("build", "--profile", "none").err


def test_a_second_builder_is_told_who_builds(tiny: Tiny) -> None:
    first = tiny.stack.start("build")
    lock = tiny.state / "venvs/lock"
    until(lambda: lock.exists() and lock.read_bytes().startswith(b"process"))
    first.send_signal(signal.SIGSTOP)  # else a slow machine lets it finish before the second looks
    second = tiny.stack("build")
    first.send_signal(signal.SIGCONT)
    assert second.code == 2
    assert f"held by process {first.pid}: stack build --profile tiny" in second.err
    assert first.wait() == 0


def installers(folder: Path) -> list[str]:
    """Command lines of running processes that name something below `folder`."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if str(folder) in words and path.parent.name != str(os.getpid()):
            found.append(words)
    return found


def test_killed_anywhere_nothing_half_built_is_used_and_the_next_build_is_right(
    tiny: Tiny,
) -> None:
    seed = random.randrange(10**6)
    dice = random.Random(seed)
    tiny.configure(prepare=PREPARE)
    (tiny.stack.folder / "make.py").write_text("import os, sys; os.mkdir(sys.argv[1])\n")
    started = time.monotonic()
    with cold():
        whole = tiny.build()
    length = time.monotonic() - started
    for round_ in range(12):
        if round_ % 2 == 0:  # half of the kills hit the first build, half what comes after it
            shutil.rmtree(tiny.state / "venvs", ignore_errors=True)
        arguments = ["--fresh"] if round_ % 4 == 3 else []
        if round_ % 4 == 1:
            shutil.rmtree(tiny.state / "layers", ignore_errors=True)
            shutil.rmtree(tiny.state / "models", ignore_errors=True)
        process = tiny.stack.start("build", *arguments)
        time.sleep(dice.uniform(0.1, length))
        process.send_signal(signal.SIGKILL)
        process.wait()
        until(lambda: not installers(tiny.state / "venvs"))
        for record in (tiny.state / "venvs").glob("*/record.json"):
            python = record.parent / json.loads(record.read_bytes())["venv"] / "bin/python"
            subprocess.run([python, "-c", "import flake.core, tiny_dep"], check=True)
    data = tiny.build()
    assert data["base"]["packages"] == whole["base"]["packages"], seed
    assert tiny.build()["changed"] is False
    ask = "import flake.core as c; print(c.LINE_7)"
    assert tiny.loads(data, ask, None) == "7"
    assert tiny.loads(data, ask, "add-and-remove") == "77"
    assert {path.name for path in (tiny.state / "models").iterdir()} == {".records", "one", "two"}
    venvs = [path for path in (tiny.state / "venvs").glob("*/*") if path.is_dir()]
    assert venvs == [Path(data["base"]["venv"])]
    cache = Path(os.environ["STACK_CACHE_DIR"])
    assert sorted(path.name for path in cache.glob("wheels/*/*.whl")) == [
        "tiny_dep-2.0-py3-none-any.whl", "tiny_flake-1.0-py3-none-any.whl",
    ]


def test_what_a_kill_left_beside_a_finished_base_goes_with_the_next_build(tiny: Tiny) -> None:
    venv = Path(tiny.build()["base"]["venv"])
    for name in ("0a1b2c3d", ".0a1b2c3d.4e5f6071.tmp"):
        (venv.parent / name / "bin").mkdir(parents=True)
    assert tiny.build()["changed"] is False
    assert [path for path in venv.parent.iterdir() if path.is_dir()] == [venv]


@pytest.mark.skipif(shutil.which("uv") is None, reason="uv is not installed")
def test_uv_copies_too(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STACK_INSTALLER", "uv")
    monkeypatch.setenv("UV_LINK_MODE", "hardlink")
    first = tiny.build()
    assert first["base"]["installer"] == "uv"
    assert tiny.loads(first, "import flake.core as c; print(c.LINE_7)", "change-a-line") == "77"
    tiny.configure(package="tiny-flake==9.9")
    failed = tiny.stack("build")
    assert failed.code == 4
    assert "could not be built: there is no tiny-flake==9.9" in failed.err


def test_the_bill_of_materials_names_every_distribution_and_patch(tiny: Tiny) -> None:
    tiny.stack.ok("build", "--bom", "bom.json")
    text = (tiny.stack.folder / "bom.json").read_bytes()
    document = json.loads(text)
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    parts = {part["name"]: part for part in document["components"]}
    assert parts["tiny-flake"]["purl"] == "pkg:pypi/tiny-flake@1.0"
    assert len(parts["tiny-dep"]["properties"][0]["value"]) == 64
    patches = [one["diff"]["url"] for one in parts["demo"]["pedigree"]["patches"]]
    series = (tiny.stack.folder / "patches/demo/1.0/series.toml").read_text()
    names = [row.split('"')[1] for row in series.splitlines() if row.startswith("name = ")]
    assert patches == [f"patches/demo/1.0/{name}.patch" for name in names]
    assert parts["demo"]["properties"] == [
        {"name": "stack:tree", "value": series.split('tree = "')[1].split('"')[0]}
    ]
    # The same build gives the same bytes.
    tiny.stack.ok("build", "--bom", "again.json")
    assert (tiny.stack.folder / "again.json").read_bytes() == text
