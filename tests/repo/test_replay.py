"""Replay against git: what `git am` makes of patch files, the engine makes, or it refuses."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from stack.model.diff.parse import parse_diff
from stack.model.line.outcome import Outcome, Step
from stack.model.mail.mail import parse_mail
from stack.model.objects import Entry
from stack.repo.client import Git
from stack.repo.format import format_commits
from stack.repo.odb import ObjectStore
from stack.repo.replay import Item, replay
from tests.conftest import numbered
from tests.support.repo import RepoBuilder


def items(mails: list[bytes]) -> list[Item]:
    found = []
    for number, raw in enumerate(mails, 1):
        mail = parse_mail(raw, f"{number}.patch")
        files = parse_diff(mail.diff, f"{number}.patch", first=mail.diff_line)
        found.append(Item(name=str(number), mail=mail, files=files))
    return found


def exported(repo: RepoBuilder, base: str = "base", **options: int) -> list[bytes]:
    return format_commits(Git(repo.folder / ".git"), base, "HEAD", **options)


def replayed(
    odb: ObjectStore, repo: RepoBuilder, mails: list[bytes], on: str = "base"
) -> list[Step]:
    return replay(odb, repo.git("rev-parse", f"{on}^{{commit}}").decode().strip(), items(mails))


def link(repo: RepoBuilder, name: str, target: str) -> None:
    path = repo.folder / name
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def edit_mode(repo: RepoBuilder) -> None:
    (repo.folder / "run.sh").chmod(0o755)


def edit_rename_mode_edit(repo: RepoBuilder) -> None:
    repo.git("mv", "a.txt", "moved.txt")
    (repo.folder / "moved.txt").chmod(0o755)
    (repo.folder / "moved.txt").write_bytes(numbered(30).replace(b"line 4\n", b"four\n"))


def edit_swap(repo: RepoBuilder) -> None:
    for old, new in (("a.txt", "t"), ("dir/c.txt", "a.txt"), ("t", "dir/c.txt")):
        (repo.folder / old).rename(repo.folder / new)


def edit_file_to_link(repo: RepoBuilder) -> None:
    link(repo, "b.txt", "a.txt")


def edit_file_to_folder(repo: RepoBuilder) -> None:
    (repo.folder / "b.txt").unlink()
    repo.write({"b.txt/inside": b"x\n", "b.txt/deep/er": b"y\n"})


def edit_folder_to_file(repo: RepoBuilder) -> None:
    repo.write({"dir/c.txt": None, "dir/d/e": None})
    (repo.folder / "dir/d").rmdir()
    (repo.folder / "dir").rmdir()
    repo.write({"dir": b"now a file\n"})


EDITS = {
    "modify": {"a.txt": numbered(30).replace(b"line 9\n", b"nine\n")},
    "several hunks": {
        "a.txt": numbered(30).replace(b"line 2\n", b"").replace(b"line 28\n", b"l\nm\n")
    },
    "add": {"new/deep/file": b"1\n2\n"},
    "add empty": {"new-empty": b""},
    "delete": {"dir/c.txt": None},
    "delete empty": {"empty": None},
    "delete a folder's last file": {"dir/d/e": None},
    "fill empty": {"empty": b"x\n"},
    "empty it": {"b.txt": b""},
    "binary": {"bin": bytes(reversed(range(256))) * 3},
    "new binary": {"bin2": b"\0\1\2" * 100},
    "delete binary": {"bin": None},
    "no newline": {"no-eol": b"x\nz", "b.txt": b"b"},
    "add newline": {"no-eol": b"x\ny\n"},
    "carriage returns": {"crlf": b"1\r\n2\n3\r\n4\r\n"},
    "odd name": {"gr\u00fcn \t\u00e4": b"2\n", 'q"uo\\te': b"q\n"},
    "block 3 of 6": {"blocks": b"a\nb\nc\nend\n" * 2 + b"a\nB\nc\nend\n" + b"a\nb\nc\nend\n" * 3},
    "diff in a file": {"d.patch": b"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n-- \n2.39\n"},
    "mode": edit_mode,
    "rename, mode and edit": edit_rename_mode_edit,
    "swap": edit_swap,
    "file to link": edit_file_to_link,
    "file to folder": edit_file_to_folder,
    "folder to file": edit_folder_to_file,
    "new link": lambda repo: link(repo, "l", "dir/c.txt"),
}


@pytest.mark.parametrize("name", EDITS)
def test_every_kind_of_change_gives_gits_tree_and_back(
    repo: RepoBuilder, odb: ObjectStore, name: str
) -> None:
    edit = EDITS[name]
    if callable(edit):
        edit(repo)
    else:
        repo.write(edit)
    repo.commit(f"[Core] {name}\n\nText.\n", {})
    wanted = repo.tree()
    mails = exported(repo)
    (step,) = replayed(odb, repo, mails)
    assert (step.outcome, step.tree) == (Outcome.CLEAN, wanted), step
    odb.write()
    assert repo.git("fsck", "--strict", "--no-dangling").strip() == b""
    assert repo.git("cat-file", "-t", str(step.commit)).strip() == b"commit"
    repo.git("revert", "--no-edit", "HEAD")
    (back,) = exported(repo, "HEAD~1")
    both = replayed(odb, repo, [*mails, back])
    assert both[1].tree == repo.tree("base"), both


def test_a_copy_is_taken_from_the_file_before_the_patch(
    repo: RepoBuilder, odb: ObjectStore
) -> None:
    changed = numbered(30).replace(b"line 1\n", b"one\n")
    repo.commit("copy", {"a.txt": changed, "copy.txt": numbered(30)})
    diff = repo.git("diff", "--full-index", "--find-copies-harder", "base", "HEAD")
    assert b"copy from a.txt" in diff
    mail = exported(repo)[0]
    (step,) = replayed(odb, repo, [mail[: mail.index(b"diff --git")] + diff])
    assert step.tree == repo.tree()


def test_two_renames_swap_two_files(repo: RepoBuilder, odb: ObjectStore) -> None:
    left, right = (b"".join(b"%s %d\n" % (w, n) for n in range(300)) for w in (b"ah", b"zoo"))
    repo.commit("more", {"p": left, "q": right})
    repo.git("tag", "--force", "base")
    repo.commit("swap", {"p": right, "q": left})
    diff = repo.git("diff", "--full-index", "-B", "-M", "base", "HEAD")
    assert diff.count(b"rename from") == 2
    mail = exported(repo)[0]
    (step,) = replayed(odb, repo, [mail[: mail.index(b"diff --git")] + diff])
    assert step.tree == repo.tree()


def test_two_parts_for_one_file_are_applied_one_after_the_other(
    repo: RepoBuilder, odb: ObjectStore
) -> None:
    first = numbered(30).replace(b"line 5\n", b"five\n")
    repo.commit("one", {"a.txt": first})
    repo.commit("two", {"a.txt": first.replace(b"line 20\n", b"twenty\n")})
    one, two = exported(repo)
    (step,) = replayed(odb, repo, [one + two[two.index(b"diff --git") :]])
    assert step.tree == repo.tree()


def test_ids_do_not_depend_on_time_or_place(
    repo: RepoBuilder, odb: ObjectStore, tmp_path: Path
) -> None:
    repo.commit("one", {"b.txt": b"B\n"})
    repo.commit("two", {"b.txt": b"C\n"})
    mails = exported(repo)
    first = replayed(odb, repo, mails)
    other = RepoBuilder(tmp_path / "other")
    other.git("fetch", "--quiet", repo.folder, "base:refs/heads/base")
    with ObjectStore(Git(other.folder / ".git")) as second:
        assert replayed(second, other, mails) == first
    made = odb.commit(str(first[1].commit))
    assert made.committer == made.author
    assert made.parents == (first[0].commit,)


def test_git_am_gives_the_same_trees(repo: RepoBuilder, odb: ObjectStore, tmp_path: Path) -> None:
    rng = random.Random(7)
    content = {f"src/m{n}/f{k}.py": numbered(40) for n in range(3) for k in range(3)}
    repo.commit("more", content)
    repo.git("tag", "--force", "base")
    for number in range(25):
        name = rng.choice(sorted(content))
        lines = content[name].splitlines(keepends=True)
        at = rng.randrange(len(lines) + 1)
        lines[at : at + rng.randrange(3)] = [b"edit %d\n" % number] * rng.randrange(1, 4)
        content[name] = b"".join(lines)
        if rng.random() < 0.2:
            moved = f"src/m{rng.randrange(3)}/moved{number}.py"
            content[moved] = content.pop(name)
            repo.git("mv", name, moved)
            name = moved
        repo.commit(f"[Part {number % 3}] edit {number}", {name: content[name]})
    mails = exported(repo)
    steps = replayed(odb, repo, mails)
    trees = [repo.tree(f"HEAD~{24 - number}") for number in range(25)]
    assert [step.tree for step in steps] == trees
    (tmp_path / "all.mbox").write_bytes(b"".join(mails))
    repo.git("checkout", "--quiet", "base")
    repo.git("am", "--quiet", "--keep-non-patch", "--keep-cr", tmp_path / "all.mbox")
    assert repo.tree() == trees[-1]


class TestOutcomes:
    """What a patch is called that does not simply apply."""

    def test_upstreamed_and_empty(self, repo: RepoBuilder, odb: ObjectStore) -> None:
        repo.commit("one", {"a.txt": numbered(30).replace(b"line 9\n", b"nine\n"), "n": b"n\n"})
        mails = exported(repo)
        steps = replayed(odb, repo, mails, on="HEAD")
        assert [step.outcome for step in steps] == [Outcome.UPSTREAMED]
        (step,) = replayed(odb, repo, [mails[0].replace(b"+nine", b"+line 9")], on="base")
        assert step.outcome is Outcome.CLEAN  # the new file is left of it
        repo.git("checkout", "--quiet", "base")
        (repo.folder / "run.sh").chmod(0o755)
        repo.commit("mode", {})
        (step,) = replayed(odb, repo, exported(repo), on="HEAD")
        assert (step.outcome, step.tree) == (Outcome.EMPTY, repo.tree())

    def test_half_upstreamed_is_a_conflict(self, repo: RepoBuilder, odb: ObjectStore) -> None:
        half = numbered(30).replace(b"line 3\n", b"three\n")
        repo.commit("both", {"a.txt": half.replace(b"line 25\n", b"twenty-five\n")})
        mails = exported(repo)
        repo.git("checkout", "--quiet", "base")
        repo.commit("half", {"a.txt": half})
        (step,) = replayed(odb, repo, mails, on="HEAD")
        assert step.outcome is Outcome.CONFLICT
        assert [clash.hunk for clash in step.clashes] == [1]

    def test_a_conflict_stops_and_names_everything(
        self, repo: RepoBuilder, odb: ObjectStore
    ) -> None:
        repo.commit("one", {"a.txt": numbered(30).replace(b"line 9\n", b"nine\n"), "b.txt": None})
        repo.commit("two", {"empty": b"x\n"})
        mails = exported(repo)
        repo.git("checkout", "--quiet", "base")
        repo.commit(
            "other", {"a.txt": numbered(30).replace(b"line 8\n", b"eight\n"), "b.txt": b"z\n"}
        )
        first, second = replayed(odb, repo, mails, on="HEAD")
        assert (first.outcome, second.outcome) == (Outcome.CONFLICT, Outcome.NOT_TRIED)
        text, gone = first.clashes
        assert (text.path, text.hunk, text.line) == ("a.txt", 1, 8)
        assert (text.expected[0], text.found[0]) == ("line 8", "eight")
        assert gone.path == "b.txt"

    @pytest.mark.parametrize(
        ("on", "why"),
        [
            ({"new": b"other\n"}, "the patch makes this file, but it is there already"),
            ({"new/x": b"other\n"}, "the patch makes this file, but a folder is there already"),
            ({"dir2": b"a file\n"}, "dir2 is not a folder"),
        ],
    )
    def test_a_new_file_finds_its_place_taken(
        self, repo: RepoBuilder, odb: ObjectStore, on: dict[str, bytes], why: str
    ) -> None:
        repo.commit("add", {"new": b"new\n", "dir2/x": b"x\n"})
        mails = exported(repo)
        repo.git("checkout", "--quiet", "base")
        repo.commit("taken", on)
        (step,) = replayed(odb, repo, mails, on="HEAD")
        assert step.outcome is Outcome.CONFLICT
        assert why in {clash.why for clash in step.clashes}

    def test_nothing_is_written_through_a_link(self, repo: RepoBuilder, odb: ObjectStore) -> None:
        link(repo, "out", "/tmp")
        repo.commit("link", {})
        mail = exported(repo)[0]
        through = (
            b"diff --git a/out/x b/out/x\nnew file mode 100644\nindex 0000000..587be6b\n"
            b"--- /dev/null\n+++ b/out/x\n@@ -0,0 +1 @@\n+x\n"
        )
        (step,) = replayed(odb, repo, [mail + through])
        assert step.outcome is Outcome.CONFLICT
        (step,) = replayed(odb, repo, [mail[: mail.index(b"diff --git")] + through], on="HEAD")
        assert step.outcome is Outcome.CONFLICT
        assert "not a folder" in step.clashes[0].why

    def test_a_rename_onto_a_file_that_stays_is_refused(
        self, repo: RepoBuilder, odb: ObjectStore
    ) -> None:
        repo.git("mv", "a.txt", "target")
        repo.commit("rename", {})
        mails = exported(repo)
        repo.git("checkout", "--quiet", "base")
        repo.commit("taken", {"target": b"mine\n"})
        (step,) = replayed(odb, repo, mails, on="HEAD")
        assert "target is there already" in step.clashes[0].why


def test_a_submodule_in_the_way_is_a_conflict(repo: RepoBuilder, odb: ObjectStore) -> None:
    repo.commit("edit", {"b.txt": b"B\n"})
    mails = exported(repo)
    tree = odb.edit(repo.tree("base"), {b"b.txt": Entry(0o160000, repo.head())})
    base = odb.commit(repo.head())
    import msgspec

    oid = odb.add("commit", msgspec.structs.replace(base, tree=tree).render())
    (step,) = replay(odb, oid, items(mails))
    assert step.outcome is Outcome.CONFLICT
