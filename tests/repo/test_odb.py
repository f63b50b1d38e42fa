"""Trees and packs made in memory against what git makes."""

from __future__ import annotations

import os
import random

import pytest

from stack.model.objects import EMPTY_TREE, EXECUTABLE, FILE, FOLDER, SYMLINK, Entry, pack
from stack.repo.odb import ObjectStore
from tests.support.repo import RepoBuilder


class TestTrees:
    """`ObjectStore.edit` and `changed` against `git write-tree` and `git diff-tree`."""

    @pytest.mark.parametrize("seed", range(12))
    def test_random_edits(self, repo: RepoBuilder, odb: ObjectStore, seed: int) -> None:
        rng = random.Random(seed)
        tree = EMPTY_TREE
        names = [
            f"{a}{b}{c}" for a in ("", "d/", "d.x/", "d/d/") for b in "ab" for c in ("", "0", ".c")
        ]
        state: dict[bytes, Entry] = {}
        repo.git("read-tree", "--empty")
        for _ in range(8):
            changes: dict[bytes, Entry | None] = {}
            for name in rng.sample(names, 6):
                key = name.encode()
                if key in state and rng.random() < 0.4:
                    changes[key] = None
                else:
                    blob = odb.add("blob", rng.randbytes(4))
                    changes[key] = Entry(rng.choice([FILE, EXECUTABLE, SYMLINK]), blob)
            before, tree = tree, odb.edit(tree, changes)
            old = dict(state)
            for key, entry in changes.items():
                state.pop(key, None)
                if entry:
                    state[key] = entry
            odb.write()
            rows = b"".join(
                b"%06o %s\t%s\n" % (e.mode, e.oid.encode(), k) for k, e in state.items()
            )
            repo.git("read-tree", "--empty")
            repo.git("update-index", "--index-info", stdin=rows)
            assert repo.git("write-tree").decode().strip() == tree
            wanted = {
                k: (old.get(k), state.get(k))
                for k in old.keys() | state.keys()
                if old.get(k) != state.get(k)
            }
            assert odb.changed(before, tree) == wanted

    def test_file_and_folder_change_places(self, odb: ObjectStore) -> None:
        file, inside = (Entry(FILE, odb.add("blob", data)) for data in (b"1", b"2"))
        as_file = odb.edit(EMPTY_TREE, {b"x": file, b"y": file})
        as_folder = odb.edit(as_file, {b"x": None, b"x/a": inside, b"x/b/c": inside})
        assert odb.find(as_folder, b"x/b/c") == inside
        entry = odb.find(as_folder, b"x")
        assert entry is not None
        assert entry.mode == FOLDER
        assert odb.edit(as_folder, {b"x/a": None, b"x/b/c": None, b"x": file}) == as_file
        for tree, path in ((as_file, b"x/a"), (as_folder, b"x")):
            with pytest.raises((NotADirectoryError, IsADirectoryError)):
                odb.edit(tree, {path: inside})

    def test_an_emptied_tree_is_the_empty_tree(self, odb: ObjectStore) -> None:
        tree = odb.edit(EMPTY_TREE, {b"a/b/c": Entry(FILE, odb.add("blob", b"1"))})
        assert odb.edit(tree, {b"a/b/c": None}) == EMPTY_TREE


def test_one_pack_holds_every_new_object_and_git_accepts_it(
    repo: RepoBuilder, odb: ObjectStore
) -> None:
    sizes = [0, 1, 15, 16, 2047, 2048, 70000]
    objects = [("blob", os.urandom(size)) for size in sizes]
    tree = odb.edit(
        EMPTY_TREE, {b"%d" % n: Entry(FILE, odb.add(*o)) for n, o in enumerate(objects)}
    )
    repo.git("index-pack", "--strict", "--stdin", stdin=pack([*objects, odb.read(tree)]))  # type: ignore[list-item]
    assert repo.git("rev-parse", "--verify", tree).decode().strip() == tree
    listed = repo.git("ls-tree", "-l", tree).split()
    assert [int(size) for size in listed[3::5]] == sizes
    assert len(list((repo.folder / ".git/objects/pack").glob("*.pack"))) == 1
