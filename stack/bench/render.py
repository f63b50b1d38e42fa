"""Commands and environments of `stack.toml` are jinja2 templates; every mistake names its key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from numbers import Number
from typing import Any

from jinja2 import StrictUndefined, TemplateError, TemplateSyntaxError, UndefinedError, nodes
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from stack.errors import ConfigError
from stack.model.line.line import near

# What a template may be made of. A project's settings are read by verbs that only look, so that
# their time and memory are bounded by their length: nothing loops, is called, or makes texts grow.
_PARTS = (
    nodes.Template, nodes.Output, nodes.TemplateData, nodes.Name, nodes.Const, nodes.If,
    nodes.CondExpr, nodes.Compare, nodes.Operand, nodes.And, nodes.Or, nodes.Not, nodes.Add,
    nodes.Sub, nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Mod, nodes.Neg, nodes.Pos, nodes.Concat,
    nodes.Filter, nodes.Test,
)
_FILTERS = ("default", "lower", "upper", "trim", "int", "string")


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"*", "%"})  # of texts, these would be copies and formats

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if not (isinstance(left, Number) and isinstance(right, Number)):
            raise TypeError(f"only numbers have a `{operator}`")
        return super().call_binop(context, operator, left, right)


@cache
def _environment() -> _Environment:
    return _Environment(undefined=StrictUndefined, keep_trailing_newline=True)


def _check(node: nodes.Node) -> None:
    """Raise `TemplateSyntaxError` for a part that no template of settings has."""
    for child in node.iter_child_nodes():
        name = type(child).__name__.lower()
        if not isinstance(child, _PARTS):
            raise TemplateSyntaxError(f"no {name} here: names, choices and sums", child.lineno)
        if isinstance(child, nodes.Filter) and child.name not in _FILTERS:
            known = ", ".join(_FILTERS)
            raise TemplateSyntaxError(f"no filter `{child.name}` here: {known}", child.lineno)
        _check(child)


def render(text: str, values: Mapping[str, object], where: str) -> str:
    """The text with `{{ names }}` replaced.

    `where` is what an error begins with, `stack.toml: profile.cpu-smoke.env.HOME` for one.
    Raises `ConfigError` for an unknown name, a syntax error, or an access that is not allowed.
    """
    if "{" not in text:
        return text
    try:
        parsed = _environment().parse(text)
        _check(parsed)
        return _environment().from_string(parsed).render(values)
    except UndefinedError as wrong:
        raise ConfigError(f"{where}: {wrong.message}", hint=_names(str(wrong), values)) from None
    except TemplateSyntaxError as wrong:
        text = f"{where}: line {wrong.lineno} of the template: {wrong.message}"
        raise ConfigError(text) from None
    except RecursionError:
        raise ConfigError(f"{where}: nested too deep") from None
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
