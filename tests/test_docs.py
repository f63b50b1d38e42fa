"""Documentation that cannot rot: the reference is generated, and every command in it exists."""

from __future__ import annotations

import importlib.util
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import click
import pytest

from stack.cli import root

ROOT = Path(__file__).parents[1]
DOCS = sorted(f"docs/{path.name}" for path in (ROOT / "docs").iterdir())
PAGES = ["README.md", "ARCHITECTURE.md", *DOCS]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def commands(page: str) -> Iterator[list[str]]:
    """The arguments of every `stack` command in a page's code blocks."""
    if page == "docs/cli.md":  # it is compared as a whole
        return
    for _, block in _FENCE.findall((ROOT / page).read_text()):
        for line in block.splitlines():
            for part in re.split(r"&&|\|(?!\|)", line.removeprefix("$ ")):
                if not part.lstrip().startswith("stack "):
                    continue
                words = shlex.split(part, comments=True)
                if words[:1] == ["stack"] and len(words) > 1:
                    yield words[1:]


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    """`scripts/make_docs.py` as a module."""
    spec = importlib.util.spec_from_file_location("make_docs", ROOT / "scripts/make_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_is_what_the_verbs_say(maker: ModuleType) -> None:
    assert maker.TARGET.read_text() == maker.reference(), "python scripts/make_docs.py"


def test_the_picture_of_the_layers_is_made_from_the_contract(maker: ModuleType) -> None:
    assert maker.ARCHITECTURE.read_text() == maker.architecture(), "python scripts/make_docs.py"
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    rows = next(one["layers"] for one in contract["contracts"] if one["type"] == "layers")
    drawn = [re.split(r"\s{2,}", line)[0].replace("/", "") for line in maker.layers().splitlines()]
    assert drawn == rows


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page_exists(page: str) -> None:
    for words in commands(page):
        outer = click.Context(root, info_name="stack")
        command: click.Command | None = root
        rest = list(words)
        while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
            command = command.get_command(outer, rest.pop(0))
        assert command is not None, f"{page}: stack {shlex.join(words)}"
        if isinstance(command, click.Group):
            continue
        context = click.Context(command, info_name="stack")
        try:
            command.make_parser(context).parse_args(rest)
        except click.UsageError as wrong:
            pytest.fail(f"{page}: stack {shlex.join(words)}: {wrong}")


def test_every_file_that_a_page_links_to_is_there() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text()):
            assert (ROOT / page).parent.joinpath(target).exists(), f"{page}: {target}"
