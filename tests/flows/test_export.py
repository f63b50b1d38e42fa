"""`stack export`: the workspace's commits and the patch files say the same, byte for byte."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.conftest import numbered
from tests.support.cli import Stack
from tests.support.project import Demo


@pytest.fixture
def demo(stack: Stack, tmp_path: Path) -> Demo:
    """A project whose line demo/1.0 has three patches, applied."""
    made = Demo(stack, tmp_path)
    made.patches(3)
    made.apply()
    return made


def test_right_after_apply_nothing_differs(demo: Demo) -> None:
    before = demo.files()
    assert demo.stack.ok("export", "--check").code == 0
    done = demo.stack.ok("export", "--json").json["data"]
    assert (done["differs"], done["patches"]) == (False, [])
    assert demo.files() == before


def test_an_amended_commit_changes_its_own_file_only(demo: Demo) -> None:
    before = demo.files()
    demo.edit_commit(1, "src/f1.py", numbered(20).replace(b"line 4\n", b"amended\n"))
    output = demo.stack("export", "--check", "--json")
    assert output.code == 1
    assert output.json["status"] == "success"
    assert output.json["data"]["patches"] == [{"name": "edit-1", "change": "changed"}]
    assert demo.files() == before
    demo.stack.ok("export")
    after = demo.files()
    assert {name for name in after if after[name] != before.get(name)} == {"edit-1.patch"}
    assert b"+amended\n" in after["edit-1.patch"]
    assert demo.stack.ok("export", "--check")
    wanted = demo.tree_id()
    demo.fresh_apply()
    assert demo.tree_id() == wanted


def test_a_reworded_commit_keeps_its_name_through_its_patch_id(demo: Demo) -> None:
    demo.git(
        "commit",
        "--amend",
        "--quiet",
        "-m",
        "[Other] New words\n\nPatch-Id: " + demo.id_of("edit-2"),
    )
    done = demo.stack.ok("export", "--json").json["data"]
    assert done["patches"] == [{"name": "edit-2", "change": "changed"}]
    assert b"Subject: [Other] New words" in demo.files()["edit-2.patch"]


def test_new_reordered_and_removed_commits(demo: Demo) -> None:
    shas = demo.git("rev-list", "--reverse", f"{demo.base}..HEAD").split()
    demo.git("reset", "--quiet", "--hard", demo.base)
    demo.git("cherry-pick", shas[2])
    demo.commit("[New] Add a file: x/y!", {"src/new.py": b"1\n"})
    demo.git("cherry-pick", shas[0])
    done = demo.stack.ok("export", "--json").json["data"]
    changes = {(row["name"], row["change"]) for row in done["patches"]}
    assert changes == {("add-a-file-x-y", "new"), ("edit-1", "removed")}
    assert done["reordered"] is True
    assert demo.names() == ["edit-2", "add-a-file-x-y", "edit-0"]
    assert set(demo.files()) == {"series.toml", *(f"{name}.patch" for name in demo.names())}
    wanted = demo.tree_id()
    demo.fresh_apply()
    assert demo.tree_id() == wanted
    assert demo.stack.ok("export", "--check")


def test_names_of_new_patches_never_clash(demo: Demo) -> None:
    for number in range(3):
        demo.commit("Edit 1", {f"src/n{number}": b"1\n"})
    demo.commit("\u00dcber\u4e2d", {"src/u": b"1\n"})
    demo.commit("\u4e2d\u6587", {"src/v": b"1\n"})
    demo.stack.ok("export")
    assert demo.names()[3:] == ["edit-1-2", "edit-1-3", "edit-1-4", "uber", "patch"]
    assert demo.stack.ok("export", "--check")


def test_comments_and_fields_of_the_series_stay(demo: Demo) -> None:
    series = demo.line / "series.toml"
    text = series.read_text().replace(
        'name = "edit-1"\n', 'name = "edit-1" # mine\nclaim = "same"\n'
    )
    series.write_text("# top\n" + text)
    demo.commit("Another", {"src/n": b"1\n"})
    demo.stack.ok("export")
    after = series.read_text()
    assert after.startswith("# top\n" + text.rstrip("\n"))
    assert 'name = "another"' in after[len(text) :]


def test_two_commits_with_one_patch_id_are_told_apart_for_ever(demo: Demo) -> None:
    """A commit that was split in two: both halves carry the id."""
    demo.commit(f"Second half\n\nPatch-Id: {demo.id_of('edit-1')}", {"src/half": b"1\n"})
    demo.stack.ok("export")
    names, files = demo.names(), demo.files()
    assert names == ["edit-0", "edit-1", "edit-2", "second-half"]
    assert demo.stack.ok("export", "--check")
    demo.fresh_apply()
    assert demo.stack.ok("export", "--check")
    assert (demo.names(), demo.files()) == (names, files)


def test_a_patch_that_has_no_commit_of_its_own_is_not_lost(demo: Demo) -> None:
    """`edit-1` takes in what `edit-2` does: that one is upstreamed, and stays in the line."""
    one, two = (demo.line / f"edit-{n}.patch" for n in (1, 2))
    data = two.read_bytes()
    one.write_bytes(one.read_bytes() + data[data.index(b"diff --git") :])
    done = demo.stack.ok("apply", "--json").json["data"]
    assert [row["outcome"] for row in done["patches"]] == ["clean", "clean", "upstreamed"]
    before = demo.files()
    assert demo.stack("export", "--check").code == 0
    demo.commit("Another", {"src/n": b"1\n"})
    demo.stack.ok("export")
    after = demo.files()
    assert {name: after[name] for name in before if name != "series.toml"} == {
        name: data for name, data in before.items() if name != "series.toml"
    }
    assert set(demo.names()) == {"edit-0", "edit-1", "edit-2", "another"}


def test_files_that_the_series_does_not_name_are_left_alone(demo: Demo) -> None:
    (demo.line / "notes.patch").write_bytes(b"mine\n")
    (demo.line / "another.patch").write_bytes(b"mine too\n")
    demo.commit("Another", {"src/n": b"1\n"})
    demo.stack.ok("export")
    assert (demo.line / "notes.patch").read_bytes() == b"mine\n"
    assert (demo.line / "another.patch").read_bytes() == b"mine too\n"
    assert demo.names()[-1] == "another-2"
    demo.more("late", {"src/late": b"1\n"})
    assert (demo.line / "notes.patch").read_bytes() == b"mine\n"


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ("Subject\n\ntext\n---\nmore", "`---`, where a mail's text ends"),
        ("Subject\n\ndiff --git a/x b/x\n", "`diff --git a/x b/x`, where a mail's text ends"),
        ("Subject\n\nFrom: me to you\n\ntext", "`From: me to you`, which a mail reader takes"),
        ("A subject\nof two lines\n\nSubject: again\n", "`Subject: again`, which a mail reader"),
        ("[PATCH] Subject", "its message would not come back"),
        ("Re: Subject", "its message would not come back"),
    ],
)
def test_a_message_that_a_mail_cannot_carry_is_refused(demo: Demo, message: str, why: str) -> None:
    before = demo.files()
    demo.commit(message, {"src/n": b"1\n"})
    output = demo.stack("export")
    assert output.code == 2
    assert why in output.err
    assert "hint:" in output.err
    assert demo.files() == before


def test_merges_empty_commits_and_foreign_bases_are_refused(demo: Demo) -> None:
    before = demo.files()
    head = demo.head()
    demo.git("commit", "--quiet", "--allow-empty", "-m", "Nothing")
    assert "is empty" in demo.stack("export").err
    demo.git("reset", "--quiet", "--hard", head)
    demo.git("checkout", "--quiet", "--detach", demo.base)
    demo.commit("Side", {"src/side": b"1\n"})
    demo.git("merge", "--quiet", "--no-edit", head)
    assert "is a merge" in demo.stack("export").err
    demo.git("checkout", "--quiet", "--orphan", "elsewhere")
    demo.git("commit", "--quiet", "-m", "A history of its own")
    assert "does not stand on the pin" in demo.stack("export").err
    assert demo.files() == before


def test_files_and_workspace_both_changed(demo: Demo) -> None:
    patch = demo.line / "edit-0.patch"
    patch.write_bytes(patch.read_bytes().replace(b"+changed 0", b"+by hand"))
    edited = demo.files()
    demo.commit("Another", {"src/n": b"1\n"})
    status = demo.stack("status", "--check", "--json")
    assert (status.code, status.json["data"]["lines"][0]["state"]) == (1, "diverged")
    output = demo.stack("export")
    assert output.code == 2
    assert "--force" in output.err
    assert demo.files() == edited
    assert demo.stack("apply").code == 2
    demo.stack.ok("export", "--force")
    assert b"+changed 0" in demo.files()["edit-0.patch"]
    demo.stack.ok("undo")
    assert demo.files() == edited


def test_uncommitted_work_is_said_and_left(demo: Demo) -> None:
    (demo.tree / "README").write_bytes(b"edited\n")
    demo.commit_only("Another", {"src/n": b"1\n"})
    output = demo.stack.ok("export")
    assert "1 uncommitted" in output.err
    assert (demo.tree / "README").read_bytes() == b"edited\n"
    assert demo.stack.ok("status", "--json").json["data"]["lines"][0]["state"] == "edited"


def test_the_users_own_git_configuration_does_not_change_a_byte(demo: Demo, tmp_path: Path) -> None:
    config = tmp_path / "gitconfig"
    config.write_text(
        "[diff]\nnoprefix = true\nrenames = false\ncontext = 9\nalgorithm = patience\n"
        "[format]\nsubjectPrefix = X\nsignature = me\nattach = true\nnumbered = true\n"
        "[core]\nabbrev = 9\nquotePath = true\nautocrlf = true\n"
        "[i18n]\nlogOutputEncoding = latin-1\n"
    )
    demo.edit_commit(0, "src/f0.py", numbered(20).replace(b"line 9\n", b"amended\n"))
    env = {
        "GIT_CONFIG_GLOBAL": str(config),
        "GIT_DIR": "/nowhere",
        "GIT_INDEX_FILE": "/nowhere/i",
    }
    demo.stack.ok("export", env=env)
    once = demo.files()
    demo.stack.ok("undo", env=env)
    demo.stack.ok("export")
    assert demo.files() == once
    assert b"--- a/src/f0.py\n" in once["edit-0.patch"]


def test_other_lines_context_width_is_kept(demo: Demo) -> None:
    series = demo.line / "series.toml"
    series.write_text(series.read_text().replace("[pin]", "context = 1\n\n[pin]"))
    demo.edit_commit(1, "src/f1.py", numbered(20).replace(b"line 4\n", b"amended\n"))
    demo.stack.ok("export")
    assert b" line 3\n-line 4\n+amended\n line 5\n" in demo.files()["edit-1.patch"]
    assert b"\n line 2\n" not in demo.files()["edit-1.patch"]
    demo.fresh_apply()
    assert demo.stack.ok("export", "--check")


def test_git_am_takes_what_export_wrote(demo: Demo, tmp_path: Path) -> None:
    demo.commit("[XPU][MoE] Gr\u00fc\u00dfe\n\nWhy: text\n goes on", {"src/n": b"1"})
    demo.stack.ok("export")
    wanted = demo.tree_id()
    files = [demo.line / f"{name}.patch" for name in demo.names()]
    demo.upstream.git("checkout", "--quiet", "--detach", "v1.0")
    demo.upstream.git("am", "--quiet", "--keep-non-patch", *files)
    assert demo.upstream.tree() == wanted
    subject = demo.upstream.git("log", "-1", "--format=%s").decode().strip()
    assert subject == "[XPU][MoE] Gr\u00fc\u00dfe"


def test_nothing_runs_from_the_workspace(demo: Demo) -> None:
    """Hooks and monitors of a repository are programs of somebody else."""
    hooks = demo.stack.folder / ".stack/repos/demo.git/hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("post-checkout", "post-commit", "reference-transaction", "post-index-change"):
        (hooks / name).write_text("#!/bin/sh\ntouch /tmp/stack-hook-ran-$$\n")
        (hooks / name).chmod(0o755)
    demo.edit_commit(0, "src/f0.py", numbered(20).replace(b"line 9\n", b"amended\n"), hooks=False)
    demo.stack.ok("export")
    demo.stack.ok("undo")
    assert not list(Path("/tmp").glob("stack-hook-ran-*"))
    assert subprocess.run(["git", "fsck"], cwd=demo.tree, env=os.environ, check=True)


def test_a_reworded_commit_without_its_id_is_known_by_its_content(demo: Demo) -> None:
    patch_id, before = demo.id_of("edit-2"), demo.files()
    demo.git("commit", "--amend", "--quiet", "-m", "[Core] Quite other words")
    done = demo.stack.ok("export", "--dry-run", "--json").json["data"]
    assert [(row["name"], row["matched"]) for row in done["plan"]] == [
        ("edit-0", "id"), ("edit-1", "id"), ("edit-2", "content")
    ]
    assert demo.files() == before
    assert "changed  edit-2 (by its content)" in demo.stack.ok("export", "--dry-run").out
    demo.stack.ok("export")
    assert demo.id_of("edit-2") == patch_id
    assert set(demo.files()) == set(before)
    assert demo.stack.ok("export", "--check")


def test_the_larger_half_of_a_split_patch_keeps_its_name(demo: Demo) -> None:
    demo.more("Wide", {"src/f8.py": b"a\nb\nc\nd\n", "src/f9.py": b"e\n"})
    demo.stack.ok("apply")
    patch_id = demo.id_of("wide")
    message = demo.git("log", "-1", "--format=%B")
    demo.git("reset", "--quiet", "HEAD^")
    demo.commit_only(message, {"src/f9.py": b"e\n"})
    demo.commit_only(message, {"src/f8.py": b"a\nb\nc\nd\n"})
    demo.stack.ok("export")
    assert demo.names()[3:] == ["wide-2", "wide"]
    assert demo.id_of("wide") == patch_id
    assert demo.id_of("wide-2") not in ("", patch_id)
    assert demo.stack.ok("export", "--check")
    files, names = demo.files(), demo.names()
    demo.fresh_apply()
    assert demo.stack.ok("export", "--check")
    assert (demo.files(), demo.names()) == (files, names)
