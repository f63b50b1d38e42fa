"""Sections that need no place in a text: new files, deleted ones, binary content.

What fits the base and what stands as well is settled here, too: `either`.
"""

from __future__ import annotations

import msgspec

from stack.flows.pile.fit import Fit, Misfit, Prefer
from stack.flows.pile.kind import likelier, shown
from stack.flows.pile.world import View
from stack.model.diff.binary import apply_delta
from stack.model.objects import FILE, SYMLINK, Entry, object_id
from stack.model.pile.paths import leads_out
from stack.model.pile.sections import Flag, Section


class WholePlacer:
    """Places sections that bring or take away a whole file."""

    def __init__(self, view: View, prefer: Prefer = "") -> None:
        self.view, self.world, self.odb = view, view.world, view.world.odb
        self.prefer = prefer

    def misfit(self, section: Section, path: bytes, why: str) -> Misfit:
        """No place for a section, and why."""
        return Misfit(path, section.at, why)

    def entry(self, section: Section, data: bytes, before: Entry | None) -> Entry:
        """A file with this content, in the mode of the section or of what was there."""
        mode = section.new_mode or (before.mode if before else None) or FILE
        return Entry(mode, self.odb.add("blob", data))

    def add(self, section: Section, path: bytes) -> Fit | Misfit:
        """Make a new file, or put a newer whole in the place of an input's."""
        lines = [line for hunk in section.hunks for line in hunk.new]
        if not all(line.endswith(b"\n") for line in lines[:-1]):
            return self.misfit(section, path, "a line has no end in the middle of the new file")
        data = b"".join(lines)
        mode = section.new_mode or FILE
        if mode == SYMLINK and leads_out(path, data):
            return self.misfit(section, path, "a link that leads out of the tree")
        sure = bool(section.new_id) and object_id("blob", data).startswith(section.new_id)
        if any(hunk.cut for hunk in section.hunks) and not sure:
            return self.misfit(section, path, "the new file ends before its counted lines")
        now, base = self.view.now(path), self.world.upstream(path)
        entry = Entry(mode, self.odb.add("blob", data))
        flags = frozenset({Flag.OTHER_RESULT} if section.new_id and not sure else ())
        if now is None:
            return Fit(entries={path: entry}, how="new", sure=sure, flags=flags)
        if now.oid == entry.oid:
            return Fit(entries={}, how="there", sure=sure, flags=flags)
        if now == base:
            why = "the patch makes this file, but upstream has another one there"
            return self.misfit(section, path, why)
        by = self.world.now(path).by
        return Fit(
            entries={path: entry}, how="replaced", on=by, sure=sure, flags=flags, says="snapshot"
        )

    def delete(self, section: Section, path: bytes) -> Fit | Misfit:
        """Take a file away that has the content that the section takes away."""
        now = self.view.now(path)
        if now is None:
            return Fit(entries={}, how="there")
        data = b"".join(line for hunk in section.hunks for line in hunk.old)
        oid = object_id("blob", data)
        if now.oid == oid or (section.old_id and now.oid.startswith(section.old_id)):
            return Fit(entries={path: None}, how="deleted", sure=True)
        row = self.view.by_id(path, oid) or (
            self.view.by_id(path, section.old_id) if section.old_id else None
        )
        if row is not None:
            return Fit(entries={path: None}, how="deleted", on=row.by)
        return self.misfit(section, path, "the patch deletes this file, but it has other content")

    def binary(self, section: Section, path: bytes) -> Fit | Misfit:
        """Put binary content in the place of what it was made on."""
        assert section.binary is not None
        now = self.view.now(path)
        data: bytes | None = section.binary.data
        if section.binary.method == "delta":
            bases = [now, self.world.upstream(path)]
            delta = section.binary.data
            made = (apply_delta(self.odb.blob(one.oid), delta) for one in bases if one)
            data = next((one for one in made if one is not None), None)
        if data is None:
            return self.misfit(section, path, "binary content for another file than this")
        entry = self.entry(section, data, now)
        if section.new_id and not entry.oid.startswith(section.new_id):
            return self.misfit(section, path, "the binary content is not the blob that it names")
        if section.old_id and now is not None and not now.oid.startswith(section.old_id):
            row = self.view.by_id(path, section.old_id)
            if row is None and now != entry:
                return self.misfit(section, path, "binary content for another file than this")
        if now == entry:
            return Fit(entries={}, how="there", sure=True)
        return Fit(entries={path: entry}, how="binary", sure=True)

    def either(
        self, path: bytes, here: Fit | Misfit, was: Fit | Misfit, now: Entry, base: Entry
    ) -> list[Fit | Misfit]:
        """What is made on what stands and on the base, the likelier first."""
        says: Prefer = ""
        if isinstance(was, Misfit):
            if isinstance(here, Fit) and here.entries and Flag.MOVED not in here.flags:
                says = "increment"
        elif isinstance(here, Misfit) or here.entries == was.entries:
            says = "" if was.entries and isinstance(here, Fit) else "snapshot"
        else:
            says = shown(self.view, path, here, was)
            prefer = says or self.prefer or likelier(self.view, path, here, was, now, base)
            both = [was, here] if prefer == "snapshot" else [here, was]
            return [msgspec.structs.replace(one, torn=True, says=says) for one in both]
        found = [here, was]
        return [
            one if isinstance(one, Misfit) else msgspec.structs.replace(one, says=says)
            for one in found
        ]


def first_fit(ways: list[Fit | Misfit]) -> Fit | Misfit:
    """The first that fits."""
    return next((one for one in ways if isinstance(one, Fit)), ways[0])


def again(view: View, path: bytes, here: Fit | Misfit, there: Fit, now: Entry) -> Fit | Misfit:
    """What stands already and would fit once more: it stands, unless a later input names the other.

    It is flagged where no input names either.
    """
    if there.how != "there" or isinstance(here, Misfit) or not here.entries:
        return here
    once, twice = view.is_named(path, now), view.is_named(path, here.entries.get(path))
    if twice and not once:
        return here
    flags = frozenset() if once and not twice else frozenset({Flag.TWO_STATES})
    return msgspec.structs.replace(there, flags=there.flags | flags)
