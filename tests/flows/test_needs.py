"""`needs` between the lines of a profile, checked before anything is applied or built."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import numbered
from tests.support.cli import Stack
from tests.support.repo import RepoBuilder

TOML = """schema = 1
[upstream.engine]
git = "{engine}"
[upstream.kernels]
git = "{kernels}"
[profile.both]
lines = ["engine/1.0", "kernels/1.0"]
[profile.alone]
lines = ["engine/1.0"]
[profile.provided]
lines = ["engine/1.0"]
recipes = ["own"]
[profile.empty]
[recipe.own]
reads = ["here"]
command = ["true"]
outputs = ["here"]
provides = ["kernels:fast"]
"""


class Pair:
    """engine/1.0 has `base` and `use-fast`, which needs kernels:fast of kernels/1.0."""

    def __init__(self, stack: Stack, tmp_path: Path) -> None:
        self.stack = stack
        repos = {}
        for name, subjects in {"engine": ("base", "use fast"), "kernels": ("fast",)}.items():
            repo = repos[name] = RepoBuilder(tmp_path / name)
            repo.commit("begin", {"f": numbered(30)})
            repo.git("tag", "v1.0")
            for at, subject in enumerate(subjects):
                text = repo.git("show", "HEAD:f").replace(b"line %d\n" % (at * 9 + 3), b"x\n")
                repo.commit(subject, {"f": text})
            repo.patches("v1.0", tmp_path / f"{name}-mails")
        (stack.folder / "stack.toml").write_text(
            TOML.format(**{name: repo.url for name, repo in repos.items()})
        )
        for name in repos:
            mails = sorted((tmp_path / f"{name}-mails").glob("*.patch"))
            stack.ok("line", "add", f"{name}@v1.0")
            stack.ok("import", "--upstream", f"{name}@v1.0", *mails)
        self.say("engine", "use-fast", 'needs = ["kernels:fast"]')

    def say(self, upstream: str, patch: str, text: str) -> None:
        """Write a key of a patch into its series."""
        path = self.stack.folder / f"patches/{upstream}/1.0/series.toml"
        series, line = path.read_text(), f'name = "{patch}"\n'
        assert line in series
        path.write_text(series.replace(line, f"{line}{text}\n"))

    def refused(self, *arguments: str) -> dict[str, object]:
        """Both verbs refuse with exit code 2 and the same error; nothing is written."""
        answers = []
        for verb in ("apply", "build"):
            output = self.stack(verb, *arguments, "--json")
            assert output.code == 2, output
            answers.append(output.json["errors"][0])
        assert answers[0] == answers[1]
        assert not (self.stack.folder / ".stack/workspaces").exists()
        return answers[0]


@pytest.fixture
def pair(stack: Stack, tmp_path: Path) -> Pair:
    return Pair(stack, tmp_path)


def test_a_profile_is_applied_whole(pair: Pair) -> None:
    data = pair.stack.ok("apply", "--profile", "both", "--json").json["data"]
    assert [(row["line"], row["name"], row["outcome"]) for row in data["patches"]] == [
        ("engine/1.0", "base", "clean"), ("engine/1.0", "use-fast", "clean"),
        ("kernels/1.0", "fast", "clean"),
    ]
    for line in data["lines"]:
        assert (Path(line["workspace"]) / "f").is_file()
    assert pair.stack.ok("apply", "--profile", "both", "--json").json["data"]["changed"] is False


def test_a_profile_without_the_other_line_names_what_is_missing(pair: Pair) -> None:
    error = pair.refused("--profile", "alone")
    assert error["code"] == "state"
    assert error["message"] == (
        "profile alone: engine/1.0: `use-fast` needs `kernels:fast`: profile alone has no line of "
        "kernels with it"
    )
    assert error["hint"] == 'add "kernels/1.0" to `lines` of [profile.alone] in stack.toml'


def test_a_parked_patch_meets_no_need(pair: Pair) -> None:
    pair.say("kernels", "fast", 'reason = "negative"')
    path = pair.stack.folder / "patches/kernels/1.0/series.toml"
    text = path.read_text()
    path.write_text(
        text.replace('state = "active"', 'state = "parked"')
        if "state" in text else text.replace("reason", 'state = "parked"\nreason')
    )
    error = pair.refused("--profile", "both")
    assert "parked in kernels/1.0" in str(error["message"])
    assert "patches/kernels/1.0/series.toml" in str(error["hint"])


def test_a_need_of_the_same_line_must_stand_before(pair: Pair) -> None:
    pair.say("engine", "base", 'needs = ["engine:use-fast"]')
    error = pair.refused("--profile", "both")
    assert "stands after it" in str(error["message"])
    assert error["hint"] == "put `use-fast` before `base` in its series.toml"


def test_several_are_named_and_a_typing_error_gets_the_nearest_name(pair: Pair) -> None:
    pair.say("engine", "base", 'needs = ["kernels:fats", "nobody:x"]')
    error = pair.refused("--profile", "alone")
    assert str(error["message"]).endswith("no line has it (and 2 more)")
    assert len(error["context"]) == 2
    assert str(error["hint"]).startswith("did you mean `kernels:fast`")


def test_a_recipe_may_provide_a_need(pair: Pair) -> None:
    data = pair.stack.ok("apply", "--profile", "provided", "--json").json["data"]
    assert [line["line"] for line in data["lines"]] == ["engine/1.0"]


def test_a_conflict_in_the_second_line_leaves_the_first_alone(pair: Pair) -> None:
    path = pair.stack.folder / "patches/kernels/1.0/fast.patch"
    path.write_bytes(path.read_bytes().replace(b" line 2\n", b" other\n"))
    assert pair.stack("apply", "--profile", "both").code == 3
    assert not (pair.stack.folder / ".stack/workspaces").exists()


def test_a_profile_goes_with_no_other_choice_and_must_have_lines(pair: Pair) -> None:
    assert pair.stack("apply", "--profile", "both", "--to", "base").code == 2
    output = pair.stack("apply", "--profile", "empty")
    assert output.code == 2
    assert "has no lines" in output.err
