"""What the patches of a profile need of other lines: checked before anything is done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from stack.errors import ConfigError, StateError
from stack.model.line.line import Member, near
from stack.store.project import Line, Project

Chosen = Sequence[tuple[Line, Sequence[Member]]]


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """A need that nothing of the profile meets: who needs what, why it is not there, what to do."""

    line: str
    patch: str
    need: str
    why: str
    hint: str

    def __str__(self) -> str:
        return f"{self.line}: `{self.patch}` needs `{self.need}`: {self.why}"


def lines_of(project: Project, name: str) -> list[tuple[Line, Sequence[Member]]]:
    """The lines of a profile with their active patches; `ConfigError` where it has none."""
    profile = project.settings.profile[name]
    lines = map(project.find, profile.lines)
    found: list[tuple[Line, Sequence[Member]]] = [(one, one.series.select()) for one in lines]
    if not found:
        raise ConfigError(
            f"stack.toml: profile `{name}` has no lines",
            hint='lines = ["UPSTREAM/LABEL"] in its table',
        )
    return found


def check(project: Project, name: str, chosen: Chosen) -> None:
    """Raise `StateError` naming every need of the profile's patches that is not met."""
    lacking = list(missing(project, name, chosen))
    if not lacking:
        return
    first = lacking[0]
    more = f" (and {len(lacking) - 1} more)" if len(lacking) > 1 else ""
    raise StateError(
        f"profile {name}: {first}{more}", context=[str(one) for one in lacking[1:]],
        hint=first.hint,
    )


def missing(project: Project, name: str, chosen: Chosen) -> Iterator[Missing]:
    """The needs that neither a chosen patch nor a recipe of the profile meets.

    A patch of the same line meets a need only where it stands before the one that needs it.
    """
    settings = project.settings
    provided = {
        need
        for recipe in settings.profile[name].recipes
        if recipe in settings.recipe
        for need in settings.recipe[recipe].provides
    }
    others = {
        f"{line.series.upstream}:{member.name}": line.id
        for line, members in chosen
        for member in members
    }
    for line, members in chosen:
        earlier: set[str] = set()
        for member in members:
            for need in member.needs:
                elsewhere = others.get(need) not in (None, line.id)
                if not (elsewhere or need in provided or need in earlier):
                    yield _missing(project, name, chosen, line, member, need)
            earlier.add(f"{line.series.upstream}:{member.name}")


def _missing(
    project: Project, name: str, chosen: Chosen, line: Line, member: Member, need: str
) -> Missing:
    """Why a need is not met, and the next step."""
    upstream, _, patch = need.partition(":")
    held = [
        series
        for label in (project.labels(upstream) if upstream in project.settings.upstream else ())
        for series in [project.series(upstream, label)]
        if any(one.name == patch for one in series.patch)
    ]
    mine = next((series for series in held if series.id in {one.id for one, _ in chosen}), None)
    if mine is not None and mine.id == line.id and mine.member(patch).state == "active":
        why = "it stands after it"
        hint = f"put `{patch}` before `{member.name}` in its series.toml"
    elif mine is not None:
        why = f"it is {mine.member(patch).state} in {mine.id}, and not applied"
        where = project.shown(project.paths.line(mine.upstream, mine.pin.label) / "series.toml")
        hint = f'state = "active" for `{patch}` in {where}; stack show {patch} says why it is not'
    elif held:
        why = f"profile {name} has no line of {upstream} with it"
        hint = f'add "{held[0].id}" to `lines` of [profile.{name}] in stack.toml'
    else:
        known = [
            f"{one}:{each.name}"
            for one in project.settings.upstream
            for label in project.labels(one)
            for each in project.series(one, label).patch
        ]
        why, hint = "no line has it", near(need, known, "stack list")
    return Missing(line=line.id, patch=member.name, need=need, why=why, hint=hint)
