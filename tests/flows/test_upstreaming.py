"""A patch on its way home: the mail for upstream, its recorded status, and upstream's news."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import numbered
from tests.support.cli import Stack
from tests.support.project import Demo
from tests.support.repo import RepoBuilder


@pytest.fixture
def demo(stack: Stack, tmp_path: Path) -> Demo:
    """Three patches; `third` builds on `edit-0`; upstream went on and released v1.1."""
    made = Demo(stack, tmp_path)
    made.patches(2)
    seven = numbered(20).replace(b"line 7\n", b"changed 0\n")
    made.upstream.commit("begin of third", {"src/f0.py": seven})
    third = seven.replace(b"changed 0\n", b"changed 0\nthird\n")
    body = "[Core] Third\n\nWhy: the reason,\n in two lines\nCo-authored-by: B <b@example.com>\n"
    made.upstream.commit(body, {"src/f0.py": third})
    (mail,) = made.upstream.patches("HEAD~1", tmp_path / "third")
    made.upstream.git("reset", "--quiet", "--hard", "v1.0")
    stack.ok("import", mail)
    made.upstream.commit("Go on", {"src/f1.py": b"new first line\n" + numbered(20)})
    made.upstream.commit("Further (#7)", {"src/f1.py": b"new first lines\n" + numbered(20)})
    made.upstream.git("tag", "v1.1")
    made.upstream.commit("Beside", {"src/other.py": b"1\n"})
    return made


def on_main(demo: Demo, folder: Path, mail: bytes) -> RepoBuilder:
    there = RepoBuilder(folder)
    there.git("pull", "--quiet", demo.upstream.folder, "main")
    there.git("am", "--quiet", "--keep-non-patch", stdin=mail)
    return there


def test_the_mail_stands_alone_on_the_newest_revision_without_our_trailers(
    demo: Demo, tmp_path: Path
) -> None:
    output = demo.stack.ok("show", "--for-upstream", "edit-1")
    there = on_main(demo, tmp_path / "there", output.out.encode())
    message = there.git("log", "-1", "--format=%B").decode()
    assert message.strip() == (
        "[Core] Edit 1\n\nText.\n\nSigned-off-by: Ann Author <ann@example.com>"
    )
    text = (there.folder / "src/f1.py").read_bytes()
    assert text.startswith(b"new first lines\n")
    assert b"changed 1\n" in text
    assert "edit-1 stands on main (" in output.err
    assert "alone" in output.err
    assert "edit-1" in demo.names()


def test_what_it_needs_is_named(demo: Demo) -> None:
    data = demo.stack.ok("show", "--for-upstream", "third", "--json").json["data"]
    assert data["needs"] == ["edit-0"]
    assert "both sides changed 1 place" in data["reasons"][0]
    assert "\nthe reason, in two lines\n\nCo-authored-by: B <b@example.com>\n" in data["mail"]
    assert data["mail"].count("Signed-off-by: Ann Author <ann@example.com>") == 1
    for ours in ("Why:", "Patch-Id:", "Upstream-Status:"):
        assert ours not in data["mail"]


def test_where_the_newest_does_not_take_it_its_own_pin_does(demo: Demo) -> None:
    demo.upstream.commit("Clash", {"src/f1.py": numbered(20).replace(b"line 7\n", b"theirs\n")})
    data = demo.stack.ok("show", "--for-upstream", "edit-1", "--json").json["data"]
    assert (data["revision"], data["needs"]) == ("1.0", [])
    assert "main" in data["reasons"][0]
    refused = demo.stack("show", "--for-upstream", "edit-1", "--onto", "main")
    assert refused.code == 2
    assert "stands nowhere without the others" in refused.err
    tagged = demo.stack.ok("show", "--for-upstream", "edit-1", "--onto", "v1.1", "--json")
    assert tagged.json["data"]["revision"] == "v1.1"


@pytest.mark.parametrize("applied", [False, True])
def test_only_the_status_changes_and_the_workspace_with_it(demo: Demo, applied: bool) -> None:
    if applied:
        demo.apply()
        tree = demo.tree_id()
    before = demo.files()
    link = ("--status", "Submitted", "--link", "https://example.com/pull/9")
    dry = demo.stack.ok("upstreamed", "edit-0", *link, "--dry-run", "--json").json["data"]
    assert (dry["before"], dry["status"]) == ("", "Submitted [https://example.com/pull/9]")
    assert demo.files() == before
    demo.stack.ok("upstreamed", "edit-0", *link)
    after = demo.files()
    assert {name for name in after if after[name] != before[name]} == {"edit-0.patch"}
    line = b"Upstream-Status: Submitted [https://example.com/pull/9]\n"
    wanted = before["edit-0.patch"].replace(b"Patch-Id:", line + b"Patch-Id:")
    assert after["edit-0.patch"] == wanted
    if applied:
        assert demo.tree_id() == tree
        assert line.decode() in demo.git("log", "--format=%B")
        assert demo.stack.ok("export", "--check")
        assert demo.stack.ok("status", "--json").json["data"]["lines"][0]["state"] == "clean"
        assert demo.stack.ok("apply", "--json").json["data"]["changed"] is False
    demo.stack.ok("upstreamed", "edit-0", "--status", "Denied", "--link", "not wanted")
    assert b"Upstream-Status: Denied [not wanted]\n" in demo.files()["edit-0.patch"]
    assert demo.files()["edit-0.patch"].count(b"Upstream-Status") == 1
    demo.stack.ok("undo")
    demo.stack.ok("undo")
    assert demo.files() == before


def test_wrong_words_and_work_in_the_way(demo: Demo) -> None:
    demo.apply()
    for arguments, said in (
        (("edit-0", "--status", "Submitted"), "Submitted needs the address"),
        (("edit-0", "--status", "Inappropriate"), "Inappropriate needs the reason"),
        (("edit-0", "--status", "Merged"), "Invalid value"),
        (("none", "--status", "Pending"), "no patch `none`"),
    ):
        output = demo.stack("upstreamed", *arguments)
        assert output.code == 2, output
        assert said in output.err
    demo.commit("More", {"src/n": b"1\n"})
    before = demo.files()
    refused = demo.stack("upstreamed", "edit-0", "--status", "Pending")
    assert (refused.code, "stack export" in refused.err) == (2, True)
    assert demo.files() == before


def test_news_say_how_far_the_pin_is_behind_and_what_touched_our_files(demo: Demo) -> None:
    (news,) = demo.stack.ok("status", "--news", "--json").json["data"]["news"]
    assert (news["commits"], news["releases"]) == (3, ["v1.1"])
    (touched,) = news["touched"]
    assert (touched["path"], touched["commits"]) == ("src/f1.py", 2)
    assert touched["subject"] == "Further (#7)"
    text = demo.stack.ok("status", "--news").out
    assert "demo/1.0: 3 commits behind main" in text
    assert "src/f1.py  2 commits, last" in text
    assert demo.stack.ok("status", "--json").json["data"]["news"] == []


def test_without_a_repository_the_news_say_why(demo: Demo) -> None:
    toml = demo.stack.folder / "stack.toml"
    toml.write_text(toml.read_text().replace("path = ", 'path = "/none"\n# '))
    (news,) = demo.stack.ok("status", "--news", "--json").json["data"]["news"]
    assert "stack upstream fetch demo" in news["unknown"]
