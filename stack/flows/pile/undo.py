"""What an input takes back of those before it: the lines they added or removed, by whom."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from stack.flows.pile.world import World
from stack.model.diff.linediff import changes
from stack.model.objects import SYMLINK, Entry

_SHOWN = 3


class Undone(msgspec.Struct, frozen=True, kw_only=True):
    """`lines` that an input takes back, of `changed` that it changes; `of` are whose they were."""

    lines: int = 0
    changed: int = 0
    of: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether the input does nothing else."""
        return 0 < self.lines == self.changed

    @property
    def text(self) -> str:
        if not self.lines:
            return ""
        whose = ", ".join(self.of[:_SHOWN])
        plural = "s" if self.lines > 1 else ""
        return f"takes back {self.lines} line{plural} of {whose}"


class Undoing:
    """Remembers, path by path, who added which lines to upstream's file and who removed which."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.added: dict[bytes, dict[bytes, str]] = {}
        self.removed: dict[bytes, dict[bytes, str]] = {}

    def take(self, entries: Mapping[bytes, Entry | None], by: str) -> Undone:
        """Look at the changes of an input before they are applied, and remember them."""
        undone = changed = 0
        whose: dict[str, None] = {}
        for path, after in entries.items():
            before = self.world.now(path).entry
            if after is not None and before is not None and SYMLINK in (before.mode, after.mode):
                changed += 1
                continue
            old = self.world.lines(before.oid).lines if before else []
            new = self.world.lines(after.oid).lines if after else []
            added = self.added.setdefault(path, {})
            removed = self.removed.setdefault(path, {})
            found = changes(old, new)
            if not found:
                changed += 1  # a mode alone
            for a, b, c, d in found:
                gone = [line for line in old[a:b] if line.strip()]
                come = [line for line in new[c:d] if line.strip()]
                size = max(len(gone) + len(come), 1)
                changed += size
                if (gone or come) and all(line in added for line in gone) and all(
                    line in removed for line in come
                ):
                    undone += size
                    whose |= dict.fromkeys(added[line] for line in gone)
                    whose |= dict.fromkeys(removed[line] for line in come)
            for a, b, c, d in found:
                for line in old[a:b]:
                    if line.strip() and added.pop(line, None) is None:
                        removed[line] = by
                for line in new[c:d]:
                    if line.strip() and removed.pop(line, None) is None:
                        added[line] = by
        return Undone(lines=undone, changed=changed, of=tuple(whose))
