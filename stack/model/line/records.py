"""The documents that stack writes about what it did, each with its schema number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from stack.model.line.outcome import Step

RECEIPT_SCHEMA = 1
JOURNAL_SCHEMA = 1
OPERATION_SCHEMA = 1


class Editing(msgspec.Struct, frozen=True, kw_only=True):
    """A patch at which a workspace stands to be edited, and the receipt from before that."""

    patch: str
    before: Receipt


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """What was applied in a workspace: where the base came from, and each patch's ids."""

    schema: int = RECEIPT_SCHEMA
    line: str
    label: str
    base: str
    base_tree: str
    source: Literal["git", "path", "sdist"]
    digest: str
    selected: tuple[str, ...]
    steps: tuple[Step, ...]
    head: str
    tree: str
    git_version: str
    stack_version: str
    editing: Editing | None = None


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One change by a verb, with what undo needs: files and heads before and after.

    `before` and `after` map a line to its `head` (commit), `files` (tree id) and `receipt` (text),
    each None where there was none.
    """

    schema: int = OPERATION_SCHEMA
    number: int
    time: str
    command: tuple[str, ...]
    summary: str
    upstream: str
    before: Mapping[str, Mapping[str, str | None]]
    after: Mapping[str, Mapping[str, str | None]]
    undoes: int | None = None
    redoes: int | None = None


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The one document that `--json` prints."""

    stack_result: int = 1
    command: tuple[str, ...]
    status: Literal["success", "partial", "error"]
    exit_code: int
    data: Mapping[str, Any]
    errors: tuple[Mapping[str, Any], ...] = ()
