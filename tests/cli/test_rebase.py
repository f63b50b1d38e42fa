"""`stack rebase` by hand: stop, answer, go on, leave out, replace, give up, join, take back."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from pathlib import Path

import pytest

from tests.conftest import numbered
from tests.support.carrying import Moving
from tests.support.cli import Stack

BASE = numbered(40)


def swap(text: bytes, *pairs: tuple[bytes, bytes]) -> bytes:
    for old, new in pairs:
        assert text.count(old) == 1
        text = text.replace(old, new)
    return text


ONE = swap(BASE, (b"line 5\n", b"mine\n"))
TWO = swap(ONE, (b"line 20\n", b"twenty\n"))
THREE = {"new.py": b"x = 1\n"}
THEIRS = swap(BASE, (b"line 5\n", b"theirs\n"))


@pytest.fixture
def case(tmp_path: Path) -> Moving:
    """Three patches: `one` conflicts at v2, `two` and `three` do not."""
    return Moving(
        tmp_path / "m",
        {"f": BASE},
        [
            ("one\n\nPatch-Id: 1111111111111111", {"f": ONE}),
            ("two\n\nPatch-Id: 2222222222222222", {"f": TWO}),
            ("three\n\nPatch-Id: 3333333333333333", THREE),
        ],
        [("theirs", {"f": THEIRS})],
    )


@pytest.fixture
def stopped(case: Moving) -> Stack:
    """The project with a rebase that stopped at `one`."""
    stack = case.project()
    output = stack("rebase", "--onto", "demo@v2", "--json")
    assert output.code == 3, output
    return stack


def snapshot(stack: Stack) -> dict[str, bytes]:
    """Every file under patches/."""
    root = stack.folder / "patches"
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def tree_file(stack: Stack) -> Path:
    return stack.folder / ".stack/rebase/tree/f"


def result(stack: Stack) -> dict[str, bytes]:
    """The files of the workspace of the new line."""
    tree = Path(stack.ok("apply", "--line", "demo/2", "--json").json["data"]["workspace"])
    return {p.name: p.read_bytes() for p in tree.iterdir() if p.is_file() and p.name != ".git"}


def names(stack: Stack, line: str = "demo/2") -> list[str]:
    document = (stack.folder / "patches" / line / "series.toml").read_text()
    return [row.split('"')[1] for row in document.splitlines() if row.startswith("name = ")]


def test_a_conflict_stops_and_says_where(case: Moving) -> None:
    stack = case.project()
    before = snapshot(stack)
    output = stack("rebase", "--onto", "demo@v2")
    assert output.code == 3
    assert "patch `one` (1 of 3) conflicts at demo/2" in output.err
    who = f"since {case.commits[0][:12]} theirs"
    assert f".stack/rebase/tree/f:5: both sides changed 1 place; {who}" in output.err
    assert "1 open conflict regions from here on, 1 distinct, 0 more answered" in output.err
    assert "stack rebase --continue" in output.err
    assert snapshot(stack) == before
    assert tree_file(stack).read_bytes().count(b"<<<<<<<") == 1
    assert "rebase to demo/2 stopped at patch `one`: stack rebase" in stack.ok("status").out
    again = stack("rebase", "--onto", "demo@v2")
    assert again.code == 2
    assert "under way" in again.err


def test_continue_with_an_edited_file_carries_the_rest_and_remembers(stopped: Stack) -> None:
    refused = stopped("rebase", "--continue")
    assert refused.code == 2
    assert "conflict markers remain" in refused.err
    text = tree_file(stopped).read_bytes()
    start, stop = text.index(b"<<<<<<<"), text.index(b">>>>>>> patch\n") + len(b">>>>>>> patch\n")
    tree_file(stopped).write_bytes(text[:start] + b"both\n" + text[stop:])
    done = stopped.ok("rebase", "--continue", "--json").json["data"]
    assert [row["outcome"] for row in done["patches"]] == ["modified", "clean", "clean"]
    assert names(stopped) == ["one", "two", "three"]
    assert names(stopped, "demo/1") == ["one", "two", "three"]
    files = result(stopped)
    assert files["f"] == swap(BASE, (b"line 5\n", b"both\n"), (b"line 20\n", b"twenty\n"))
    assert files["new.py"] == b"x = 1\n"
    assert not (stopped.folder / ".stack/rebase/tree").exists()
    (kept,) = (stopped.folder / "patches/demo/resolutions").glob("*.json")
    document = json.loads(kept.read_text())
    assert (document["target"], document["ours"], document["answer"]) == (
        ["theirs\n"],
        ["mine\n"],
        ["both\n"],
    )


def test_an_answer_is_remembered_across_rebases_and_by_a_colleague(
    stopped: Stack, case: Moving, tmp_path: Path
) -> None:
    stopped.ok("resolve", "--take", "patch")
    stopped.ok("rebase", "--continue")
    stopped.ok("undo")
    assert not (stopped.folder / "patches/demo/2").exists()
    done = stopped.ok("rebase", "--onto", "demo@v2", "--json").json["data"]
    assert done["patches"][0]["notes"] == ["1 regions answered from memory"]
    shown = stopped.ok("forecast", "--upstream", "demo@1", "--onto", "demo@v2").err
    assert "0 conflict regions, 0 distinct, 1 answered from memory" in shown
    other = Stack(tmp_path / "colleague")
    other.folder.mkdir()
    shutil.copy(stopped.folder / "stack.toml", other.folder)
    shutil.copytree(stopped.folder / "patches", other.folder / "patches")
    shutil.rmtree(other.folder / "patches/demo/2")
    other.ok("rebase", "--onto", "demo@v2")
    assert snapshot(other)["demo/2/one.patch"] == snapshot(stopped)["demo/2/one.patch"]


def test_skip_and_park_leave_a_patch_out(stopped: Stack) -> None:
    done = stopped.ok("rebase", "--skip", "--json").json["data"]
    assert done["patches"][0]["dropped"] is True
    assert names(stopped) == ["two", "three"]
    assert result(stopped)["f"] == swap(THEIRS, (b"line 20\n", b"twenty\n"))


@pytest.mark.parametrize("answer", [["resolve", "--take", "patch"], None])
def test_what_an_earlier_answer_left_in_the_worktree_is_in_no_later_patch(
    tmp_path: Path, answer: list[str] | None
) -> None:
    case = Moving(
        tmp_path / "m",
        {"f": BASE, "g": BASE},
        [
            ("one\n\nPatch-Id: 1111111111111111", {"f": ONE, "added.py": b"x = 1\n"}),
            ("two\n\nPatch-Id: 2222222222222222", {"g": swap(BASE, (b"line 9\n", b"mine\n"))}),
        ],
        [("theirs", {"f": THEIRS, "g": swap(BASE, (b"line 9\n", b"theirs\n"))})],
    )
    stack = case.project()
    assert stack("rebase", "--onto", "demo@v2").code == 3
    tree = tree_file(stack).parent
    assert (tree / "added.py").exists()
    (tree / "scratch.py").write_bytes(b"mine\n")
    if answer:
        stack.ok(*answer)
    assert stack("rebase", "--continue" if answer else "--skip").code == 3
    assert (tree / "added.py").exists() == bool(answer)
    assert (tree / "scratch.py").exists() == bool(answer)
    stack.ok("resolve", "--take", "patch")
    stack.ok("rebase", "--continue")
    two = (stack.folder / "patches/demo/2/two.patch").read_text()
    assert re.findall(r"(?m)^\+\+\+ b/(.*)", two) == ["g"]


def test_what_the_user_has_git_ignore_everywhere_is_no_part_of_an_answer(
    stopped: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ignore").write_bytes(b"*.swp\n")
    (tmp_path / "gitconfig").write_text(f"[core]\n\texcludesFile = {tmp_path / 'ignore'}\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    stopped.ok("resolve", "--take", "patch")
    (tree_file(stopped).parent / ".f.swp").write_bytes(b"an editor's\n")
    stopped.ok("rebase", "--continue")
    assert ".f.swp" not in result(stopped)


def test_park_says_the_reason(stopped: Stack) -> None:
    done = stopped.ok("rebase", "--park", "obsolete", "--json").json["data"]
    assert done["patches"][0]["notes"] == ["obsolete"]
    gone = {"name": "one", "reason": "obsolete", "source": "demo/1", "id": "1" * 16}
    assert done["left"] == [gone]
    series = tomllib.loads((stopped.folder / "patches/demo/2/series.toml").read_text())
    assert [patch["name"] for patch in series["patch"]] == ["two", "three"]
    assert series["left"] == [gone]
    assert "  x one                left in demo/1 (obsolete)\n" in stopped.ok("list", "demo/2").out
    assert stopped.ok("list", "demo/2", "--json").json["data"]["lines"][0]["left"] == [gone]


def test_what_was_left_behind_is_not_asked_again(case: Moving) -> None:
    stack = case.project()
    stack.ok("rebase", "--onto", "demo@v2", "--leave", "one=obsolete")
    done = stack.ok("rebase", "--onto", "demo@v2", "--into", "demo/2", "--json").json["data"]
    assert done["patches"] == []
    series = tomllib.loads((stack.folder / "patches/demo/2/series.toml").read_text())
    assert [patch["name"] for patch in series["patch"]] == ["two", "three"]
    assert [one["name"] for one in series["left"]] == ["one"]
    # New patches go before what stands behind them in the file.
    stack.ok("apply", "--line", "demo/2")
    tree = stack.folder / ".stack/workspaces/demo/2/tree"
    (tree / "more").write_bytes(b"more\n")
    stack.ok("new", "four", "-m", "four", "--why", "more", "--line", "demo/2")
    series = tomllib.loads((stack.folder / "patches/demo/2/series.toml").read_text())
    assert [patch["name"] for patch in series["patch"]] == ["two", "three", "four"]
    assert [one["name"] for one in series["left"]] == ["one"]


@pytest.mark.parametrize("said", ["one", "one=", "one=because", "nobody=obsolete"])
def test_leave_wants_a_patch_and_a_reason(case: Moving, said: str) -> None:
    output = case.project()("rebase", "--onto", "demo@v2", "--leave", said)
    assert output.code == 2
    assert said.partition("=")[0] in output.err


def test_replace_takes_a_rewritten_patch_of_the_same_id(
    stopped: Stack, case: Moving, tmp_path: Path
) -> None:
    repo = case.repo
    repo.git("checkout", "-q", "-B", "rewritten", "v2")
    repo.commit(
        "one, again\n\nPatch-Id: 1111111111111111", {"f": swap(THEIRS, (b"line 6\n", b"six\n"))}
    )
    (mail,) = repo.patches("v2", tmp_path / "rewritten")
    stopped.ok("rebase", "--replace", mail)
    assert result(stopped)["f"] == swap(
        BASE, (b"line 5\n", b"theirs\n"), (b"line 6\n", b"six\n"), (b"line 20\n", b"twenty\n")
    )
    text = (stopped.folder / "patches/demo/2/one.patch").read_bytes()
    assert b"Subject: one, again" in text


def test_replace_refuses_another_patch(stopped: Stack, case: Moving) -> None:
    output = stopped("rebase", "--replace", case.mails[1])
    assert output.code == 2
    assert "Patch-Id" in output.err


def test_abort_gives_back_exactly_what_was(case: Moving) -> None:
    stack = case.project()
    stack.ok("apply")
    before = snapshot(stack)
    head = (stack.folder / ".stack/repos/demo.git/refs/heads/1").read_bytes()
    assert stack("rebase", "--onto", "demo@v2").code == 3
    tree_file(stack).write_bytes(b"half edited\n")
    stack.ok("rebase", "--abort")
    assert snapshot(stack) == before
    assert (stack.folder / ".stack/repos/demo.git/refs/heads/1").read_bytes() == head
    assert not (stack.folder / ".stack/rebase/tree").exists()
    assert stack("rebase", "--abort").code == 2
    assert stack("rebase", "--onto", "demo@v2").code == 3


def test_dry_run_writes_nothing(case: Moving) -> None:
    stack = case.project()
    before = snapshot(stack)
    output = stack("rebase", "--onto", "demo@v2", "--dry-run", "--json")
    assert output.code == 3
    assert output.json["data"]["patches"][0]["outcome"] == "conflict"
    assert snapshot(stack) == before
    assert not (stack.folder / ".stack/rebase").exists()
    assert stack("rebase", "--continue").code == 2


def test_undo_takes_a_rebase_back_and_forth(stopped: Stack) -> None:
    before = snapshot(stopped)
    stopped.ok("resolve", "--take", "target")
    stopped.ok("rebase", "--continue")
    after = snapshot(stopped)
    assert after.keys() > before.keys()
    stopped.ok("undo")
    kept = {name: data for name, data in snapshot(stopped).items() if "resolutions" not in name}
    assert kept == before
    stopped.ok("undo", "--redo")
    assert snapshot(stopped) == after


def test_a_patch_that_became_empty_by_the_answer_is_dropped(stopped: Stack) -> None:
    stopped.ok("resolve", "--take", "target")
    done = stopped.ok("rebase", "--continue", "--json").json["data"]
    assert done["patches"][0]["outcome"] == "upstreamed"
    assert names(stopped) == ["two", "three"]


def joined(case: Moving, tmp_path: Path) -> Stack:
    """A project with a line demo/2 that has another `two`, and a patch of its own."""
    stack = case.project()
    repo = case.repo
    repo.git("checkout", "-q", "-B", "there", "v2")
    repo.commit(
        "theirs two\n\nPatch-Id: 2222222222222222", {"f": swap(THEIRS, (b"line 20\n", b"XX\n"))}
    )
    repo.commit("four\n\nPatch-Id: 4444444444444444", {"four": b"4\n"})
    stack.ok("line", "add", "demo@v2")
    stack.ok("import", "--upstream", "demo@v2", *repo.patches("v2", tmp_path / "there"))
    return stack


def test_a_line_at_the_target_has_to_be_joined(case: Moving, tmp_path: Path) -> None:
    stack = joined(case, tmp_path)
    output = stack("rebase", "--upstream", "demo@1", "--onto", "demo@2")
    assert output.code == 2
    assert "--into demo/2" in output.err


def test_into_keeps_the_targets_patches_first_and_its_version(case: Moving, tmp_path: Path) -> None:
    stack = joined(case, tmp_path)
    arguments = ["rebase", "--upstream", "demo@1", "--onto", "demo@2", "--into", "demo/2"]
    assert stack(*arguments).code == 3
    stack.ok("resolve", "--take", "patch")
    stack.ok("rebase", "--continue")
    assert names(stack) == ["theirs-two", "four", "one", "three"]
    assert result(stack)["f"] == swap(BASE, (b"line 5\n", b"mine\n"), (b"line 20\n", b"XX\n"))


def test_into_with_ours_keeps_our_version(case: Moving, tmp_path: Path) -> None:
    stack = joined(case, tmp_path)
    arguments = ["rebase", "--upstream", "demo@1", "--onto", "demo@2", "--into", "demo/2", "--ours"]
    assert stack(*arguments).code == 3
    stack.ok("resolve", "--take", "patch")
    stack.ok("rebase", "--continue")
    assert names(stack) == ["four", "one", "two", "three"]
    assert result(stack)["f"] == swap(BASE, (b"line 5\n", b"mine\n"), (b"line 20\n", b"twenty\n"))


def test_strict_answers_1_for_a_suspect(tmp_path: Path) -> None:
    case = Moving(
        tmp_path / "m",
        {"pkg/__init__.py": b"", "pkg/ops.py": b"def gemm(): ...\n"},
        [("fast", {"pkg/fast.py": b"from pkg.ops import gemm\n"})],
        [("rename", {"pkg/ops.py": b"def matmul(): ...\n"})],
    )
    stack = case.project()
    forecast = stack("forecast", "--onto", "demo@v2", "--strict")
    assert forecast.code == 1
    assert "suspect: pkg/fast.py: line 1: imports `gemm`" in forecast.out
    assert stack("rebase", "--onto", "demo@v2", "--dry-run").code == 0
    assert stack("rebase", "--onto", "demo@v2", "--strict").code == 1
    assert names(stack) == ["fast"]


def test_a_commit_a_branch_and_a_label_name_the_target(case: Moving) -> None:
    stack = case.project()
    commit = case.commits[-1]
    for revision in (commit, commit[:10], "main", "v2"):
        data = stack("rebase", "--onto", f"demo@{revision}", "--dry-run", "--json").json["data"]
        assert data["pin"]["commit"] == commit
    stack("rebase", "--onto", "demo@main", "--label", "next")
    stack.ok("rebase", "--skip")
    assert names(stack, "demo/next") == ["two", "three"]


@pytest.mark.parametrize("arguments", [["--continue", "--skip"], ["--abort", "--onto", "demo@v2"]])
def test_steps_exclude_each_other(case: Moving, arguments: list[str]) -> None:
    assert Stack(case.folder)("rebase", *arguments).code == 2


def test_alone_it_goes_to_the_newest_release(case: Moving) -> None:
    """Of the tags that are releases, by number: not the newest commit, and no candidate."""
    for tag, revision in (("v1.10", "v2"), ("v1.9", "v1"), ("v2.0rc1", "v1"), ("nightly", "v1")):
        case.repo.git("tag", tag, revision)
    case.repo.git("tag", "-d", "v2")
    stack = case.project()
    output = stack("rebase", "--dry-run")
    assert output.code == 3
    assert "the newest release of the path source is v1.10" in output.err
    assert "demo/1 to demo/1.10" in output.err
    case.repo.git("tag", "-d", "v1.10", "v1.9")
    pinned = stack("rebase")
    assert pinned.code == 2
    assert "the newest release of the path source is v1\n" in pinned.err
    assert "line demo/1 exists" in pinned.err


def test_what_upstream_has_is_named_with_its_commit(tmp_path: Path) -> None:
    half = swap(BASE, (b"line 5\n", b"five\n"))
    case = Moving(
        tmp_path / "m",
        {"f": BASE, "g": BASE},
        [("both", {"f": swap(half, (b"line 30\n", b"thirty\n"))}), ("whole", {"g": half})],
        [("Five (#5)", {"f": half}), ("G too (#6)", {"g": half + b"end\n"})],
    )
    stack = case.project()
    rows = stack.ok("rebase", "--onto", "demo@v2", "--json").json["data"]["patches"]
    assert rows[0]["notes"] == [
        "f: hunk 1 of 2 is there already",
        f"f: hunk 1 is upstream since {case.commits[0][:12]} Five (#5)",
    ]
    assert rows[1]["outcome"] == "upstreamed"
    assert rows[1]["notes"] == [f"upstream has it since {case.commits[1][:12]} G too (#6)"]
    assert names(stack) == ["both"]
