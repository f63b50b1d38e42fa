"""Text as a terminal may have it: what would steer it, hide text or turn it is spelled out."""

from __future__ import annotations

import re

# Control characters but tab and line feed, what is invisible or turns the direction of writing
# (Unicode TR36, section 2.5 and 3.5), line ends that are none here, tags, and bytes of no encoding.
_STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    r"""A text of any number of lines; `\x1b`, `\u202e` and their like stand there by name.

    A byte that was not UTF-8 (a surrogate of Python's file names) is named as the byte.
    """
    return _STEERING.sub(_named, text) if not text.isprintable() else text


def visible_line(text: str) -> str:
    """The same in one line: a line feed is spelled out too."""
    return visible(text).replace("\n", "\\n")


def visible_json(text: str) -> str:
    """A JSON document of the same meaning, in which such characters are JSON's own escapes."""
    return _STEERING.sub(_escaped, text)


def _named(found: re.Match[str]) -> str:
    code = ord(found[0])
    if 0xDC80 <= code <= 0xDCFF:
        code -= 0xDC00
    return ascii(chr(code))[1:-1]


def _escaped(found: re.Match[str]) -> str:
    pair = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{pair[at : at + 2].hex()}" for at in range(0, len(pair), 2))
