"""`stack apply`, from an empty folder to a workspace."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import numbered
from tests.support.cli import Stack
from tests.support.repo import RepoBuilder


def begin(stack: Stack, upstream: RepoBuilder, source: str | None = None) -> None:
    """A project with the line demo/1.0."""
    stack.ok("init")
    stack.ok("upstream", "add", "demo", source or upstream.url)
    stack.ok("line", "add", "demo@v1.0")


def two_patches(upstream: RepoBuilder, folder: Path) -> list[Path]:
    """Two patches on `v1.0`, the second on top of the first."""
    lines = numbered(40).replace(b"line 7\n", b"line seven\n")
    upstream.commit("[Core] Spell seven\n\nWhy: words read better\n", {"src/app.py": lines})
    lines = lines.replace(b"line 9\n", b"line nine\n")
    upstream.commit("Spell nine", {"src/app.py": lines, "src/new.py": b"x = 1\n"})
    return upstream.patches("v1.0", folder)


def test_apply_gives_the_tree_of_git_am_and_the_same_ids_again(
    stack: Stack, upstream: RepoBuilder, tmp_path: Path
) -> None:
    mails = two_patches(upstream, tmp_path / "mails")
    wanted = upstream.tree()
    begin(stack, upstream)
    stack.ok("import", "--upstream", "demo@v1.0", *mails)
    first = stack.ok("apply", "--upstream", "demo@v1.0", "--json").json
    assert [row["outcome"] for row in first["data"]["patches"]] == ["clean", "clean"]
    assert first["data"]["tree"] == wanted
    assert first["data"]["changed"] is True
    again = stack.ok("apply", "--json").json
    assert again["data"]["changed"] is False
    assert again["data"]["patches"] == first["data"]["patches"]
    other = Stack(tmp_path / "other")
    other.folder.mkdir()
    begin(other, upstream)
    other.ok("import", *mails)
    assert other.ok("apply", "--json").json["data"]["patches"] == first["data"]["patches"]


def test_a_conflict_names_file_hunk_and_what_stands_there_and_changes_nothing(
    stack: Stack, upstream: RepoBuilder, tmp_path: Path
) -> None:
    mails = two_patches(upstream, tmp_path / "mails")
    begin(stack, upstream)
    stack.ok("import", *mails)
    before = stack.ok("apply", "--json").json["data"]["head"]
    patch = next((stack.folder / "patches/demo/1.0").glob("spell-nine.patch"))
    patch.write_bytes(patch.read_bytes().replace(b" line seven\n", b" line 7\n"))
    output = stack("apply", "--json")
    assert output.code == 3
    assert output.json["status"] == "error"
    assert "src/app.py" in output.json["errors"][0]["context"][0]
    assert "line seven" in "\n".join(output.json["errors"][0]["context"])
    head = (stack.folder / ".stack/repos/demo.git/refs/heads/1.0").read_text().strip()
    assert head == before


def test_uncommitted_and_unexported_work_is_never_overwritten(
    stack: Stack, upstream: RepoBuilder, tmp_path: Path
) -> None:
    mails = two_patches(upstream, tmp_path / "mails")
    begin(stack, upstream)
    stack.ok("import", *mails)
    tree = Path(stack.ok("apply", "--json").json["data"]["workspace"])
    (tree / "README").write_bytes(b"mine\n")
    output = stack("apply", "--to", "spell-seven")
    assert output.code == 2
    assert "README" in output.err
    assert (tree / "README").read_bytes() == b"mine\n"
