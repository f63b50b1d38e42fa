"""A setting of knobs: as environment, as options of a command, and in words."""

from __future__ import annotations

from collections.abc import Mapping

Value = str | int | float | bool
Setting = Mapping[str, Value]
"""Values of some knobs; those that are not named stay as they are."""


def environment(setting: Setting) -> dict[str, str]:
    """The environment variables of a setting; true is 1, false is 0."""
    return {name: _text(value) for name, value in setting.items() if not name.startswith("-")}


def arguments(setting: Setting) -> tuple[str, ...]:
    """The options of a setting; true is a switch, false leaves it out."""
    words: list[str] = []
    for name, value in setting.items():
        if not name.startswith("-") or value is False:
            continue
        words += [name] if value is True else [name, _text(value)]
    return tuple(words)


def _text(value: Value) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def label(setting: Setting) -> str:
    """A setting as people read it: `TP=2 PP=2`, `--block-size 128`."""
    words = [f"{name}={value}" for name, value in environment(setting).items()]
    options = [
        f"no {name}" if value is False else name if value is True else f"{name} {_text(value)}"
        for name, value in setting.items() if name.startswith("-")
    ]
    return " ".join([*words, *options]) or "control"
