"""An edited checkout and an edited installed package are imported as they stand."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import numbered
from tests.flows.test_build import FILES, Tiny
from tests.flows.test_capture import edit, names
from tests.flows.test_install_into import make_venv, site
from tests.support.piles import Pile

APP = numbered(40)


def test_a_checkout_with_commits_edits_and_new_files(tmp_path: Path) -> None:
    pile = Pile(tmp_path, {"pkg/app.py": APP, "pkg/lib.py": APP, ".gitignore": b"*.log\n"})
    mine = pile.upstream
    mine.git("checkout", "-q", "-b", "mine")
    mine.commit("committed", {"pkg/app.py": APP.replace(b"line 5\n", b"LINE 5\n")})
    mine.write({"pkg/lib.py": APP.replace(b"line 9\n", b"LINE 9\n")})
    mine.write({"pkg/new.py": b"x = 1\n", "noise.log": b"no\n"})
    before = mine.git("status", "--porcelain=v2", "--ignored")
    done = pile.stack.ok("import", mine.folder, "--json").json["data"]
    assert [row["result"] for row in done["inputs"]] == ["placed"]
    assert mine.git("status", "--porcelain=v2", "--ignored") == before
    want = pile.tree()
    assert pile.applied() == want
    again = pile.stack.ok("import", mine.folder, "--json").json["data"]
    assert again["added"] == 0
    mine.write({"pkg/lib.py": APP.replace(b"line 9\n", b"LINE 9\n").replace(b"line 30\n", b"X\n")})
    more = pile.stack.ok("import", mine.folder, "--json").json["data"]
    assert more["added"] == 1
    assert pile.applied() == pile.tree()
    near = pile.stack.ok("import", Path("..", "upstream"), "--dry-run", "--json").json["data"]
    assert [row["file"] for row in near["inputs"]] == ["../upstream"]
    pile.upstream.git("reset", "-q", "--hard", "v1.0")
    assert "nothing was edited there" in pile.stack("import", mine.folder).err


def test_a_branch_of_a_repository_that_is_named_from_here(tmp_path: Path) -> None:
    pile = Pile(tmp_path, {"pkg/app.py": APP})
    pile.upstream.git("checkout", "-q", "-b", "mine")
    pile.upstream.commit("committed", {"pkg/app.py": APP.replace(b"line 5\n", b"LINE 5\n")})
    pile.stack.ok("import", "--git", Path("..", "upstream"), "v1.0..mine")
    assert pile.applied() == pile.tree()


def test_an_edited_site_packages(tiny: Tiny, tmp_path: Path) -> None:
    venv = make_venv(tmp_path / "mine", FILES)
    edit(venv, "flake/core.py", b"LINE_20 = 20", b"LINE_20 = 'mine'")
    (site(venv) / "flake/sub/added.py").write_bytes(b"ADDED = 1\n")
    done = tiny.stack.ok("import", venv, "--upstream", "demo", "--json").json["data"]
    assert [row["result"] for row in done["inputs"]] == ["placed"]
    assert names(tiny) == ["change-a-line", "add-and-remove", "mine"]
    tree = Path(tiny.stack.ok("apply", "--json").json["data"]["workspace"])
    assert b"LINE_20 = 'mine'" in (tree / "src/flake/core.py").read_bytes()
    assert (tree / "src/flake/sub/added.py").read_bytes() == b"ADDED = 1\n"
