"""A line on its way to another order or content: what is picked, and where it stopped."""

from __future__ import annotations

import msgspec

from stack.model.line.line import Member
from stack.model.line.rebase import Place

SCHEMA = 1


class Pick(msgspec.Struct, frozen=True, kw_only=True):
    """The change of one commit against its parent, to become (part of) the patch `name`.

    With `into` it is added to the commit of that name just before. Message and author are those
    of the commit `like`, of `commit` itself where that is None; with `into` they stay.
    """

    name: str
    commit: str
    into: bool = False
    like: str | None = None


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """A pick that is settled: `commit` is the tip after it, `empty` that nothing came of it."""

    name: str
    commit: str
    empty: bool = False
    moved: bool = False


class Restack(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `--continue` needs, in a new shell and after a reboot.

    `order` are the names of the line's members as they will stand, `added` those that are new.
    workspace will have, None where there is no workspace. `head` is where it stands, `taken` a
    commit on that with the uncommitted work that goes into a patch, `left` the tree of that which
    stays uncommitted. `digest` is that of all files of the line at the beginning, `ends` the number
    of the operation that ends it, once that has begun.
    """

    schema: int = SCHEMA
    line: str
    what: str
    command: tuple[str, ...]
    base: str
    source: str
    digest: str
    order: tuple[str, ...]
    picks: tuple[Pick, ...]
    added: tuple[Member, ...] = ()
    applied: tuple[str, ...] | None = None
    head: str | None = None
    taken: str | None = None
    left: str | None = None
    made: tuple[Made, ...] = ()
    stopped: tuple[Place, ...] = ()
    ends: int | None = None

    @property
    def at(self) -> int:
        """The index of the pick that is next, or has stopped."""
        return len(self.made)

    @property
    def tip(self) -> str:
        """The commit on which the next pick goes."""
        return self.made[-1].commit if self.made else self.base

    @property
    def current(self) -> str | None:
        """The patch at which it stands."""
        return self.picks[self.at].name if self.at < len(self.picks) else None
