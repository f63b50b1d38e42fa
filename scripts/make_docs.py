"""Write docs/cli.md, the reference of the command line, from the verbs' own help.

python scripts/make_docs.py            # tests/test_docs.py compares it with what stands there
"""

from __future__ import annotations

import copy
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
TARGET = Path(__file__).resolve().parent.parent / "docs" / "cli.md"


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


if __name__ == "__main__":
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(reference())
    print(TARGET)
