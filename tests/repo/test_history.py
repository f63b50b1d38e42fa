"""Which upstream commit is behind an outcome, and that it is: tried just before and just after."""

from __future__ import annotations

from pathlib import Path

import pytest

from stack.flows.rebase.origins import Origin, origins
from stack.model.diff.parse import parse_diff
from stack.model.line.outcome import Outcome
from stack.model.mail.mail import parse_mail
from stack.model.objects import Commit, Person
from stack.repo.carry import Merger
from stack.repo.carry_series import CarriedStep, carry_series
from stack.repo.odb import ObjectStore
from stack.repo.replay import Item
from tests.conftest import numbered
from tests.support.carrying import Moving

BASE = numbered(40)


def swap(text: bytes, *pairs: tuple[bytes, bytes]) -> bytes:
    for old, new in pairs:
        assert text.count(old) == 1
        text = text.replace(old, new)
    return text


def asked(
    case: Moving, *, orphan: bool = False
) -> tuple[list[CarriedStep], dict[str, list[Origin]]]:
    """Carry, and ask the history; with `orphan` the pin is a commit without parents."""
    items = []
    for path in case.mails:
        mail = parse_mail(path.read_bytes(), path.name)
        files = parse_diff(mail.diff, path.name, first=mail.diff_line)
        items.append(Item(name=path.stem[5:], mail=mail, files=files))
    old, new = (case.git.run("rev-parse", tag).text for tag in ("v1", "v2"))
    with ObjectStore(case.git) as odb:
        if orphan:
            who = Person(b"x", b"x@example.com", b"0 +0000")
            alone = Commit(
                tree=odb.commit(old).tree, parents=(), author=who, committer=who, message=b"sdist\n"
            )
            old = odb.add("commit", alone.render())
            odb.write()
        merger = Merger(odb)
        steps = carry_series(odb, items, old, new, on_conflict="assume", merger=merger)
        found = origins(merger, steps, old, new, lambda region: None)
        return steps, {name: list(rows) for name, rows in found.items()}


UPSTREAM = [
    ("far away", {"g": b"g\n"}),
    ("above", {"f": b"top\n" + BASE}),
    ("Rewrite five (#1234)", {"f": b"top\n" + swap(BASE, (b"line 5\n", b"theirs\n"))}),
    ("below", {"f": b"top\n" + swap(BASE, (b"line 5\n", b"theirs\n"), (b"line 39\n", b"x\n"))}),
]


@pytest.mark.parametrize("orphan", [False, True])
def test_the_culprit_is_the_first_commit_after_which_the_patch_no_longer_merges(
    tmp_path: Path, orphan: bool
) -> None:
    mine = swap(BASE, (b"line 5\n", b"mine\n"))
    case = Moving(tmp_path / "m", {"f": BASE}, [("mine", {"f": mine})], UPSTREAM)
    _, found = asked(case, orphan=orphan)
    (row,) = found["mine"]
    assert (row.what, row.commit, row.pull) == ("culprit", case.commits[2], 1234)
    assert row.last_good == case.commits[1]
    for revision, outcome in ((row.last_good, Outcome.CLEAN), (row.commit, Outcome.CONFLICT)):
        case.repo.git("tag", "-f", "v2", revision or "")
        assert case.one()[0].outcome is outcome


def test_the_patches_before_it_are_carried_first(tmp_path: Path) -> None:
    """The second patch stands on the first one's lines: upstream's tree would conflict."""
    one = swap(BASE, (b"line 5\n", b"mine\n"), (b"line 20\n", b"added\nline 20\n"))
    two = swap(one, (b"added\n", b"added twice\n"))
    upstream = [
        *UPSTREAM,
        (
            "Twenty",
            {"f": b"top\n" + swap(BASE, (b"line 5\n", b"theirs\n"), (b"line 20\n", b"20\n"))},
        ),
    ]
    case = Moving(tmp_path / "m", {"f": BASE}, [("one", {"f": one}), ("two", {"f": two})], upstream)
    steps, found = asked(case)
    assert [step.outcome for step in steps] == [Outcome.CONFLICT, Outcome.CLEAN]
    assert found["one"][0].commit == case.commits[2]
    assert found["two"] == []


def test_who_took_a_whole_patch_is_the_first_commit_that_has_all_of_it(tmp_path: Path) -> None:
    mine = {"f": swap(BASE, (b"line 5\n", b"5\n")), "h": swap(BASE, (b"line 7\n", b"7\n"))}
    case = Moving(
        tmp_path / "m",
        {"f": BASE, "h": BASE},
        [("mine", mine)],
        [
            ("half", {"f": b"top\n" + mine["f"]}),
            ("other", {"g": b"g\n"}),
            ("the rest (#77)", {"h": mine["h"] + b"end\n"}),
            ("later", {"h": mine["h"] + b"end\nend\n"}),
        ],
    )
    steps, found = asked(case)
    assert steps[0].outcome is Outcome.UPSTREAMED
    assert [(r.what, r.commit, r.pull) for r in found["mine"]] == [
        ("upstreamed", case.commits[2], 77)
    ]


def test_who_took_half_of_a_patch_is_named_with_the_hunk(tmp_path: Path) -> None:
    mine = swap(BASE, (b"line 5\n", b"five\n"), (b"line 30\n", b"thirty\n"))
    case = Moving(
        tmp_path / "m",
        {"f": BASE},
        [("mine", {"f": mine})],
        [
            ("noise", {"f": BASE + b"end\n"}),
            ("Thirty (#9)", {"f": swap(BASE, (b"line 30\n", b"thirty\n")) + b"end\n"}),
        ],
    )
    steps, found = asked(case)
    assert steps[0].outcome is Outcome.MODIFIED
    assert [(r.what, r.path, r.hunk, r.commit) for r in found["mine"]] == [
        ("taken-in", "f", 2, case.commits[1])
    ]
    assert str(found["mine"][0]).startswith("f: hunk 2 is upstream since")


@pytest.mark.parametrize("orphan", [False, True])
def test_a_patch_that_turns_a_file_back_undoes_upstream(tmp_path: Path, orphan: bool) -> None:
    older, base = numbered(10), numbered(10) + b"guard\n"
    case = Moving(
        tmp_path / "m", {"f": older}, [("back", {"f": older})], [("again", {"g": b"g\n"})]
    )
    case.repo.git("checkout", "-q", "main")
    case.repo.commit("guard", {"f": base})
    case.repo.git("tag", "-f", "v1")
    case.repo.commit("more", {"g": b"gg\n"})
    case.repo.git("tag", "-f", "v2")
    case.repo.git("checkout", "-q", "-B", "work", "v1")
    case.repo.commit("back", {"f": older})
    case.mails = case.repo.patches("v1", tmp_path / "again")
    steps, found = asked(case, orphan=orphan)
    assert steps[0].outcome is Outcome.CLEAN
    assert [(row.what, row.path) for row in found["back"]] == [("undone", "f")]


def test_a_file_that_moved_is_followed_through_the_history(tmp_path: Path) -> None:
    mine = swap(BASE, (b"line 5\n", b"mine\n"))
    there = swap(BASE, (b"line 5\n", b"theirs\n"))
    case = Moving(
        tmp_path / "m",
        {"a/f": BASE},
        [("mine", {"a/f": mine})],
        [("move", {"a/f": None, "b/f": BASE}), ("rewrite", {"b/f": there})],
    )
    steps, found = asked(case)
    assert steps[0].outcome is Outcome.CONFLICT
    assert [row.commit for row in found["mine"]] == [case.commits[1]]
