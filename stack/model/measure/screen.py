"""A screen: knobs and their values, which of them belong together, and how long it may take."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal

import msgspec

from stack.model.line.line import Name
from stack.model.measure.screen_setting import Setting, Value

SCREEN_SCHEMA = 1


class Screen(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """What a screen varies in a bench of a profile.

    A knob is an environment variable, or an option of the bench's command where its name begins
    with a dash. `combine` is "one" (each value alone, on top of the best so far) or "all" (every
    combination). The knobs of a link change together, value by value. A setting that holds all
    values of an `exclude` is left out. `control` is where it begins. The budget is `runs` trials
    and `minutes`; `pairs` overrides the bench's. A candidate whose first pairs are
    slower by more than `hopeless` (a fraction) is given up. `exact` asks for the control's tokens.
    """

    profile: Name | None = None
    bench: Name
    combine: Literal["one", "all"] = "one"
    knob: Mapping[str, Annotated[tuple[Value, ...], msgspec.Meta(min_length=1)]]
    link: tuple[tuple[str, ...], ...] = ()
    exclude: tuple[Mapping[str, Value], ...] = ()
    control: Mapping[str, Value] = {}
    runs: Annotated[int, msgspec.Meta(ge=1)] | None = None
    minutes: Annotated[float, msgspec.Meta(gt=0)] | None = None
    pairs: Annotated[int, msgspec.Meta(ge=1, le=8)] | None = None
    hopeless: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.1
    exact: bool = False


class Screens(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of screens, apart from `stack.toml`."""

    schema: int
    screen: Mapping[Name, Screen]


def problems(screen: Screen) -> Iterator[str]:
    """What is wrong with a screen's own words."""
    linked: set[str] = set()
    for group in screen.link:
        for name in group:
            if name not in screen.knob:
                yield f"link: no knob `{name}`"
            elif name in linked:
                yield f"link: `{name}` stands in two links"
            linked.add(name)
        lengths = {len(screen.knob[name]) for name in group if name in screen.knob}
        if len(lengths) > 1:
            yield f"link: {', '.join(group)} have {' and '.join(map(str, sorted(lengths)))} values"
    for setting in screen.exclude:
        for name in setting:
            if name not in screen.knob and name not in screen.control:
                yield f"exclude: no knob `{name}`"


def candidates(screen: Screen) -> list[Setting]:
    """The settings to try, in order, without the control itself and without what is excluded."""
    axes = list(_axes(screen))
    if screen.combine == "one":
        found = [setting for axis in axes for setting in axis]
    else:
        found = []
        for combination in itertools.product(*([{}, *axis] for axis in axes)):
            merged: dict[str, Value] = {}
            for setting in combination:
                merged |= setting
            found.append(merged)
    kept: list[Setting] = []
    for setting in found:
        whole = {**screen.control, **setting}
        same = all(name in screen.control and screen.control[name] == value
                   for name, value in setting.items())
        if not same and not excluded(screen, whole) and setting not in kept:
            kept.append(setting)
    return kept


def excluded(screen: Screen, setting: Setting) -> bool:
    """Whether a whole setting holds every value of one of the excludes."""
    return any(
        all(name in setting and setting[name] == value for name, value in one.items())
        for one in screen.exclude
    )


def _axes(screen: Screen) -> Iterator[Sequence[dict[str, Value]]]:
    """Each link is one axis, and so is each knob that is in no link; in the order of the knobs."""
    done: set[str] = set()
    for name, values in screen.knob.items():
        if name in done:
            continue
        group = next((group for group in screen.link if name in group), (name,))
        done |= set(group)
        if len(group) == 1:
            yield [{name: value} for value in values]
        else:
            columns = [screen.knob[one] for one in group]
            yield [dict(zip(group, row, strict=True)) for row in zip(*columns, strict=True)]
