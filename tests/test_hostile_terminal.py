"""Nothing that a project, a patch, a log or a ledger says steers a terminal, a page or a table."""

from __future__ import annotations

import base64
import csv
import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import termios
from pathlib import Path

import pytest

from stack.model.visible import visible, visible_json, visible_line
from stack.report import markdown, sheet
from tests.support.cli import Stack
from tests.support.repo import RepoBuilder
from tests.support.toy_engine import ENGINE, Toy, text

EVIL = "\x1b[31mRED\x1b]0;title\x07\x9b2J\u202eturned\u2066\u200b\x7f\rback"
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069\ufeff]")
# What we write ourselves on a terminal: colours, the line of progress, and its line ends.
OURS = re.compile(r"\x1b\[(?:[0-9;]*m|2K)|\r(?=\x1b\[2K)|\r(?=\n)")
READING = [
    ("list",), ("status",), ("show", "keep-the-heap-whole", "--stat"),
    ("show", "keep-the-heap-whole"), ("log",), ("report",), ("report", "--md"), ("report", "--csv"),
    ("report", "--html"), ("lint",), ("forecast", "--onto", "toy@begin"), ("ci", "--no-forecast"),
    ("ledger", "out"), ("ledger", "out", "--markdown"), ("ledger", "out", "--csv"),
    ("diagnose", "evil.log"), ("doctor",), ("watch", "--once"),
    ("range-diff", "toy/1.0", "toy/1.0"),
    ("build", "--dry-run"), ("upstream", "list"), ("line", "list"), ("resolve", "--list"),
    ("verify", "no such \x1b[31mRED patch"), ("import", "no\x1b[31mRED\nfile"),
    ("import", "--dry-run", "--upstream", "toy@1.0", "evil.patch"), ("-C", "no\x1b[31mRED", "list"),
]  # fmt: skip


def on_a_terminal(stack: Stack, *arguments: str) -> str:
    """What a terminal of 200 columns is sent."""
    mine, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
    env = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS")}
    child = subprocess.Popen(
        Stack.argv(*arguments), cwd=stack.folder, stdin=subprocess.DEVNULL, stdout=theirs,
        stderr=theirs, env={**env, "TERM": "xterm-256color"},
    )
    os.close(theirs)
    said = b""
    while True:
        try:
            part = os.read(mine, 65536)
        except OSError:
            break
        if not part:
            break
        said += part
    os.close(mine)
    child.wait(60)
    return said.decode("utf-8", "surrogateescape")


def harmless(said: str, told: object) -> None:
    assert "\x1b[31mRED" not in said, told
    found = STEERING.search(OURS.sub("", said))
    assert found is None, (told, found, said[max(0, found.start() - 80) : found.end() + 40])


@pytest.fixture
def evil(
    stack: Stack, upstream: RepoBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Toy:
    """A project that tries wherever it may say something."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "links"))
    monkeypatch.setenv("STACK_INSTALLER", "pip")
    toy = Toy(stack, upstream, tmp_path / "links")
    word = base64.b64encode(EVIL.encode()).decode()
    for path in toy.series.parent.glob("*.patch"):
        data = path.read_bytes()
        data = re.sub(rb"(?m)^Subject: .*$", b"Subject: =?utf-8?b?%s?=" % word.encode(), data)
        data = data.replace(b"Ann Author", b"=?utf-8?b?%s?=" % word.encode(), 1)
        data = data.replace(b"\nUpstream-Status: ", b"\nUpstream-Status: " + EVIL.encode()[:-5], 1)
        path.write_bytes(data)
    engine = text(ENGINE).replace(
        b"rate = core.run(scoring)", b"if scoring == 'sigmoid': raise ValueError(%a)" % EVIL
        + b"\nrate = core.run(scoring)",
    )
    (toy.stack.folder / "engine.py").write_bytes(engine)
    (toy.stack.folder / "evil.log").write_bytes(
        b'Traceback (most recent call last):\n  File "x", line 1, in f\nValueError: '
        + EVIL.encode() + b"\n"
    )
    name = f"src/{EVIL}.py".encode()
    quoted = b'"b/' + b"".join(b"\\%03o" % byte for byte in name) + b'"'
    (toy.stack.folder / "evil.patch").write_bytes(
        b"From: A <a@b.c>\nDate: Fri, 2 Jan 2026 03:04:05 +0000\nSubject: "
        + b"=?utf-8?b?%s?=\n\n---\n" % word.encode()
        + b"diff --git " + quoted.replace(b'"b/', b'"a/') + b" " + quoted
        + b"\nnew file mode 100644\n--- /dev/null\n+++ " + quoted + b"\n@@ -0,0 +1 @@\n+"
        + EVIL.encode().replace(b"\r", b"") + b"\n"
    )
    settings = toy.stack.folder / "stack.toml"
    said = settings.read_text().replace('unit = "tok/s"', f'unit = "{"".join(escaped(EVIL))}"')
    settings.write_text(said)
    return toy


def escaped(said: str) -> list[str]:
    """As TOML writes them in a string."""
    return [c if c.isprintable() else f"\\u{ord(c):04x}" for c in said]


@pytest.mark.timeout(600)
def test_no_verb_hands_on_what_steers(evil: Toy) -> None:
    evil.stack("verify")
    for where in ("pipe", "terminal"):
        for arguments in READING:
            if where == "terminal":
                said = on_a_terminal(evil.stack, *arguments)
            else:
                if arguments[:2] == ("show", "keep-the-heap-whole") and len(arguments) == 2:
                    continue  # the diff is data there, byte for byte
                done = evil.stack(*arguments)
                assert done.code in (0, 1, 2), done
                said = done.out + done.err
                document = evil.stack("--json", *arguments)
                harmless(document.out, ("--json", *arguments))
                assert document.json["stack_result"] == 1
            assert "a bug in stack" not in said, said
            assert said.strip() or arguments[0] == "resolve", arguments
            harmless(said, (where, *arguments))
    # It was there to be handed on: the pages spell it out.
    assert "\\x1b[31mRED" in evil.stack("show", "keep-the-heap-whole", "--stat").out
    assert "\\u202e" in evil.stack("report").out


def test_what_is_asked_before_it_is_trusted_cannot_hide_a_command(evil: Toy) -> None:
    """The list of what would run, where a command tries to go unseen."""
    settings = evil.stack.folder / "stack.toml"
    hidden = "".join(escaped("\x1b[2K\x1b[1A\u202erm -rf ~\n\rnothing"))
    settings.write_text(settings.read_text().replace('"softmax"', f'"{hidden}"'))
    refused = evil.stack("build", env={"STACK_TRUST": "0"})
    assert refused.code == 2
    harmless(refused.err, "trust")
    assert "rm -rf" in refused.err


@pytest.mark.parametrize("say", [visible, visible_line])
def test_words_of_all_scripts_stay(say: object) -> None:
    for word in ("gr\u00fc\u00dfe", "\u65e5\u672c", "\u0627\u0644", "\U0001f468\u200d\U0001f469"):
        assert say(word) == word  # type: ignore[operator]


def test_what_steers_is_named() -> None:
    assert visible("a\x1b[2J\u202eb\n\tc\r") == "a\\x1b[2J\\u202eb\n\tc\\r"
    assert visible_line("a\nb") == "a\\nb"
    assert visible(os.fsdecode(b"l\xe4t")) == "l\\xe4t"
    assert visible_json('"\u202e\x7f\U000e0041"') == '"\\u202e\\u007f\\udb40\\udc41"'


def test_no_cell_of_a_sheet_is_a_formula() -> None:
    cells = ["=HYPERLINK(1)", "+cmd", "-cmd|x", "@SUM(1)", "-1.5", "+2", "-", "plain", "a=b"]
    (row,) = csv.reader(io.StringIO(sheet.table(["n"] * 9, [cells]).split("\n", 1)[1]))
    assert row == [
        "'=HYPERLINK(1)", "'+cmd", "'-cmd|x", "'@SUM(1)", "-1.5", "+2", "-", "plain", "a=b",
    ]


def test_no_cell_of_markdown_is_more_than_text() -> None:
    evil = "a|b\n<img src=x> [l](http://e) &lt; `c` *b* _i_"
    row = markdown.table(["n"], [[evil]]).splitlines()[2]
    assert row == "| a\\|b \\<img src=x> [l]\\(http://e) &amp;lt; \\`c\\` \\*b\\* \\_i\\_ |"


def test_a_page_has_no_element_of_a_patch(evil: Toy) -> None:
    evil.stack("verify")
    path = evil.series.parent / "time-the-steps.patch"
    subject = b"Subject: <script>alert(1)</script>\"'><b>"
    path.write_bytes(re.sub(rb"(?m)^Subject: .*$", subject, path.read_bytes()))
    page = evil.stack.ok("report", "--html").out
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    harmless(page, "page")


def test_completion_offers_no_name_that_steers(evil: Toy) -> None:
    folder = evil.stack.folder / f"patches/toy/{EVIL}"
    folder.mkdir()
    (folder / "series.toml").write_text("schema = 1\n")
    said = evil.stack("", env={
        "_STACK_COMPLETE": "bash_complete", "COMP_WORDS": "stack show ", "COMP_CWORD": "2",
    })
    assert "time-the-steps" in said.out
    harmless(said.out, "completion")
    for arguments in (["list"], ["status"]):
        done = evil.stack(*arguments)
        harmless(done.out + done.err, arguments)


def test_a_locale_without_our_letters_is_no_bug(evil: Toy, tmp_path: Path) -> None:
    done = evil.stack("report", env={"PYTHONIOENCODING": "ascii"})
    assert "a bug in stack" not in done.err
