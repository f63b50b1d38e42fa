"""Whether what is to be imported is mail, which has one strict reader, or a pile."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stack.errors import BadPatch
from stack.flows.intake.trees import is_tree
from stack.flows.pile.read import PATCH_LIKE, list_files, read_file
from stack.model.mail.mail import parse_mail
from stack.model.mail.mailbox import split_mailbox
from stack.model.pile.decode import is_meant
from stack.store.project import Project

_MAIL = (".patch", ".mbox", ".eml")


def why_pile(project: Project, paths: Sequence[Path], folder: Path) -> str | None:
    """What makes these paths a pile, for the person; None where they are mail files and no more.

    Files without any diff are none: the strict reader says what is wrong with them.
    """
    if tree := next((path for path in paths if is_tree(project, path)), None):
        return f"{tree} is a tree that was edited"
    files = list_files(paths, folder)
    for file in files:
        if file.aside and file.series is None:
            return f"{file.shown} is {file.aside.partition(':')[0]}"
        if file.back or file.strip not in (None, 1):
            return f"{file.shown} has options in its series"
    odd = None
    files = [file for file in files if not file.aside]
    for file in files:
        listed = file.series is not None or any(file.path == path for path in paths)
        inside = any(file.path.parent == path for path in paths)
        if not (listed or (inside and file.path.suffix in _MAIL)):
            if file.path.name.lower().endswith(PATCH_LIKE) or read_file(file):
                odd = odd or f"{file.shown} is no mail"
        elif not _is_mail(file.path):
            odd = odd or f"{file.shown} is no mail"
    if odd is None:
        return None
    for file in files:
        found = read_file(file)
        if any(one.sections for one in found) or (found and is_meant(file.path.read_bytes())):
            return odd
    return None


def _is_mail(path: Path) -> bool:
    try:
        data = path.read_bytes()
        for first, raw in split_mailbox(data):
            parse_mail(raw, f"{path}:{first}")
    except BadPatch as wrong:
        return "not a patch in mail format" not in wrong.message
    except OSError:
        return False
    return True
