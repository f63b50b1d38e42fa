"""Every shipped patch is run: its case file, in the engine's Python, on its prefix's tree."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from stack.model.diff.parse import parse_diff
from stack.model.line.line import Member, Series
from stack.model.mail.mail import parse_mail
from tests.support.engine import ROOT, Engine, build_engine, git_history, patched_tree, real_project

HERE = Path(__file__).parent
pytestmark = [pytest.mark.engine, pytest.mark.upstream, pytest.mark.xdist_group("engine")]


def cases() -> list[tuple[str, str]]:
    """Line and patch of every member of every shipped line."""
    project = real_project()
    return [
        (series.id, member.name)
        for upstream in project.settings.upstream
        for label in project.labels(upstream)
        for series in [project.series(upstream, label)]
        for member in series.patch
    ]


def case_file(line: str, patch: str) -> Path:
    """The cases of a patch: those of its line, or those that several lines share."""
    name = f"{patch.replace('-', '_')}_cases.py"
    own = HERE / line.replace("/", "-") / name
    return own if own.is_file() else HERE / "shared" / name


def prefix(series: Series, member: Member) -> list[str]:
    """The patches under which a member is tested: the active ones up to it, or all and it."""
    active = [each.name for each in series.patch if each.state == "active"]
    if member.state == "active":
        return active[: active.index(member.name) + 1]
    return [*active, member.name]


@pytest.fixture(scope="session")
def engine() -> Engine:
    return build_engine()


def test_every_shipped_patch_has_a_case_file() -> None:
    assert [case for case in cases() if not case_file(*case).is_file()] == []


@pytest.mark.parametrize(("line", "patch"), cases(), ids=lambda value: value.replace("/", "-"))
def test_patch(
    line: str, patch: str, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if line.startswith("llm-scaler"):
        monkeypatch.setenv("STACK_LLM_SCALER_GIT", git_history("STACK_LLM_SCALER_GIT"))
    project = real_project()
    found = project.find(line)
    names = prefix(found.series, found.series.member(patch))
    env = {"STACK_PATCHES": ",".join(names), "STACK_LINE": line}
    if line == "vllm/0.29.0":
        path = _layer(engine, line, names[-1])
        if path is None:  # a parked patch: its files over the layer of the whole line
            tree = patched_tree(found, project, names, tmp_path / "tree")
            below = _layer(engine, line, names[-2])
            assert below is not None
            path = _overlaid(below, tree, found.files[patch], tmp_path / "layer")
    else:
        path = patched_tree(found, project, names, tmp_path / "tree")
        env["STACK_TREE"] = str(path)
    empty = tmp_path / "empty"
    empty.mkdir()
    output = engine.pytest(case_file(line, patch), [path], env, empty)
    assert " passed" in output


def _layer(engine: Engine, line: str, patch: str) -> Path | None:
    rows = engine.built["layers"]
    assert isinstance(rows, list)
    found = [row["path"] for row in rows if row["line"] == line and row["patch"] == patch]
    return Path(found[0]) if found else None


def _overlaid(layer: Path, tree: Path, mail: bytes, target: Path) -> Path:
    """A copy of a layer, its links and all, with the files of a patch as they are in `tree`."""
    target.mkdir()
    subprocess.run(["cp", "-rs", f"{layer}/.", f"{target}/"], check=True)
    for file in parse_diff(parse_mail(mail, "patch").diff, "patch"):
        name = file.path.decode()
        place = target / name
        for folder in reversed(place.relative_to(target).parents[:-1]):
            _own(target / folder)
        place.unlink(missing_ok=True)
        place.write_bytes((tree / name).read_bytes())
    return target


def _own(folder: Path) -> None:
    """Make a linked folder a folder of links, so that one file in it can be another."""
    if folder.is_symlink():
        there = folder.resolve()
        folder.unlink()
        folder.mkdir()
        for entry in there.iterdir():
            if entry.name != "__pycache__":
                (folder / entry.name).symlink_to(entry)
    folder.mkdir(exist_ok=True)


def test_shipped_lines_are_where_the_project_says() -> None:
    project = real_project()
    assert project.paths.root == ROOT
    assert {line for line, _ in cases()} >= {"vllm/0.20.1", "vllm/0.29.0", "llm-scaler/e0b0703"}
