"""Write docs/cli.md from the verbs' help, and ARCHITECTURE.md's layers from their contract.

python scripts/make_docs.py            # tests/test_docs.py compares both with what stands there
"""

from __future__ import annotations

import copy
import re
import tomllib
from pathlib import Path

import click

from stack.cli import root
from stack.verbs import GROUPS

WIDTH = 96
HEAD = """\
# The command line

Written by `python scripts/make_docs.py` from the verbs' own help; a test compares.

Every verb takes `-C DIR`, `--json`, `--color` and `--quiet`, before or after its name.
"""
ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "cli.md"
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
_PICTURE = re.compile(r"(## Layers\n.*?```\n)(.*?)(```\n)", re.DOTALL)
# What each module of the contract is for; which stands above which is the contract's to say.
WORDS = {
    "__main__": "quick answers first (stack list, completion), then the command line",
    "cli": "the group, the global flags, the one error boundary, the exit codes",
    "commands": "one verb a file",
    "options": "options that several verbs share",
    "context": "one run: the project, the console",
    "console": "the only writer to stdout and stderr; the only one that knows rich",
    "flows": "what a verb does, without a terminal; says what it does through events",
    "repo": "git, objects, replay and merge",
    "bench": "trials and logs",
    "report": "tables",
    "host": "processes, environments",
    "store": "files, locks, the project on disk, the ledger",
    "quick": "what `stack list` and completion need, and nothing else",
    "verbs": "the table of verbs",
    "model": "pure values and rules: bytes in, values out; opens no file",
    "errors": "",
}


def help_of(command: click.Command, name: str) -> str:
    """A command's help as `--help` prints it at a fixed width, without the global flags."""
    command = copy.copy(command)
    command.params = [p for p in command.params if not (p.name or "").startswith("global_")]
    context = click.Context(command, info_name=name, max_content_width=WIDTH, terminal_width=WIDTH)
    return command.get_help(context).rstrip() + "\n"


def reference() -> str:
    """The whole reference."""
    parts = [HEAD]
    outer = click.Context(root, info_name="stack")
    for group, verbs in GROUPS.items():
        parts.append(f"\n## {group}\n")
        for name, short in verbs.items():
            command = root.get_command(outer, name)
            assert command is not None
            parts.append(f"\n### stack {name}\n\n{short}.\n\n")
            parts.append(f"```\n{help_of(command, f'stack {name}')}```\n")
            if isinstance(command, click.Group):
                parts += [
                    f"\n```\n{help_of(inner, f'stack {name} {sub}')}```\n"
                    for sub, inner in command.commands.items()
                ]
    return "".join(parts)


def layers() -> str:
    """The picture of the layers: a row for each of the contract's, siblings divided by a bar.

    `KeyError` for a module that has no words, `ValueError` for words of no module.
    """
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    found = next(one["layers"] for one in contract["contracts"] if one["type"] == "layers")
    rows = [row.split(" | ") for row in found]
    if unknown := WORDS.keys() - {name for row in rows for name in row}:
        raise ValueError(f"no layer of the contract: {', '.join(sorted(unknown))}")
    drawn = []
    for row in rows:
        names = " | ".join(
            f"{name}/" if (ROOT / "stack" / name).is_dir() else name for name in row
        )
        words = " | ".join(WORDS[name] for name in row)
        drawn.append(f"{names:<25} {words}".rstrip() + "\n")
    return "".join(drawn)


def architecture() -> str:
    """ARCHITECTURE.md as it stands there, with the picture as it has to be."""
    before = ARCHITECTURE.read_text()
    text, count = _PICTURE.subn(lambda found: found[1] + layers() + found[3], before)
    if count != 1:
        raise ValueError(f"{ARCHITECTURE}: no block under `## Layers`")
    return text


if __name__ == "__main__":
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(reference())
    ARCHITECTURE.write_text(architecture())
    print(TARGET, ARCHITECTURE, sep="\n")
