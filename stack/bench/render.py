"""Commands and environments of `stack.toml` are jinja2 templates; every mistake names its key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from jinja2 import StrictUndefined, TemplateError, TemplateSyntaxError, UndefinedError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from stack.errors import ConfigError
from stack.model.line import near


@cache
def _environment() -> ImmutableSandboxedEnvironment:
    return ImmutableSandboxedEnvironment(undefined=StrictUndefined, keep_trailing_newline=True)


def render(text: str, values: Mapping[str, object], where: str) -> str:
    """The text with `{{ names }}` replaced.

    `where` is what an error begins with, `stack.toml: profile.cpu-smoke.env.HOME` for one.
    Raises `ConfigError` for an unknown name, a syntax error, or an access that is not allowed.
    """
    if "{" not in text:
        return text
    try:
        return _environment().from_string(text).render(values)
    except UndefinedError as wrong:
        raise ConfigError(f"{where}: {wrong.message}", hint=_names(str(wrong), values)) from None
    except TemplateSyntaxError as wrong:
        text = f"{where}: line {wrong.lineno} of the template: {wrong.message}"
        raise ConfigError(text) from None
    except (TemplateError, TypeError, ValueError, ArithmeticError) as wrong:
        raise ConfigError(f"{where}: {wrong}") from None


def render_all(texts: Sequence[str], values: Mapping[str, object], where: str) -> tuple[str, ...]:
    """Each text rendered; an error names the position, `profile.x.packages[2]`."""
    return tuple(render(text, values, f"{where}[{at}]") for at, text in enumerate(texts))


def render_env(
    env: Mapping[str, str], values: Mapping[str, object], where: str
) -> dict[str, str]:
    """An environment with rendered values."""
    return {name: render(text, values, f"{where}.{name}") for name, text in env.items()}


def _names(message: str, values: Mapping[str, object]) -> str:
    known = ", ".join(sorted(values))
    close = near(message.split("'")[1] if "'" in message else "", list(values), "")
    return close if close.startswith("did") else f"a template may use {known}"
