"""Archives, settings, series, answers, ledgers and logs that somebody made to do harm.

Each is read by the program in a process with 1 GiB of memory and a minute of time, or refused in
one line; none is a bug of ours, and nothing is written elsewhere.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import resource
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stack.errors import SourceError
from stack.repo import sdist
from stack.repo.client import Git
from stack.repo.odb import ObjectStore
from tests.support.cli import Output, Stack
from tests.support.faults import Server
from tests.support.project import Demo
from tests.support.repo import RepoBuilder

ROUNDS = 1500 if os.environ.get("STACK_TEST_FAULTS") == "all" else 40
MEMORY, SECONDS = 1 << 30, 60


def bounded(stack: Stack, *arguments: str) -> Output:
    """The program with bounds on memory and processor time."""

    def bind() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))

    done = subprocess.run(
        stack.argv(*arguments), cwd=stack.folder, capture_output=True, check=False,
        preexec_fn=bind, timeout=900,
    )
    return Output(done.returncode, done.stdout.decode(), done.stderr.decode())


def refused(done: Output, *words: str) -> None:
    """One line that says what and where."""
    assert done.code == 2, done
    assert done.err.startswith("error: "), done
    for word in words:
        assert word in done.err, done


@pytest.fixture
def odb(upstream: RepoBuilder) -> Iterator[ObjectStore]:
    with ObjectStore(Git(upstream.folder / ".git")) as store:
        yield store


def packed(path: Path, *members: tarfile.TarInfo | tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as tar:
        for one in members:
            info, data = one if isinstance(one, tuple) else (one, b"")
            tar.addfile(info, io.BytesIO(data))
    return path


def info(name: str, size: int = 0, **fields: Any) -> tarfile.TarInfo:
    made = tarfile.TarInfo(f"demo-1.0/{name}")
    made.size = size
    for key, value in fields.items():
        setattr(made, key, value)
    return made


def test_a_file_that_unpacks_to_more_than_any_release_has(tmp_path: Path, odb: ObjectStore) -> None:
    """A header that promises a terabyte, as a file, as a name and as attributes of the next."""
    for kind in (tarfile.REGTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.XGLTYPE):
        made = info("big", 1 << 40, type=kind)
        path = tmp_path / "demo-1.0.tar.gz"
        with gzip.open(path, "wb") as file:
            file.write(made.tobuf(tarfile.GNU_FORMAT) + bytes(10_000))
        with pytest.raises(SourceError, match=r"more than|damaged"):
            sdist.read(path, odb)


def test_zeros_without_end_and_members_without_number(
    tmp_path: Path, odb: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sdist, "TOTAL", 1 << 20)
    zeros = [(info(f"z{n}", 1 << 19), bytes(1 << 19)) for n in range(4)]
    with pytest.raises(SourceError, match="more than"):
        sdist.read(packed(tmp_path / "a.tar.gz", *zeros), odb)
    monkeypatch.setattr(sdist, "MEMBERS", 100)
    with pytest.raises(SourceError, match="more than 100 members"):
        sdist.read(packed(tmp_path / "b.tar.gz", *(info(f"m{n}") for n in range(101))), odb)


def test_one_name_for_two_files(tmp_path: Path, odb: ObjectStore) -> None:
    same = [(info("a", 1), b"x"), (info("a", 1), b"x")]
    sdist.read(packed(tmp_path / "same.tar.gz", *same), odb)
    with pytest.raises(SourceError, match="two different files of one name"):
        sdist.read(packed(tmp_path / "two.tar.gz", (info("a", 1), b"x"), (info("a", 1), b"y")), odb)


@pytest.mark.parametrize(
    "members",
    [
        [info("a", type=tarfile.SYMTYPE, linkname="/etc"), (info("a/passwd", 1), b"x")],
        [info("a", type=tarfile.SYMTYPE, linkname="../../x")],
        [info("a", type=tarfile.SYMTYPE, linkname="b"), (info("a/c", 1), b"x")],
        [(info("b", 1), b"x"), info("a", type=tarfile.LNKTYPE, linkname="demo-1.0/b")],
        [info("a", type=tarfile.LNKTYPE, linkname="/etc/passwd")],
        [info("a", type=tarfile.CHRTYPE, devmajor=1, devminor=3)],
        [info("a", type=tarfile.BLKTYPE)], [info("a", type=tarfile.FIFOTYPE)],
        [(info("../../x", 1), b"x")], [(info(".git/config", 1), b"x")],
        [(info("a/.GIT/hooks/x", 1), b"x")], [(info("GIT~1/config", 1), b"x")],
        [(info(".g\u200cit/config", 1), b"x")], [(info("a\\..\\b", 1), b"x")],
    ],
    ids=range(14),
)
def test_members_that_lead_elsewhere(
    tmp_path: Path, odb: ObjectStore, members: list[Any]
) -> None:
    with pytest.raises(SourceError):
        sdist.read(packed(tmp_path / "demo-1.0.tar.gz", *members), odb)


SETTINGS: dict[str, tuple[bytes, str]] = {
    "nested": (b"x = " + b"[" * 200_000, "nested too deeply"),
    "inline": (b"x = " + b"{a=" * 200_000, "nested too deeply"),
    "parts": (b".".join([b"a"] * 100_000) + b" = 1", "a key of more than"),
    "quoted-parts": (b".".join([b'"a"'] * 100_000) + b" = 1", "a key of more than"),
    "header": (b"[" + b" . ".join([b"a"] * 100_000) + b"]", "a key of more than"),
    "digits": (b"x = " + b"9" * 10_000, "limit"),
    "twice": (b'upstream = 1\n[upstream.demo]\npath = "x"', "stack.toml:"),
    "types": (b"[upstream]\ndemo = [1, 2]", "stack.toml:"),
    "nul": (b'[upstream.x]\npath = "a\\u0000b"', "NUL"),
    "raw-nul": (b'[upstream.x]\npath = "a\0b"', "stack.toml:"),
    "bytes": (b'[upstream.x]\npath = "\xff\xfe"', "not UTF-8"),
    "utf-16": ("x = 1".encode("utf-16"), "stack.toml"),
    "long": (b'x = "' + b"y" * 20_000_000 + b'"', "unknown key"),
    "words": (b"w" * 3_000_000, "stack.toml:"),
}


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("verb", ["list", "status"])
def test_settings_and_series_that_cost_too_much(
    stack: Stack, tmp_path: Path, name: str, verb: str
) -> None:
    body, word = SETTINGS[name]
    (stack.folder / "stack.toml").write_bytes(b"schema = 1\n" + body + b"\n")
    done = bounded(stack, verb)
    if verb == "status":
        refused(done, word)
    (stack.folder / "stack.toml").write_bytes(b'schema = 1\n[upstream.demo]\npath = "x"\n')
    line = stack.folder / "patches/demo/1.0"
    line.mkdir(parents=True)
    (line / "series.toml").write_bytes(b"schema = 1\n" + body + b"\n")
    done = bounded(stack, verb)
    if verb == "list" and done.code == 0:  # it does not judge keys that it has no use for
        assert done.out == "demo/1.0  0 active\n"
    else:
        refused(done)


def test_a_byte_order_mark_is_named(stack: Stack) -> None:
    (stack.folder / "stack.toml").write_bytes(b"\xef\xbb\xbfschema = 1\n")
    refused(stack("status"), "byte order mark", "save it without one")


ANSWER: dict[str, Any] = {
    "schema": 1, "path": "p", "patch": "x", "encoding": "utf-8", "base": ["a\n"],
    "target": ["b\n"], "ours": ["c\n"], "answer": ["d\n"],
}


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"encoding": "zlib_codec"}, "damaged resolution"), ({"encoding": "no"}, "damaged"),
        ({"encoding": "latin-1", "ours": ["\u20ac"]}, "damaged resolution"),
        ({"encoding": "utf-8\0"}, "damaged resolution"), ({"base": "a"}, "damaged resolution"),
        ({"base": [1]}, "damaged resolution"), ({"more": 1}, "damaged resolution"),
        ({"schema": 2}, "schema 2 is newer"), ({"path": None}, "damaged resolution"),
    ],
)
def test_an_answer_that_is_none(
    stack: Stack, tmp_path: Path, change: dict[str, Any], word: str
) -> None:
    demo = Demo(stack, tmp_path)
    folder = stack.folder / "patches/demo/resolutions"
    folder.mkdir(parents=True)
    (folder / "one.json").write_text(json.dumps({**ANSWER, **change}))
    refused(stack("resolve", "--list"), word, "one.json")
    (folder / "one.json").write_bytes(b'{"x":' + b"[" * 100_000)
    refused(stack("resolve", "--list"), "damaged resolution")
    assert demo.names() == []


@pytest.mark.parametrize(
    "data",
    [
        b"x" * 50_000_000, b"\x1b[31mERROR\x1b]0;t\x07 " * 100_000 + b"\n", b"\xff\xfe\x00" * 9999,
        b"Traceback (most recent call last):\n" * 100_000 + b"ValueError: " + b"y" * 9_000_000,
        b"\r" * 5_000_000, b"{" * 1_000_000, b"\n" * 3_000_000, "\u202e\u0000".encode() * 99_999,
    ],
    ids=["long", "escapes", "encoding", "tracebacks", "returns", "brackets", "blank", "bidi"],
)
def test_a_log_of_anything_is_told_within_bounds(stack: Stack, data: bytes) -> None:
    (stack.folder / "run.log").write_bytes(data)
    done = bounded(stack, "diagnose", "run.log")
    assert done.code in (0, 1), done
    assert len(done.out) < 20_000
    assert "\x1b" not in done.out
    assert "\u202e" not in done.out


LEDGER: dict[str, Callable[[bytes], bytes]] = {
    "torn": lambda row: row[: len(row) // 2],
    "nested": lambda row: row[:-1] + b',"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "long": lambda row: row.replace(b'"note":"', b'"note":"' + b"n" * 5_000_000),
    "types": lambda row: row.replace(b'"pairs":', b'"pairs":"x","q":'),
    "control": lambda row: row.replace(b'"note":"', b'"note":"\\u001b[31m\\u202e\\n'),
    "raw": lambda row: row.replace(b'"note":"', b'"note":"\x1b[31m'),
    "zero": lambda row: row.replace(b'"ratio":null', b'"ratio":0.0'),
    "negative": lambda row: row.replace(b'"ratio":null', b'"ratio":-5.0,"low":-9.0,"high":-1.0'),
    "huge": lambda row: row.replace(b'"ratio":null', b'"ratio":1e308,"low":1e-308,"high":1e308'),
    "number": lambda row: row.replace(b'"ratio":null', b'"ratio":1e999'),
    "bytes": lambda row: row.replace(b'"note":"', b'"note":"\xff\xfe'),
    "time": lambda row: row.replace(b'"time":"', b'"time":"\\u0000'),
}


@pytest.mark.parametrize("name", LEDGER)
def test_a_ledger_of_anything_is_reported(stack: Stack, name: str) -> None:
    from tests.report.test_page import SERIES, TOML, verdict

    (stack.folder / "stack.toml").write_text(TOML)
    (stack.folder / "patches/demo/1").mkdir(parents=True)
    (stack.folder / "patches/demo/1/series.toml").write_text(SERIES)
    import msgspec

    row = msgspec.json.encode(verdict("one", "UNBLOCKED", "01", ratio=None, note="n"))
    ledger = stack.folder / ".stack/ledger"
    ledger.mkdir(parents=True)
    whole = msgspec.json.encode(verdict("two", "UNBLOCKED", "02", note="n"))
    (ledger / "verdicts.jsonl").write_bytes(LEDGER[name](row) + b"\n" + whole + b"\n")
    for form in ((), ("--md",), ("--csv",), ("--html",), ("--json",)):
        done = bounded(stack, "report", "--profile", "p", *form)
        assert done.code in (0, 1, 2), done
        assert "a bug in stack" not in done.out + done.err, done
        assert "\x1b" not in done.out + done.err
        assert "\u202e" not in done.out + done.err


def test_any_bytes_anywhere_are_no_bug(stack: Stack, tmp_path: Path) -> None:
    """Files of a project, changed at random; the verbs that read answer with one of their codes."""
    demo = Demo(stack, tmp_path)
    demo.patches(2)
    demo.apply()
    rng = random.Random(7)
    server = Server()
    files = [stack.folder / "stack.toml", *demo.line.iterdir()]
    spice = [b"\0", b"\xff", b"\x1b[31m", b"[", b'"', b"\n", b"\r", b"= 1", b"9" * 5000, b"../"]
    try:
        for number in range(ROUNDS):
            path = rng.choice(files)
            data = path.read_bytes()
            changed = bytearray(data)
            for _ in range(rng.randint(1, 4)):
                at = rng.randrange(len(changed) + 1)
                changed[at : at + rng.choice((0, 1, 9, 80))] = rng.choice(spice)
            path.write_bytes(changed)
            for arguments in (("list",), ("status",), ("show", "edit-0", "--stat"), ("lint",)):
                done = server.run(stack.folder, *arguments)
                assert done.code in (0, 1, 2, 3), (number, path, bytes(changed), done)
                assert "\x1b" not in done.out + done.err
            path.write_bytes(data)
    finally:
        server.close()
    print(f"{ROUNDS} changed files read by four verbs")
