"""`stack capture`: hand edits in an installed package become a patch that gives them again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flows.test_build import CORE, FILES, Tiny
from tests.flows.test_install_into import make_venv, says, site

ASK = "import flake.core as c, flake.sub.x as x; print(c.LINE_20, x.X)"


@pytest.fixture
def venv(tiny: Tiny, tmp_path: Path) -> Path:
    return make_venv(tmp_path / "mine", FILES)


def edit(venv: Path, name: str, old: bytes, new: bytes) -> None:
    path = site(venv) / name
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new))


def names(tiny: Tiny) -> list[str]:
    series = tiny.stack.folder / "patches/demo/1.0/series.toml"
    return [row.split('"')[1] for row in series.read_text().splitlines() if row[:4] == "name"]


def test_edits_become_a_patch_behind_the_others(
    tiny: Tiny, venv: Path, tmp_path: Path
) -> None:
    edit(venv, "flake/core.py", b"LINE_20 = 20", b"LINE_20 = 'mine'")
    (site(venv) / "flake/sub/added.py").write_bytes(b"ADDED = 1\n")
    (site(venv) / "flake/sub/x.py").unlink()
    (site(venv) / "flake/core.py.orig").write_bytes(CORE)
    (site(venv) / "flake/__pycache__").mkdir(exist_ok=True)
    (site(venv) / "flake/__pycache__/core.cpython-311.pyc").write_bytes(b"anything")
    dry = tiny.stack.ok("capture", "--venv", venv, "my-edits", "--dry-run", "--json").json["data"]
    assert dry["changed"] == ["src/flake/core.py"]
    assert dry["added"] == ["src/flake/sub/added.py"]
    assert dry["removed"] == ["src/flake/sub/x.py"]
    assert dry["left_out"] == ["flake/core.py.orig"]
    assert "my-edits" not in names(tiny)
    done = tiny.stack.ok(
        "capture", "--venv", venv, "my-edits", "--subject", "[Core] Mine", "--why", "It is faster"
    )
    assert "changed  src/flake/core.py" in done.out
    assert names(tiny) == ["change-a-line", "add-and-remove", "my-edits"]
    text = (tiny.stack.folder / "patches/demo/1.0/my-edits.patch").read_text()
    assert "From: Ann Author <ann@example.com>" in text
    assert "Subject: [Core] Mine\n" in text
    assert "\nWhy: It is faster\nUpstream-Status: Pending\nPatch-Id: " in text
    tree = Path(tiny.stack.ok("apply", "--json").json["data"]["workspace"])
    assert b"LINE_20 = 'mine'" in (tree / "src/flake/core.py").read_bytes()
    assert b"LINE_7 = 77" in (tree / "src/flake/core.py").read_bytes()
    assert not (tree / "src/flake/sub/x.py").exists()
    assert tiny.stack.ok("export", "--check")
    again = tiny.stack("capture", "--venv", venv, "again")
    assert (again.code, "its edits are in demo/1.0 already" in again.err) == (2, True)
    fresh = make_venv(tmp_path / "fresh", FILES)
    tiny.stack.ok("install", "--into", fresh)
    assert says(fresh, "import flake.core as c, flake.sub.added; print(c.LINE_20)") == "mine"
    tiny.stack.ok("undo")
    tiny.stack.ok("undo")
    assert "my-edits" not in names(tiny)


def test_edits_in_an_installed_layer_and_under_it(tiny: Tiny, venv: Path) -> None:
    tiny.stack.ok("install", "--into", venv, "demo:change-a-line")
    layer = next((venv / "stack-layers/demo").glob("*/"))
    core = layer / "flake/core.py"
    core.write_bytes(core.read_bytes().replace(b"LINE_20 = 20", b"LINE_20 = 2020"))
    (layer / "flake/sub/x.py").write_bytes(b"X = 11\n")  # through the link of the folder
    assert says(venv, ASK) == "2020 11"
    done = tiny.stack.ok("capture", "--venv", venv, "both", "--json").json["data"]
    assert done["changed"] == ["src/flake/core.py", "src/flake/sub/x.py"]
    tiny.stack.ok("apply")
    tree = tiny.state / "workspaces/demo/1.0/tree/src/flake"
    assert b"LINE_20 = 2020" in (tree / "core.py").read_bytes()
    assert b"LINE_7 = 77" in (tree / "core.py").read_bytes()
    assert (tree / "sub/x.py").read_bytes() == b"X = 11\n"


def test_edits_in_what_a_profile_runs(tiny: Tiny) -> None:
    tiny.build()
    tiny.stack.ok("use", "demo:change-a-line")
    layer = next(path for path in (tiny.state / "layers").glob("*/*/flake/core.py")
                 if b"77" in path.read_bytes() and (path.parent / "data.txt").exists())
    layer.write_bytes(layer.read_bytes().replace(b"LINE_20 = 20", b"LINE_20 = 2020"))
    refused = tiny.stack("use", "demo:change-a-line")
    assert refused.code == 2
    assert "hint: stack capture --line demo/1.0 NAME makes a patch of it" in refused.err
    tiny.stack.ok("capture", "found")
    text = (tiny.stack.folder / "patches/demo/1.0/found.patch").read_text()
    assert "+LINE_20 = 2020\n" in text
    assert "+LINE_7" not in text
    assert "Subject: Found\n" in text


def test_a_file_that_was_not_the_pins_even_before_is_refused_by_name(
    tiny: Tiny, tmp_path: Path
) -> None:
    altered = make_venv(tmp_path / "altered", {**FILES, "flake/sub/x.py": b"X = 'packager'\n"})
    edit(altered, "flake/sub/x.py", b"packager", b"mine")
    edit(altered, "flake/core.py", b"LINE_20 = 20", b"LINE_20 = 2020")
    refused = tiny.stack("capture", "--venv", altered, "mine")
    assert refused.code == 4
    assert "flake/sub/x.py: installed with another text than demo/1.0 has" in refused.err
    tiny.stack.ok("capture", "--venv", altered, "mine", "--only", "flake/core.py")
    text = (tiny.stack.folder / "patches/demo/1.0/mine.patch").read_text()
    assert text.count("diff --git") == 1


def test_edits_that_clash_with_a_patch_are_a_conflict_and_change_nothing(
    tiny: Tiny, venv: Path
) -> None:
    edit(venv, "flake/core.py", b"LINE_7 = 7\n", b"LINE_7 = 'mine'\n")
    before = names(tiny)
    refused = tiny.stack("capture", "--venv", venv, "mine")
    assert refused.code == 3
    assert "src/flake/core.py: both sides changed 1 place" in refused.err
    assert names(tiny) == before


def test_without_a_record_the_pins_files_say_what_was_edited(
    tiny: Tiny, venv: Path
) -> None:
    info = next(site(venv).glob("*.dist-info"))
    (info / "RECORD").unlink()
    (info / "top_level.txt").write_text("flake\n")
    edit(venv, "flake/core.py", b"LINE_20 = 20", b"LINE_20 = 2020")
    done = tiny.stack.ok("capture", "--venv", venv, "mine", "--json").json["data"]
    assert (done["changed"], done["added"], done["removed"]) == (["src/flake/core.py"], [], [])


def test_wrong_words_are_named(tiny: Tiny, venv: Path) -> None:
    for arguments, code, said in (
        (("mine",), 2, "hint: stack build --profile tiny"),
        (("mine", "--venv", venv), 2, "nothing was edited in the packages of demo/1.0"),
        (("Mine!", "--venv", venv), 2, "`Mine!` cannot be the name of a patch"),
        (("change-a-line", "--venv", venv), 2, "has a patch `change-a-line`"),
        (("mine", "--venv", venv, "--profile", "tiny"), 2, "both name an environment"),
    ):
        output = tiny.stack("capture", *arguments)
        assert output.code == code, output
        assert said in output.err
    edit(venv, "flake/core.py", b"LINE_20 = 20", b"LINE_20 = 2020")
    nobody = {f"GIT_{who}_{what}": "" for who in ("AUTHOR", "COMMITTER") for what in ("NAME",)}
    refused = tiny.stack("capture", "mine", "--venv", venv, env=nobody)
    assert (refused.code, "git does not know who you are" in refused.err) == (2, True), refused
