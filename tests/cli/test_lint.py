"""`stack lint`: each code on a planted example, at the line that has to be mended."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from stack.model.line.lint import CODES
from tests.support.cli import Stack
from tests.support.engine import REAL_ENVIRONMENT, ROOT
from tests.support.repo import RepoBuilder

MOD = b"".join(b"LINE_%d = %d\n" % (n, n) for n in range(40))
CLASS = b"class Runner:\n    def run(self):\n        return 1\n"
FILES = {
    "pkg/__init__.py": b"", "pkg/mod.py": MOD, "pkg/runner.py": CLASS,
    "pkg/envs.py": b'ENVS = {\n    "PKG_OLD": "1",\n}\n',
}
TOML = """schema = 1
[upstream.demo]
git = "{url}"
packages = ["pkg"]
env-registry = "pkg/envs.py"
env-prefix = "PKG_"
[bench.speed]
command = ["true"]
metric = "x"
unit = "s"
"""
MESSAGE = """[Core] {subject}

Some words.

Why: a reason that
 goes on
Upstream-Status: Pending
Patch-Id: {id:016x}
"""
PATCH = "patches/demo/1.0/the-patch.patch"
SERIES = "patches/demo/1.0/series.toml"
Files = dict[str, bytes]


class Line:
    """A line of a clean patch and of the one in which a test plants something."""

    def __init__(self, stack: Stack, upstream: RepoBuilder, tmp_path: Path) -> None:
        self.stack, self.upstream, self.tmp = stack, upstream, tmp_path
        upstream.commit("begin", FILES)
        upstream.git("tag", "begin")
        (stack.folder / "stack.toml").write_text(TOML.format(url=upstream.url))
        stack.ok("line", "add", "demo@begin", "--label", "1.0")

    def make(self, files: Files | None = None, message: str = "") -> None:
        """Import `first` and `the-patch`, which has these files."""
        changed = {"pkg/mod.py": MOD.replace(b"= 30\n", b"= 300\n")}
        self.upstream.commit(
            MESSAGE.format(subject="First", id=1), {"pkg/mod.py": MOD.replace(b"= 3\n", b"= 33\n")}
        )
        if files is None:
            files = {"pkg/mod.py": changed["pkg/mod.py"].replace(b"= 3\n", b"= 33\n")}
        self.upstream.commit(message or MESSAGE.format(subject="The patch", id=2), dict(files))
        mails = self.upstream.patches("begin", self.tmp / "mails")
        self.stack.ok("import", "--upstream", "demo@1.0", *mails)
        (made,) = {*(self.stack.folder / "patches/demo/1.0").glob("the-patch*.patch")}
        if made.stem != "the-patch":  # a long subject makes a long name
            made.rename(self.stack.folder / PATCH)
            self.edit(b'name = "%s"' % made.stem.encode(), b'name = "the-patch"', SERIES)

    def edit(self, old: bytes, new: bytes, file: str = PATCH) -> None:
        path = self.stack.folder / file
        data = path.read_bytes()
        assert old in data, data.decode()
        path.write_bytes(data.replace(old, new, 1))

    def say(self, text: str) -> None:
        """Write keys of the patch into the series."""
        name = b'name = "the-patch"\n'
        self.edit(name, name + text.encode() + b"\n", SERIES)

    def lint(self, *arguments: str) -> list[tuple[str, str, str]]:
        """File, code and the text of the line of each finding."""
        output = self.stack("lint", *arguments, "--json")
        findings = output.json["data"]["findings"]
        assert output.code == (1 if findings else 0), output
        plain = self.stack("lint", *arguments).out.splitlines()
        assert plain == [
            f"{one['file']}:{one['line']}: {one['code']} {one['message']}" for one in findings
        ]
        found = []
        for one in findings:
            lines = (self.stack.folder / one["file"]).read_bytes().split(b"\n")
            assert one["code"] in CODES
            found.append((one["file"], one["code"], lines[one["line"] - 1].decode()))
        return found


@pytest.fixture
def line(stack: Stack, upstream: RepoBuilder, tmp_path: Path) -> Line:
    return Line(stack, upstream, tmp_path)


def commit(**files: bytes) -> Callable[[Line], None]:
    """A planter: the patch holds these files (`mod` is pkg/mod.py)."""
    return lambda line: line.make({f"pkg/{name}.py": data for name, data in files.items()})


def message(old: str, new: str) -> Callable[[Line], None]:
    """A planter: another commit message."""
    text = MESSAGE.format(subject="The patch", id=2)
    assert old in text
    return lambda line: line.make(message=text.replace(old, new))


def edited(old: bytes, new: bytes) -> Callable[[Line], None]:
    """A planter: the patch file edited by hand."""

    def plant(line: Line) -> None:
        line.make()
        line.edit(old, new)

    return plant


def said(text: str) -> Callable[[Line], None]:
    """A planter: keys of the series."""

    def plant(line: Line) -> None:
        line.make()
        line.say(text)

    return plant


def offset(line: Line) -> None:
    line.make()
    line.edit(b"@@ -28,7 +28,7 @@", b"@@ -27,7 +27,7 @@")


NEW_MOD = MOD.replace(b"= 3\n", b"= 33\n")
PLANTED: dict[str, tuple[str, Callable[[Line], None], str, str]] = {
    "damaged": ("P001", edited(b" LINE_29 = 29\n", b""), PATCH, ""),
    "outside": ("P001", edited(b"+++ b/pkg/mod.py", b"+++ b/../mod.py"), PATCH, ""),
    "not canonical": ("P002", edited(b"\n\nSome words.", b"\n\n\nSome words."), PATCH, ""),
    "no why": ("P101", message("Why: a reason that\n goes on\n", ""), PATCH, ""),
    "no status": ("P102", message("Upstream-Status: Pending\n", ""), PATCH, ""),
    "status of its own words": (
        "P102", message("Status: Pending", "Status: maybe"), PATCH, "Upstream-Status: maybe",
    ),
    "bare backport": (
        "P102", message("Status: Pending", "Status: Backport"), PATCH, "Upstream-Status: Backport",
    ),
    "no id": ("P103", edited(b"Patch-Id: 0000000000000002\n", b""), PATCH, ""),
    "the id of another": (
        "P103", edited(b"Patch-Id: 0000000000000002", b"Patch-Id: 0000000000000001"), PATCH,
        "Patch-Id: 0000000000000001",
    ),
    "two reasons": (
        "P104", message("Why: a", "Why: one\nWhy: a"), PATCH, "Why: one",
    ),
    "two things in the subject": (
        "P104", edited(b"The patch\n", b"The patch; and also more\n"), PATCH,
        "Subject: [Core] The patch; and also more",
    ),
    "full stop": (
        "P105", edited(b"The patch\n", b"The patch.\n"), PATCH, "Subject: [Core] The patch.",
    ),
    "long subject": ("P105", message("The patch", "The patch" + " x" * 40), PATCH, ""),
    "conflict": (
        "P201", edited(b"-LINE_30 = 30\n", b"-LINE_30 = 31\n"), PATCH, "",
    ),
    "offset": ("P202", offset, PATCH, ""),
    "syntax": (
        "P301", commit(runner=CLASS + b"\ndef broken(:\n"), PATCH, "+def broken(:",
    ),
    "import": (
        "P302", commit(runner=b"from pkg.mod import LINE_3, NOTHING\n" + CLASS), PATCH,
        "+from pkg.mod import LINE_3, NOTHING",
    ),
    "shadow": (
        "P303", commit(runner=CLASS.replace(
            b"class Runner:\n", b"class Runner:\n    def run(self):\n        return 2\n\n")),
        PATCH, "+    def run(self):",
    ),
    "trailing blank": (
        "P401", commit(runner=CLASS + b"X = 1 \n"), PATCH, "+X = 1 ",
    ),
    "blank before tab": (
        "P401", commit(runner=CLASS + b"if True:\n \tX = 1\n"), PATCH, "+ \tX = 1",
    ),
    "carriage return": (
        "P401", commit(runner=CLASS + b"X = 1\r\n"), PATCH, "+X = 1\r",
    ),
    "env nowhere": (
        "P501", said('env = { PKG_OLDER = "1" }'), SERIES, 'env = { PKG_OLDER = "1" }',
    ),
    "env not registered": ("P502", lambda line: (
        line.make({"pkg/runner.py": CLASS + b'import os\nX = os.environ.get("PKG_NEW")\n'}),
        line.say('env = { PKG_NEW = "1" }'),
    )[0], PATCH, ""),
    "bench": ("P503", said('bench = ["speed", "sped"]'), SERIES, 'bench = ["speed", "sped"]'),
    "need": ("P504", said('needs = ["demo:nobody"]'), SERIES, 'needs = ["demo:nobody"]'),
}


@pytest.mark.parametrize("plant", PLANTED)
def test_a_planted_example_is_reported_where_it_stands(line: Line, plant: str) -> None:
    code, planter, file, text = PLANTED[plant]
    planter(line)
    found = line.lint()
    assert [(where, what) for where, what, _ in found] == [(file, code)], found
    if text:
        assert found[0][2] == text


def test_every_code_has_an_example() -> None:
    assert {code for code, *_ in PLANTED.values()} == set(CODES)


def test_a_good_patch_is_clean_with_all_keys(line: Line) -> None:
    registered = FILES["pkg/envs.py"].replace(b"}\n", b'    "PKG_NEW": "1",\n}\n')
    line.make({"pkg/envs.py": registered, "pkg/runner.py": CLASS + b'\nX = "OTHER"\n'})
    line.say('env = { PKG_NEW = "1", OTHER = "1" }\nbench = ["speed"]\nneeds = ["demo:first"]')
    assert line.lint() == []
    assert "0 findings in 2 patches of 1 lines" in line.stack.ok("lint").err


def test_one_patch_alone_and_nothing_behind_a_conflict(line: Line) -> None:
    line.make()
    line.say('bench = ["sped"]')
    line.edit(b"-LINE_3 = 3\n", b"-LINE_3 = 4\n", "patches/demo/1.0/first.patch")
    assert [code for _, code, _ in line.lint()] == ["P201", "P503"]
    assert [code for _, code, _ in line.lint("the-patch")] == ["P503"]
    assert line.stack("lint", "nobody").code == 2


def test_without_a_source_the_text_is_still_reviewed(line: Line) -> None:
    line.make()
    line.edit(b"The patch\n", b"The patch.\n")
    text = (line.stack.folder / "stack.toml").read_text()
    broken = text.replace(line.upstream.url, "file:///nowhere")
    (line.stack.folder / "stack.toml").write_text(broken)
    for folder in (line.stack.folder / ".stack", Path(os.environ["STACK_CACHE_DIR"])):
        folder.rename(folder.with_name(f"{folder.name}-away"))
    output = line.stack("lint", "--json")
    assert [one["code"] for one in output.json["data"]["findings"]] == ["P105"]
    assert output.json["status"] == "partial"
    assert output.json["data"]["not_reviewed"][0].startswith("demo/1.0: no source can serve")


def test_codes_are_documented(line: Line) -> None:
    output = line.stack.ok("lint", "--codes")
    assert dict(row.split("  ", 1) for row in output.out.splitlines()) == dict(CODES)
    assert line.stack.ok("lint", "--codes", "--json").json["data"]["codes"] == dict(CODES)


@pytest.mark.upstream
@pytest.mark.parametrize("shipped", ["vllm/0.20.1", "vllm/0.29.0", "llm-scaler/e0b0703"])
def test_shipped_lines_are_clean(shipped: str) -> None:
    if shipped.startswith("llm-scaler") and "STACK_LLM_SCALER_GIT" not in REAL_ENVIRONMENT:
        pytest.skip("STACK_LLM_SCALER_GIT names no clone of intel/llm-scaler")
    env = {**REAL_ENVIRONMENT, "NO_COLOR": "1"}
    output = Stack(ROOT)("lint", "--line", shipped, "--json", env=env)
    assert output.json["data"] == {"findings": [], "not_reviewed": []}, output
