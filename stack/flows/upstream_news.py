"""What upstream did since a line's pin, from what is at hand; the network is not asked."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from stack.flows.base import local_path
from stack.model.diff.parse import parse_diff
from stack.model.mail.mail import parse_mail
from stack.repo import mirror as mirrors
from stack.repo.client import Git
from stack.store.project import Line, Project

_RELEASE = re.compile(r"v?\d+(\.\d+)+(\.?post\d+)?")
_BRANCHES = (
    "refs/remotes/origin/HEAD", "refs/remotes/origin/main", "refs/remotes/origin/master",
    "refs/heads/main", "refs/heads/master",
)


class Newest(msgspec.Struct, frozen=True, kw_only=True):
    """The tip of upstream's main branch in a repository at hand."""

    name: str
    commit: str
    tree: str


class Touched(msgspec.Struct, frozen=True, kw_only=True):
    """A path of our patches that upstream changed since the pin: how often, and last by what."""

    path: str
    commits: int
    last: str
    subject: str


class News(msgspec.Struct, frozen=True, kw_only=True):
    """How far a line's pin is behind; `unknown` says why nothing could be told."""

    line: str
    newest: str | None = None
    commits: int | None = None
    releases: tuple[str, ...] = ()
    touched: tuple[Touched, ...] = ()
    unknown: str | None = None


def repositories(project: Project, upstream: str) -> Iterator[tuple[str, Git]]:
    """The repositories of an upstream that are on this machine."""
    _, settings = project.upstream(upstream)
    path = local_path(project, settings)
    objects = mirrors.objects_of(path) if path else None
    if objects is not None:
        yield "path", Git(objects.parent)
    if settings.git is not None:
        mirror = mirrors.Mirror(project.paths.mirror(upstream), settings.git)
        if mirror.exists:
            yield "git", mirror.git


def newest(project: Project, line: Line) -> Newest | None:
    """The tip of upstream's main branch, where a repository at hand has one newer than the pin."""
    for _, git in repositories(project, line.series.upstream):
        found, pin = _tip(git), _pin_commit(git, line)
        if found is None:
            continue
        old = pin is not None and git.run(
            "merge-base", "--is-ancestor", found.commit, pin, ok=(0, 1, 128)
        ).code == 0
        if not old:
            return found
    return None


def _tip(git: Git) -> Newest | None:
    for ref in _BRANCHES:
        found = git.run(
            "log", "-1", "--no-show-signature", "--format=%H %T", ref, "--", ok=(0, 128)
        )
        if found.code == 0 and len(ids := found.text.split()) == 2:
            return Newest(name=ref.rpartition("/")[2], commit=ids[0], tree=ids[1])
    return None


def news(project: Project, line: Line) -> News:
    """How far a line's pin is behind, and which paths of its active patches changed since."""
    at_hand = list(repositories(project, line.series.upstream))
    if not at_hand:
        hint = f"stack upstream fetch {line.series.upstream}"
        return News(line=line.id, unknown=f"no repository of upstream's is at hand: {hint}")
    why = "no repository at hand has the pin's commit"
    for _, git in at_hand:
        pin = _pin_commit(git, line)
        tip = _tip(git)
        if pin is None or tip is None:
            why = why if pin is None else "no repository at hand has a main branch"
            continue
        count = int(git.run("rev-list", "--count", f"{pin}..{tip.commit}").text)
        return News(
            line=line.id, newest=f"{tip.name} {tip.commit[:12]}", commits=count,
            releases=_releases(git, line), touched=tuple(_touched(git, line, pin, tip.commit)),
        )
    releases = next((found for _, git in at_hand if (found := _releases(git, line))), ())
    return News(line=line.id, releases=releases, unknown=why)


def _pin_commit(git: Git, line: Line) -> str | None:
    """The pin's commit here; for a release archive the tag of its version, if its tree is right."""
    pin = line.series.pin
    if pin.commit:
        return pin.commit if mirrors.has_commit(git, pin.commit) else None
    found = mirrors.resolve(git, pin.sdist.version) if pin.sdist else None
    if found and git.run("rev-parse", f"{found}^{{tree}}").text == pin.tree:
        return found
    return None


def _releases(git: Git, line: Line) -> tuple[str, ...]:
    """The tags of releases that are newer than the line's, oldest first."""
    pin = line.series.pin
    said = pin.sdist.version if pin.sdist else pin.label
    if not _RELEASE.fullmatch(said):
        commit = pin.commit
        if commit is None or not mirrors.has_commit(git, commit):
            return ()
        listed = git.run("tag", "--contains", commit)
        tags = [tag for tag in listed.text.split() if _RELEASE.fullmatch(tag)]
        return tuple(sorted(tags, key=_numbers))
    tags = git.run("for-each-ref", "--format=%(refname:strip=2)", "refs/tags").text.split()
    newer = [tag for tag in tags if _RELEASE.fullmatch(tag) and _numbers(tag) > _numbers(said)]
    return tuple(sorted(newer, key=_numbers))


def is_older(release: str, line: Line) -> bool:
    """Whether a release came before the one that a line is pinned at, as far as names say."""
    pin = line.series.pin
    said = pin.sdist.version if pin.sdist else pin.label
    both = _RELEASE.fullmatch(said) and _RELEASE.fullmatch(release)
    return both is not None and _numbers(release) < _numbers(said)


def _numbers(tag: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", tag))


def _touched(git: Git, line: Line, pin: str, tip: str) -> Iterator[Touched]:
    paths: set[str] = set()
    for member in line.series.patch:
        if member.state == "active":
            mail = parse_mail(line.files[member.name], f"{member.name}.patch")
            for file in parse_diff(mail.diff, member.name, first=mail.diff_line):
                paths |= {file.old.decode("utf-8", "surrogateescape")} if file.old else set()
    if not paths:
        return
    listed = git.run(
        "--literal-pathspecs", "log", "--format=%x01%H %s", "--name-only", "-z", "--no-renames",
        "--no-show-signature", f"{pin}..{tip}", "--", *sorted(paths),
    )
    found: dict[str, list[str]] = {}
    head = ""
    for part in listed.out.decode("utf-8", "surrogateescape").split("\0"):
        for text in part.split("\n"):
            if text.startswith("\x01"):
                head = text[1:]
            elif text in paths:
                found.setdefault(text, []).append(head)
    for path, commits in sorted(found.items(), key=lambda item: (-len(item[1]), item[0])):
        last, _, subject = commits[0].partition(" ")
        yield Touched(path=path, commits=len(commits), last=last, subject=subject)
