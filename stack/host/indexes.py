"""Where packages come from: pip's own configuration, and which indexes answer right now."""

from __future__ import annotations

import ast
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import msgspec

from stack.host import process

PYPI = "https://pypi.org/simple"
CONNECT_TIMEOUT = 5.0
Silent = Mapping[str, str]  # an index that cannot be used, and why


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """Package indexes and link folders, in the order in which an installer is told of them."""

    indexes: tuple[str, ...]
    find_links: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    certificates: str | None = None
    proxy: str | None = None
    no_index: bool = False


def configured(python: str) -> Sources:
    """What pip is configured to use, its files and `PIP_*` together; PyPI where there is no pip."""
    code, out, _ = process.capture([python, "-m", "pip", "config", "list"])
    settings = parse_config(out.decode("utf-8", "replace")) if code == 0 else {}
    for name in ("index-url", "extra-index-url", "find-links", "constraint", "cert", "proxy",
                 "no-index"):
        value = os.environ.get("PIP_" + name.replace("-", "_").upper())
        if value:
            settings[name] = value
    indexes: list[str] = []
    no_index = settings.get("no-index", "").lower() in ("1", "true", "yes", "on")
    if not no_index:
        indexes = [settings.get("index-url", PYPI), *settings.get("extra-index-url", "").split()]
    return Sources(
        indexes=tuple(indexes), find_links=tuple(settings.get("find-links", "").split()),
        constraints=tuple(settings.get("constraint", "").split()),
        certificates=settings.get("cert"), proxy=settings.get("proxy"), no_index=no_index,
    )


def parse_config(text: str) -> dict[str, str]:
    """`pip config list` as option and value; a command's section and the environment win."""
    found: dict[str, tuple[int, str]] = {}
    ranks = {"global": 0, "install": 1, ":env:": 2}
    for line in text.splitlines():
        key, equals, quoted = line.partition("=")
        section, _, option = key.rpartition(".")
        rank = ranks.get(section)
        if not equals or rank is None:
            continue
        try:
            value = str(ast.literal_eval(quoted)).strip()
        except (ValueError, SyntaxError):
            continue
        if option not in found or found[option][0] <= rank:
            found[option] = (rank, value)
    return {option: value for option, (_, value) in found.items()}


def why_unreachable(url: str, sources: Sources, timeout: float = CONNECT_TIMEOUT) -> str | None:
    """Why an index cannot be used now, or None when it answers.

    Any answer counts, a refusal too: the installer may know a password that we do not.
    """
    parts = urlsplit(url)
    if parts.scheme in ("", "file"):
        path = Path(urllib.request.url2pathname(parts.path))
        return None if path.exists() else "no such folder"
    if parts.scheme not in ("http", "https"):
        return f"{parts.scheme} is not a kind of index"
    handlers: list[urllib.request.BaseHandler] = []
    if sources.proxy:
        handlers.append(urllib.request.ProxyHandler({parts.scheme: sources.proxy}))
    request = urllib.request.Request(  # noqa: S310 - the scheme was looked at
        bare(url), method="HEAD", headers={"User-Agent": "stack"}
    )
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=timeout):
            return None
    except urllib.error.HTTPError as answer:
        return None if answer.code < 500 else f"it answers {answer.code}"
    except urllib.error.URLError as wrong:
        if isinstance(wrong.reason, ssl.SSLError):
            return None
        return str(getattr(wrong.reason, "strerror", None) or wrong.reason)
    except (OSError, ValueError) as wrong:
        return str(wrong)


def reachable(
    sources: Sources, extra: Sequence[str]
) -> tuple[tuple[str, ...], Silent]:
    """The indexes that answer, `extra` last, and why each of the others does not."""
    answering: list[str] = []
    silent: dict[str, str] = {}
    for url in dict.fromkeys((*sources.indexes, *extra)):
        forbidden = "pip is configured to use no index" if sources.no_index else None
        why = forbidden or why_unreachable(url, sources)
        if why is None:
            answering.append(url)
        else:
            silent[bare(url)] = why
    return tuple(answering), silent


def bare(url: str) -> str:
    """A URL without user and password, for messages and records."""
    parts = urlsplit(url)
    if "@" not in parts.netloc:
        return url
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
