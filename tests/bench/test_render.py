"""Templates are strict, and every mistake names the key it stands in."""

from __future__ import annotations

import pytest

from stack.bench.render import render, render_all, render_env
from stack.errors import ConfigError

VALUES = {"python": "/venv/bin/python", "cpus": 2, "out": "/o"}
WHERE = "stack.toml: bench.x.command"


def test_names_are_replaced_and_the_rest_is_untouched() -> None:
    assert render("{{ python }} -c '{{ cpus * 2 }}'\n", VALUES, WHERE) == (
        "/venv/bin/python -c '4'\n"
    )
    assert render("plain $HOME {x}", VALUES, WHERE) == "plain $HOME {x}"
    assert render("{% if cpus > 1 %}many{% endif %}", VALUES, WHERE) == "many"


def test_values_are_not_templates() -> None:
    assert render("{{ out }}", {"out": "{{ python }}"}, WHERE) == "{{ python }}"


def test_an_unknown_name_is_an_error_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError) as caught:
        render("{{ pyhton }}", VALUES, WHERE)
    assert caught.value.message == f"{WHERE}: 'pyhton' is undefined"
    assert caught.value.hint == "did you mean `python`?"
    with pytest.raises(ConfigError) as caught:
        render("{{ zzz }}", VALUES, WHERE)
    assert caught.value.hint == "a template may use cpus, out, python"


@pytest.mark.parametrize(
    "text",
    [
        "{{ python", "{% for %}", "{{ 1 / 0 }}", "{{ python.__class__.__mro__ }}",
        "{{ python | nothing }}", "{% include 'x' %}", "{{ cpus + python }}",
        # Small texts that would take hours or gigabytes.
        "{{ 'x' * 10**9 }}", "{{ 'x' * 1000000000 }}", "{{ 9**9**9 }}", "{{ '%9999999999d' % 1 }}",
        "{{ python.ljust(10000000000) }}", "{{ python | center(10000000000) }}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{{ a }}{% endfor %}{% endfor %}",
        "{% set a = 'xxxx' %}{% set a = a ~ a ~ a %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{{ [python] * 1000000000 }}", "{{ python | replace('n', python) }}", "{{ lipsum(99999) }}",
        "{{ " + "(" * 20000 + "1" + ")" * 20000 + " }}", "{{ " + "-" * 20000 + "1 }}",
        "{{ " + "9" * 9000 + " * 2 }}", "{% block x %}{% endblock %}", "{{ python[0] }}",
    ],
)
def test_every_other_mistake_names_the_key(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        render(text, VALUES, WHERE)
    assert caught.value.message.startswith(f"{WHERE}: ")


def test_lists_and_environments_name_the_element() -> None:
    assert render_all(["a", "{{ cpus }}"], VALUES, WHERE) == ("a", "2")
    with pytest.raises(ConfigError, match=r"command\[1\]: 'no' is undefined"):
        render_all(["a", "{{ no }}"], VALUES, WHERE)
    assert render_env({"A": "{{ cpus }}"}, VALUES, "env") == {"A": "2"}
    with pytest.raises(ConfigError, match=r"env\.A: 'no' is undefined"):
        render_env({"A": "{{ no }}"}, VALUES, "env")
