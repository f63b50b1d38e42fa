"""One section of a pile finds its place: by id, by content, by elided context, or it stands there.

A section that starts from the base's blob is a snapshot: its result takes the place of what
stands, for that is what the worktree was then. One that starts from what stands is an increment.
Made on an older state, it is merged onto what stands, and only if no line is in dispute.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from stack.flows.pile_fit import Fit, How, Misfit, Prefer
from stack.flows.pile_kind import likelier, shown
from stack.flows.pile_world import View
from stack.model.diff_binary import apply_delta
from stack.model.merge3 import merge
from stack.model.objects import FILE, SYMLINK, Entry, object_id
from stack.model.pile import Flag, Section
from stack.model.pile_paths import leads_out
from stack.model.pile_place import Placing, Unfit, place

_MOST_OLDER = 8


class Placer:
    """Places the sections of one input."""

    def __init__(self, view: View, prefer: Prefer = "") -> None:
        self.view, self.world, self.odb = view, view.world, view.world.odb
        self.prefer = prefer

    def put(self, section: Section, path: bytes, old_path: bytes) -> Fit | Misfit:
        """Place a section at `path`; `old_path` differs from it for renames and copies."""
        if section.binary is not None:
            return self._binary(section, path)
        if section.kind == "add":
            return self._add(section, path)
        if section.kind == "delete":
            return self._delete(section, path)
        if section.kind in ("rename", "copy") and old_path != path:
            return self._rename(section, path, old_path)
        if not section.hunks:
            return self._mode(section, path)
        return self._modify(section, path)

    def _misfit(self, section: Section, path: bytes, why: str) -> Misfit:
        return Misfit(path, section.at, why)

    def _entry(self, section: Section, data: bytes, before: Entry | None) -> Entry:
        mode = section.new_mode or (before.mode if before else None) or FILE
        return Entry(mode, self.odb.add("blob", data))

    def _add(self, section: Section, path: bytes) -> Fit | Misfit:
        data = b"".join(line for hunk in section.hunks for line in hunk.new)
        mode = section.new_mode or FILE
        if mode == SYMLINK and leads_out(path, data):
            return self._misfit(section, path, "a link that leads out of the tree")
        sure = bool(section.new_id) and object_id("blob", data).startswith(section.new_id)
        if any(hunk.cut for hunk in section.hunks) and not sure:
            return self._misfit(section, path, "the new file ends before its counted lines")
        now, base = self.view.now(path), self.world.upstream(path)
        entry = Entry(mode, self.odb.add("blob", data))
        flags = frozenset({Flag.OTHER_RESULT} if section.new_id and not sure else ())
        if now is None:
            return Fit(entries={path: entry}, how="new", sure=sure, flags=flags)
        if now.oid == entry.oid:
            return Fit(entries={}, how="there", sure=sure, flags=flags)
        if now == base:
            why = "the patch makes this file, but upstream has another one there"
            return self._misfit(section, path, why)
        by = self.world.now(path).by
        return Fit(
            entries={path: entry}, how="replaced", on=by, sure=sure, flags=flags, says="snapshot"
        )

    def _delete(self, section: Section, path: bytes) -> Fit | Misfit:
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
        return self._misfit(section, path, "the patch deletes this file, but it has other content")

    def _mode(self, section: Section, path: bytes) -> Fit | Misfit:
        now = self.view.now(path)
        if now is None or section.new_mode is None or SYMLINK in (now.mode, section.new_mode):
            return self._misfit(section, path, "no such file")
        if now.mode == section.new_mode:
            return Fit(entries={}, how="there")
        return Fit(entries={path: Entry(section.new_mode, now.oid)}, how="mode")

    def _rename(self, section: Section, path: bytes, old: bytes) -> Fit | Misfit:
        source = self.view.now(old)
        moved = source is None and self.view.now(path) is not None
        if section.old_id and (row := self.view.by_id(old, section.old_id)):
            source = row.entry
        elif source is None and moved:
            source = self.world.upstream(old)
        if source is None:
            return self._misfit(section, old, "no such file")
        put = place(self.world.lines(source.oid), section.hunks, known=bool(section.old_id))
        if isinstance(put, Unfit):
            return Misfit(old, put.line, put.why)
        entry = self._entry(section, put.data, source)
        entries: dict[bytes, Entry | None] = {path: entry}
        if section.kind == "rename":
            entries[old] = None
        gone = {one: to for one, to in entries.items() if self.view.now(one) != to}
        return Fit(entries=gone, how="renamed" if gone else "there", flags=put.flags)

    def _binary(self, section: Section, path: bytes) -> Fit | Misfit:
        assert section.binary is not None
        now = self.view.now(path)
        data: bytes | None = section.binary.data
        if section.binary.method == "delta":
            bases = [now, self.world.upstream(path)]
            delta = section.binary.data
            made = (apply_delta(self.odb.blob(one.oid), delta) for one in bases if one)
            data = next((one for one in made if one is not None), None)
        if data is None:
            return self._misfit(section, path, "binary content for another file than this")
        entry = self._entry(section, data, now)
        if section.new_id and not entry.oid.startswith(section.new_id):
            return self._misfit(section, path, "the binary content is not the blob that it names")
        if section.old_id and now is not None and not now.oid.startswith(section.old_id):
            row = self.view.by_id(path, section.old_id)
            if row is None and now != entry:
                return self._misfit(section, path, "binary content for another file than this")
        if now == entry:
            return Fit(entries={}, how="there", sure=True)
        return Fit(entries={path: entry}, how="binary", sure=True)

    def _modify(self, section: Section, path: bytes) -> Fit | Misfit:
        now = self.view.now(path)
        if now is not None and SYMLINK in (now.mode, section.old_mode) and now.mode != (
            section.old_mode or now.mode
        ):
            return self._misfit(section, path, "a link on one side and a file on the other")
        if now is not None and section.new_id and now.oid.startswith(section.new_id):
            base = self.world.upstream(path)
            old = section.old_id and base is not None and base.oid.startswith(section.old_id)
            return Fit(entries={}, how="there", sure=True, says="snapshot" if old else "")
        key = (path, now.oid if now else "", section.hunks)
        if (known := self.world.there.get(key)) is not None:
            return known
        found = self._best(section, path, now)
        if isinstance(found, Fit) and found.how == "there" and not (section.old_id or found.torn):
            self.world.there[key] = found
        return found

    def _best(self, section: Section, path: bytes, now: Entry | None) -> Fit | Misfit:
        """The first way of which the ids are proof, else the likeliest."""
        cut = next((hunk for hunk in section.hunks if hunk.cut), None)
        found: Fit | None = None
        first: Misfit | None = None
        for way in self._ways(section, path, now):
            if isinstance(way, Misfit):
                first = first or way
                continue
            if way.sure or (not section.new_id and cut is None):
                return way
            found = found or way
        if found is None:
            return first or self._misfit(section, path, "no such file")
        if cut is not None:
            return Misfit(path, cut.at, "the hunk ends before the lines that its header counts")
        return msgspec.structs.replace(found, flags=found.flags | {Flag.OTHER_RESULT})

    def _ways(self, section: Section, path: bytes, now: Entry | None) -> Iterator[Fit | Misfit]:
        """Every way in which a section may be meant, the likeliest first."""
        base = self.world.upstream(path)
        turn = self.view.at_turn(path)
        oid = section.old_id
        if oid:
            row = self.view.by_id(path, oid)
            if now is not None and now.oid.startswith(oid):
                says: Prefer = "" if now == base else "increment"
                yield self._on(section, path, now, "increment", known=True, says=says)
            elif row is not None and row.entry is not None:
                if row.entry in {base, turn}:
                    says = "snapshot" if row.entry == base else ""
                    yield self._on(
                        section, path, row.entry, "snapshot", known=True, late=turn, says=says
                    )
                else:
                    yield self._on(section, path, row.entry, "older", known=True, on=row.by)
            elif now is not None and (blob := self.world.foreign(oid)) is not None:
                alien = Entry(now.mode, self.odb.add("blob", blob))
                yield self._on(section, path, alien, "foreign", known=True)
        snapshot = not oid and base is not None and base != now
        if now is not None:
            yield from self._plain(section, path, now, base if snapshot else None, turn)
        if snapshot:
            yield self._on(section, path, base, "snapshot", late=turn)
        older = [
            one for one in reversed(self.world.history(path)[1:])
            if one.entry is not None and one.entry not in {now, base}
        ]
        for one in older[:_MOST_OLDER]:
            yield self._on(section, path, one.entry, "merged", on=one.by)
        if now is not None:
            yield self._on(section, path, now, "elided")
        if snapshot:
            yield self._on(section, path, base, "elided")

    def _plain(
        self, section: Section, path: bytes, now: Entry, base: Entry | None, turn: Entry | None
    ) -> Iterator[Fit | Misfit]:
        """On what stands, and on the base where it may be a snapshot; both where they differ."""
        here = self._on(section, path, now, "increment")
        there = self._there(section, path, now)
        if isinstance(here, Misfit) and there is not None and there.how == "there":
            here = there
        if base is None:
            yield here
        else:
            numbered = all(hunk.old_start is not None for hunk in section.hunks)
            was = self._on(section, path, base, "snapshot", exact=numbered, late=turn)
            yield from self._either(path, here, was, now, base)
        if there is not None:
            yield there

    def _either(
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

    def _there(self, section: Section, path: bytes, now: Entry) -> Fit | None:
        """Some or all of the hunks stand there already."""
        put = place(self.world.lines(now.oid), section.hunks, there=True)
        if isinstance(put, Unfit) or not put.there:
            return None
        if len(put.there) == len(section.hunks):
            return Fit(entries={}, how="there")
        entry = self._entry(section, put.data, now)
        return Fit(entries={path: entry}, how="increment", flags=put.flags)

    def _on(
        self, section: Section, path: bytes, entry: Entry | None, how: How, *,
        known: bool = False, exact: bool = False, on: str = "", late: Entry | None = None,
        says: Prefer = "",
    ) -> Fit | Misfit:
        """Apply to one state, and bring the result to what stands now."""
        if entry is None:
            return self._misfit(section, path, "no such file")
        def wanted(data: bytes) -> bool:
            return object_id("blob", data).startswith(section.new_id)

        put = place(
            self.world.lines(entry.oid), section.hunks, known=known, exact=exact,
            elide=how == "elided", wanted=wanted if section.new_id and known else None,
        )
        if isinstance(put, Unfit) and known:
            put = place(self.world.lines(entry.oid), section.hunks, known=True, elide=True)
        if isinstance(put, Unfit):
            return Misfit(path, put.line, put.why)
        sure = bool(section.new_id) and object_id("blob", put.data).startswith(section.new_id)
        fit = self._brought(section, path, entry, put, how, on=on, late=late, sure=sure)
        return msgspec.structs.replace(fit, says=says) if says and isinstance(fit, Fit) else fit

    def _brought(
        self, section: Section, path: bytes, entry: Entry, put: Placing, how: How, *, on: str,
        late: Entry | None, sure: bool,
    ) -> Fit | Misfit:
        now = self.view.now(path)
        data, flags = put.data, put.flags
        is_late = how == "snapshot" and late is not None and late != now
        if now is not None and (how in ("older", "merged", "foreign") or is_late):
            from_ = late if is_late and late is not None else entry
            there, here = self.odb.blob(from_.oid), self.odb.blob(now.oid)
            if here != there:
                done = merge(there, here, data)
                settled = how == "older" and sure
                if done.regions and not settled:
                    by = self.world.now(path).by or "upstream"
                    why = f"made on another state, and it disputes {len(done.regions)} places"
                    return self._misfit(section, path, f"{why} with {by}")
                if done.data == here:
                    return Fit(entries={}, how="there", on=on, sure=sure)
                if not settled:
                    data = done.data
        made = self._entry(section, data, entry)
        entries: dict[bytes, Entry | None] = {} if made == now else {path: made}
        return Fit(
            entries=entries, how=how if entries else "there", flags=flags, on=on, sure=sure
        )
