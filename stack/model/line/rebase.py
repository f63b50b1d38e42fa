"""A rebase on its way: what is carried, how far it is, and where it stopped."""

from __future__ import annotations

import msgspec

from stack.model.diff.merge3 import Region
from stack.model.line.line import Left, Member, Pin
from stack.model.line.outcome import Outcome

SCHEMA = 1


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """A patch that is settled: `commit` is the series' tip after it, `note` says what to know."""

    name: str
    outcome: Outcome
    commit: str
    tree: str
    notes: tuple[str, ...] = ()
    dropped: bool = False


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A path with a conflict, its regions and the text with markers that was given to the user."""

    path: str
    why: str
    regions: tuple[Region, ...] = ()
    marked: bytes | None = None


class Rebase(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `--continue` needs, in a new shell and after a reboot.

    `kept` are the members of the line at the target that stay in front (`--into`), `start` the
    commit after them. `at` is the index in `members` of the patch that is next or has stopped.
    `left` are the patches that stay behind for good, `ends` is the number of the operation that
    ends it, once that has begun. Nothing is `stopped` where a kill came before the next stop.
    """

    schema: int = SCHEMA
    source: str
    target: str
    pin: Pin
    base: str
    start: str
    into: bool = False
    kept: tuple[Member, ...] = ()
    members: tuple[Member, ...] = ()
    digest: str = ""
    at: int = 0
    done: tuple[Done, ...] = ()
    stopped: tuple[Place, ...] = ()
    left: tuple[Left, ...] = ()
    command: tuple[str, ...] = ()
    ends: int | None = None

    @property
    def tip(self) -> str:
        """The commit on which the next patch goes."""
        return self.done[-1].commit if self.done else self.start

    @property
    def current(self) -> str | None:
        """The patch at which it stands."""
        return self.members[self.at].name if self.at < len(self.members) else None
