"""Patches of every kind, made at random: in, applied, out and carried, byte for byte as in git.

`git am` and `git format-patch` are the oracle. `make test` tries a few dozen patches, `make soak`
(STACK_TEST_ROUND_TRIPS) thousands, each run with a seed of its own that a failure names.
"""

from __future__ import annotations

import base64
import os
import quopri
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.conftest import numbered
from tests.support.cli import Stack
from tests.support.faults import Ran, Server
from tests.support.repo import RepoBuilder

COUNT = int(os.environ.get("STACK_TEST_ROUND_TRIPS", "25"))
CANONICAL = ("--no-stat", "--no-signature", "--zero-commit", "--full-index", "--binary")
TEXT = numbered(40)
FILES: dict[str, bytes] = {
    "text.py": TEXT, "deep/er/text.c": TEXT.replace(b"line", b"row"), "bare": b"one\ntwo\nthree",
    "crlf.txt": TEXT.replace(b"\n", b"\r\n"), "empty": b"", "blob": bytes(range(256)) * 3,
    "latin": "gr\xfc\xdfe\n".encode("latin-1") * 9, "sp ace": TEXT, "run.sh": b"#!/bin/sh\n:\n",
    "gr\udcfc\udcdfe": TEXT, "\u00fcmlaut": TEXT, "same": b"a\nb\nc\n" * 12, "one": b"x\n",
}  # fmt: skip
# Lines that some tool somewhere takes for something else.
ODD = [
    b"From here on", b">From there", b"---", b"-- ", b"--", b"+++ b/x", b"--- a/x", b"", b"   ",
    b"\ttab \t", b"diff --git a/x b/x", b"@@ -1,2 +3,4 @@ f", b"Index: x", b"\\ No newline",
    b"Subject: [PATCH] no", b"\x0c", b"\xff\xfe bytes \x80", "gr\u00fc \u2028".encode(), b"a\rb",
    b"cr\r", b"index 1234567..89abcde 100644", b"GIT binary patch", b"x" * 1200, b"=20=\\=3D",
]  # fmt: skip
NAMES = [
    b"new", b"new dir/new file", b"t\tab", b'quo"te', b"back\\slash", "n\u00f6rmal".encode(),
    b"l\xe4t\xefn",
    b"a/b/c/d", b"-dash", b"$dollar `tick`", b" lead", b"trail ", b"x.patch", b"glob*[a]?",
]  # fmt: skip
line = st.one_of(st.sampled_from(ODD), st.binary(max_size=12).map(lambda b: b.replace(b"\n", b"")))
text = st.lists(line, max_size=8).map(b"\n".join)
content = st.one_of(
    text, text.map(lambda t: t + b"\n"), st.just(b""), st.binary(min_size=1, max_size=300),
    text.map(lambda t: t.replace(b"\n", b"\r\n") + b"\r\n"),
)  # fmt: skip


class Change(msgspec.Struct, frozen=True):
    """What is done to one file: edit, create, delete, rename, copy, mode, link, retype."""

    kind: str
    path: bytes
    other: bytes = b""
    at: int = 0
    data: bytes = b""


class Made(msgspec.Struct, frozen=True):
    """A commit to be made, and how its mail is sent."""

    changes: tuple[Change, ...]
    message: str
    author: str
    transfer: str
    renames: bool


@st.composite
def change_sets(draw: st.DrawFn) -> tuple[Change, ...]:
    """Changes of distinct files."""
    old = draw(st.lists(st.sampled_from(sorted(FILES)), max_size=4, unique=True))
    new = draw(st.lists(st.sampled_from(NAMES), min_size=0 if old else 1, max_size=3, unique=True))
    free, found = list(new), []
    for name in old:
        path = os.fsencode(name)
        kinds = ["edit", "edit", "delete", "mode", "retype", *(["rename", "copy"] if free else [])]
        kind = draw(st.sampled_from(kinds))
        other = free.pop() if kind in ("rename", "copy") else b""
        found.append(Change(kind, path, other, draw(st.integers(0, 45)), draw(text)))
    found += [
        Change(draw(st.sampled_from(["create", "create", "link"])), name, data=draw(content))
        for name in free
    ]
    return tuple(found)


LETTERS = "abcXYZ 0.,:;-_'\"()<>\u00fc\u00df\u65e5\u672c\U0001f600"
word = st.text(st.sampled_from(LETTERS), min_size=1, max_size=30)
row = st.one_of(word, st.sampled_from([
    "From the start", ">From it", "  indented", "\ttab", "Fixes: #1", "Signed-off-by: A <a@b.c>",
    "x" * 200, "-- ", "* item", "> quoted", "", "=3D=20", ".", "Subject: again",
]))  # fmt: skip
subjects = st.builds(
    lambda tags, words: " ".join(f"{tags}{words}".split()) or "x",
    st.sampled_from(["", "[XPU] ", "[Bugfix][Core] ", "Re: ", "RFC: "]),
    st.lists(word, min_size=1, max_size=6).map(" ".join),
)  # fmt: skip
messages = st.builds(
    lambda subject, more, body: "\n".join(part for part in (subject, more) if part)
    + ("\n\n" + "\n".join(body) if body else "") + "\n",
    subjects, st.one_of(st.just(""), subjects), st.lists(row, max_size=6),
)  # fmt: skip
commits = st.builds(
    Made, change_sets(), messages,
    st.sampled_from(["Ann", "\u00c4nn \u00dc\u00df", 'Dr. A, "B"', "\u65e5\u672c", "a.b (c)"]),
    st.sampled_from(["plain", "plain", "quoted-printable", "base64", "8bit"]), st.booleans(),
)  # fmt: skip


class World:
    """The upstream with two releases, and a project with an empty line of the first."""

    def __init__(self, root: Path, server: Server) -> None:
        self.root, self.server = root, server
        self.upstream = RepoBuilder(root / "upstream")
        for key, value in (
            ("user.name", "Carl"), ("user.email", "carl@example.com"), ("core.quotePath", "false"),
        ):
            self.upstream.git("config", key, value)
        self.upstream.commit("begin", dict(FILES))
        self.upstream.git("tag", "v1.0")
        self.upstream.commit("go on", {"same": FILES["same"] + b"d\n", "fresh": b"new\n"})
        self.upstream.git("tag", "v1.1")
        self.template = root / "template"
        self.template.mkdir()
        stack = Stack(self.template)
        stack.ok("init")
        stack.ok("upstream", "add", "demo", str(self.upstream.folder))
        stack.ok("line", "add", "demo@v1.0")
        self.tried = 0

    def git(self, *arguments: str | Path, stdin: bytes = b"", check: bool = True) -> bytes:
        return self.upstream.git(*arguments, stdin=stdin, check=check)

    def at(self, revision: str) -> None:
        self.git("checkout", "--quiet", "--force", "--detach", revision)
        self.git("clean", "--quiet", "-fdx")

    def commit(self, made: Made) -> str | None:
        """The commit in the upstream's work tree; None where nothing changed."""
        for change in made.changes:
            do(self.upstream.folder, change)
        self.git("add", "--all")
        if not self.git("status", "--porcelain"):
            return None
        self.git(
            "commit", "--quiet", "--cleanup=whitespace", "--file=-",
            f"--author={made.author.replace('<', '')} <ann@example.com>",
            stdin=made.message.encode(),
        )
        return self.upstream.head()

    def mail(self, commit: str, made: Made) -> bytes:
        """The commit as a mail, in the transfer encoding that was drawn."""
        moves = ["-M", "-C", "--find-copies-harder"] if made.renames else ["--no-renames"]
        data = self.git(
            "format-patch", "--stdout", "--keep-subject", *CANONICAL, *moves, "-1", commit
        )
        head, _, body = data.partition(b"\n\n")
        if made.transfer in ("plain", "8bit"):
            return data
        rows = [r for r in head.split(b"\n") if not r.lower().startswith((b"mime-", b"content-"))]
        if made.transfer == "base64":
            body = base64.encodebytes(body)
        else:
            body = quopri.encodestring(body)
        rows += [
            b"MIME-Version: 1.0", b"Content-Type: text/plain; charset=UTF-8",
            b"Content-Transfer-Encoding: " + made.transfer.encode(),
        ]
        return b"\n".join(rows) + b"\n\n" + body

    def am(self, base: str, mail: Path, *options: str) -> str | None:
        """What `git am` makes of a mail on a base; None where it takes no such mail."""
        self.at(base)
        done = subprocess.run(
            ["git", "am", "--quiet", "--keep-cr", "--keep-non-patch", *options, mail],
            cwd=self.upstream.folder, capture_output=True, check=False,
        )
        if done.returncode == 0:
            return self.upstream.head()
        self.git("am", "--abort", check=False)
        return None

    def about(self, commit: str, folder: Path | None = None) -> list[str]:
        """Author, date, subject and tree of a commit."""
        done = subprocess.run(
            ["git", "log", "-1", "--format=%an%n%ae%n%at%n%s%n%T", commit],
            cwd=folder or self.upstream.folder, capture_output=True, check=True,
        )
        return done.stdout.decode("utf-8", "surrogateescape").split("\n")[:5]


def do(folder: Path, change: Change) -> None:
    """One change in a work tree."""
    path, other = (folder / os.fsdecode(name) for name in (change.path, change.other))
    if change.kind in ("rename", "copy"):
        other.parent.mkdir(parents=True, exist_ok=True)
        (os.rename if change.kind == "rename" else shutil.copy)(path, other)
        path = other
    if change.kind in ("edit", "rename", "copy"):
        lines = path.read_bytes().split(b"\n")
        at = change.at % (len(lines) + 1)
        lines[at : at + 1] = change.data.split(b"\n") if change.data else []
        path.write_bytes(b"\n".join(lines))
    elif change.kind == "mode":
        path.chmod(path.stat().st_mode ^ 0o111)
    elif change.kind == "delete":
        path.unlink()
    else:  # a new file, or a link, which may take the place of one
        if change.kind == "retype":
            path.unlink()
        path.parent.mkdir(parents=True, exist_ok=True)
        if change.kind == "create":
            path.write_bytes(change.data)
        else:
            target = change.data.replace(b"\0", b"").strip(b"/")[:60] or b"text.py"
            path.symlink_to(os.fsdecode(target))


@pytest.fixture
def world(tmp_path: Path, server: Server) -> World:
    return World(tmp_path, server)


def diff_of(mail: bytes) -> bytes:
    """The diff of a canonical mail."""
    at = mail.find(b"\ndiff --git ")
    return mail[at + 1 :] if at >= 0 else b""


@pytest.mark.timeout(14400)
def test_every_patch_comes_through(world: World) -> None:
    """In one test, since the upstream and the warm process are worth keeping."""

    @settings(
        max_examples=COUNT, deadline=None, database=None, derandomize=COUNT <= 25,
        suppress_health_check=list(HealthCheck), phases=(Phase.explicit, Phase.generate),
        print_blob=True,
    )  # fmt: skip
    @given(commits)
    def check(made: Made) -> None:
        through(world, made)

    check()
    print(f"{world.tried} patches went in, on and out again")


def through(world: World, made: Made) -> None:
    world.at("v1.0")
    commit = world.commit(made)
    if commit is None:
        return
    data = world.mail(commit, made)
    mail = world.root / "one.patch"
    mail.write_bytes(data)
    oracle = world.am("v1.0", mail)
    if oracle is None:
        return  # a mail that git itself does not take is another test's matter
    shutil.rmtree(world.root / "project", ignore_errors=True)
    shutil.copytree(world.template, world.root / "project", symlinks=True)
    project = world.root / "project"

    def run(*arguments: str | Path) -> Ran:
        done = world.server.run(project, *arguments)
        assert done.code == 0, (arguments, done, data)
        return done

    taken = world.server.run(project, "import", "--upstream", "demo@1.0", mail)
    if taken.code == 2 and f"{mail}: the message" in taken.err:
        return  # git itself would not give these words back from a mail that it wrote
    assert taken.code == 0, (taken, data)
    run("apply")
    tree = project / ".stack/workspaces/demo/1.0/tree"
    assert world.about("HEAD", tree) == world.about(oracle), data
    (patch,) = (project / "patches/demo/1.0").glob("*.patch")
    before = patch.read_bytes()
    run("export")
    assert patch.read_bytes() == before, "export changed what it had to keep"
    # Git's own canonical form of what stands in the workspace is what the file holds.
    (world.root / "out.patch").write_bytes(before)
    back = world.am("v1.0", world.root / "out.patch")
    assert world.about(str(back)) == world.about(oracle), before
    # Carried to the next release: as git itself would carry it.
    world.at("v1.1")
    world.git("cherry-pick", "--allow-empty", oracle, check=False)
    if world.git("status", "--porcelain"):  # what git cannot merge is a question here too
        world.git("cherry-pick", "--abort")
        asked = world.server.run(project, "rebase", "--onto", "demo@v1.1")
        assert asked.code == 3, (asked, before)
        return
    run("rebase", "--onto", "demo@v1.1")
    run("apply", "--line", "demo/1.1")
    carried = project / ".stack/workspaces/demo/1.1/tree"
    assert world.about("HEAD", carried) == world.about("HEAD"), before
    (moved,) = (project / "patches/demo/1.1").glob("*.patch")
    (world.root / "moved.patch").write_bytes(moved.read_bytes())
    picked = world.upstream.head()
    again = world.am("v1.1", world.root / "moved.patch")
    assert world.about(str(again)) == world.about(picked), moved.read_bytes()
    world.tried += 1
