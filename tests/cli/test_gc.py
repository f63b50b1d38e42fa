"""`stack gc`: what killed runs and old profiles leave goes; what anybody needs stays."""

from __future__ import annotations

from pathlib import Path

from tests.cli.test_apply import begin, two_patches
from tests.support.cli import Stack
from tests.support.repo import RepoBuilder

PROFILE = """
[profile.cpu]
python = ">=3.11"
packages = ["nothing"]
lines = ["demo/1.0"]
"""


def test_leavings_go_and_everything_else_stays(
    stack: Stack, upstream: RepoBuilder, tmp_path: Path
) -> None:
    begin(stack, upstream)
    stack.ok("import", *two_patches(upstream, tmp_path / "mails"))
    stack.ok("apply")
    config = stack.folder / "stack.toml"
    config.write_text(config.read_text() + PROFILE)
    state = stack.folder / ".stack"
    left = stack.folder / "patches/demo/1.0/.spell-nine.patch.0a1b2c3d.tmp"
    left.write_bytes(b"half a patch")
    old_base, old_layer = state / "venvs/0123456789abcdef", state / "layers/0123456789abcdef-1/aa"
    for folder in (old_base, old_layer):
        folder.mkdir(parents=True)
        (folder / "file").write_bytes(b"x" * 5000)

    listed = stack.ok("gc", "--dry-run", "--json").json["data"]
    assert {Path(one["path"]).name for one in listed["removed"]} == {
        left.name, old_base.name, old_layer.parent.name,
    }
    assert listed["bytes"] >= 10_000
    assert left.exists()
    assert old_base.exists()

    before = {path: path.read_bytes() for path in (stack.folder / "patches").rglob("*.patch")}
    before.pop(left, None)
    stack.ok("gc")
    assert not left.exists()
    assert not old_base.exists()
    assert not old_layer.parent.exists()
    assert {p: p.read_bytes() for p in (stack.folder / "patches").rglob("*.patch")} == before
    assert stack.ok("export", "--check").code == 0
    stack.ok("undo")
    stack.ok("undo", "--redo")


def test_a_profile_that_cannot_be_judged_keeps_its_bases(
    stack: Stack, upstream: RepoBuilder
) -> None:
    begin(stack, upstream)
    config = stack.folder / "stack.toml"
    config.write_text(config.read_text() + PROFILE.replace(">=3.11", ">=9.0"))
    base = stack.folder / ".stack/venvs/0123456789abcdef"
    base.mkdir(parents=True)
    output = stack.ok("gc")
    assert "left alone" in output.err
    assert base.exists()
