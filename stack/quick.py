"""The answers that must cost no more than a few blinks of `python -c pass`.

`stack list` and shell completion are asked for while a person types, so this module imports
nothing but the standard library's smallest parts: no argument parser, no validation, no git. What
it does not understand it leaves to the full command line, which gives the same text.
"""

from __future__ import annotations

import os
import sys

TYPES = {"fix": "fix", "feature": "feature", "diagnostic": "diagnostic", "experiment": "experiment"}


def answer(argv: list[str]) -> int | None:
    """The exit code if the command line was answered here, else None."""
    if "_STACK_COMPLETE" in os.environ:
        return _complete()
    if argv and argv[0] == "list" and all(not part.startswith("-") for part in argv[1:]):
        root = find_root(os.getcwd())
        if root is None:
            return None
        try:
            text = list_text(root, argv[1:])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None  # the full command line says what is wrong, with file and line
        if not text.replace("\n", "").isprintable():
            return None  # a name that would steer the terminal; the full command line spells it out
        sys.stdout.write(text)
        return 0
    return None


def find_root(folder: str) -> str | None:
    """The nearest folder at or above `folder` with a `stack.toml`."""
    while True:
        if os.path.isfile(os.path.join(folder, "stack.toml")):
            return folder
        parent = os.path.dirname(folder)
        if parent == folder:
            return None
        folder = parent


def lines(root: str) -> list[str]:
    """The ids of all lines of a project, in natural order."""
    found = []
    patches = os.path.join(root, "patches")
    for upstream in sorted(os.listdir(patches)) if os.path.isdir(patches) else ():
        folder = os.path.join(patches, upstream)
        if os.path.isdir(folder):
            found += [
                f"{upstream}/{label}"
                for label in sorted(os.listdir(folder), key=_natural)
                if os.path.isfile(os.path.join(folder, label, "series.toml"))
            ]
    return found


def members(root: str, line: str) -> list[dict[str, object]]:
    """The patches of a line, as `series.toml` has them; `ValueError` for what is not ours."""
    return _tables(root, line)[0]


def _tables(root: str, line: str) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """The patches of a line, and those that it goes without."""
    import tomllib

    with open(os.path.join(root, "patches", line, "series.toml"), "rb") as file:
        data = file.read()
    if any(row.count(b".") > 64 for row in data.split(b"\n")):
        raise ValueError(line)  # such a key would take all memory: model/toml.py says so
    document = tomllib.loads(data.decode())
    if document.get("schema") != 1:
        raise ValueError(line)
    found, left = document.get("patch", []), document.get("left", [])
    if any(not isinstance(member["name"], str) for member in (*found, *left)):
        raise ValueError(line)
    return list(found), list(left)


def list_text(root: str, wanted: list[str]) -> str:
    """What `stack list [UPSTREAM | LINE]...` prints; `KeyError` for a name that is not there."""
    known = lines(root)
    chosen = [
        line
        for line in known
        if not wanted or any(name in (line, line.partition("/")[0]) for name in wanted)
    ]
    for name in wanted:
        if not any(name in (line, line.partition("/")[0]) for line in known):
            raise KeyError(name)
    out = []
    for line in chosen:
        patches, left = _tables(root, line)
        active = sum(patch.get("state", "active") == "active" for patch in patches)
        parked = len(patches) - active
        out.append(f"{line}  {active} active" + (f", {parked} parked" if parked else ""))
        width = max((len(str(patch["name"])) for patch in (*patches, *left)), default=0)
        for patch in patches:
            state = str(patch.get("state", "active"))
            if reason := patch.get("reason"):
                state += f" ({reason})"
            kind = str(patch.get("kind", "feature"))
            mark = "+" if state == "active" else "-"
            out.append(f"  {mark} {str(patch['name']).ljust(width)}  {kind.ljust(10)}  {state}")
        for patch in left:
            where = f"left in {patch['source']} ({patch['reason']})"
            out.append(f"  x {str(patch['name']).ljust(width)}  {' ' * 10}  {where}")
    return "\n".join(out) + "\n" if out else "no lines yet: stack line add NAME@REV\n"


def _natural(label: str) -> list[tuple[int, str]]:
    parts, number = [], ""
    for piece in label.replace("-", ".").split("."):
        number = piece if piece.isdigit() else ""
        parts.append((int(number), "") if number else (-1, piece))
    return parts


def _complete() -> int | None:
    """Answer click's completion protocol for verbs, lines and patches; None for options."""
    instruction = os.environ["_STACK_COMPLETE"]
    shell, _, what = instruction.partition("_")
    if what != "complete" or shell not in ("bash", "zsh", "fish"):
        return None
    words = os.environ.get("COMP_WORDS", "").split()
    if shell == "fish":
        current = os.environ.get("COMP_CWORD", "")
        before = words[1:-1] if words and words[-1] == current and current else words[1:]
    else:
        at = int(os.environ.get("COMP_CWORD", "0"))
        before, current = words[1:at], words[at] if at < len(words) else ""
    if current.startswith("-") or any(part.startswith("-") for part in before):
        return None
    if not before:
        from stack.verbs import GROUPS

        found = {verb: text for verbs in GROUPS.values() for verb, text in verbs.items()}
    elif before[0] in ("upstream", "line", "completion"):
        return None
    else:
        root = find_root(os.getcwd())
        found = {}
        for line in lines(root) if root else ():
            found[line] = "line"
            try:
                for patch in members(root or "", line):
                    found.setdefault(str(patch["name"]), line)
            except (OSError, ValueError, KeyError, TypeError, RecursionError):
                continue
    for word, text in found.items():
        if word.startswith(current) and word.isprintable():
            if shell == "zsh":
                sys.stdout.write(f"plain\n{word}\n{text}\n")
            elif shell == "fish":
                sys.stdout.write(f"plain,{word}\t{text}\n")
            else:
                sys.stdout.write(f"plain,{word}\n")
    return 0
