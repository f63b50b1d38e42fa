"""One section of a pile finds its place: by id, by content, by elided context, or it stands there.

A section that starts from the base's blob is a snapshot: its result takes the place of what
stands, for that is what the worktree was then. One that starts from what stands is an increment.
Made on an older state, it is merged onto what stands, and only if no line is in dispute.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from stack.flows.pile.fit import Fit, How, Misfit, Prefer
from stack.flows.pile.whole import WholePlacer, again, first_fit
from stack.model.diff.merge3 import merge
from stack.model.objects import SYMLINK, Entry, object_id
from stack.model.pile.place import Placing, Unfit, place
from stack.model.pile.sections import Flag, Section

_MOST_OLDER = 8


class Placer(WholePlacer):
    """Places the sections of one input."""

    def put(self, section: Section, path: bytes, old_path: bytes) -> Fit | Misfit:
        """Place a section at `path`; `old_path` differs from it for renames and copies."""
        if section.binary is not None:
            return self.binary(section, path)
        if section.kind == "add":
            return self.add(section, path)
        if section.kind == "delete":
            return self.delete(section, path)
        if section.kind in ("rename", "copy") and old_path != path:
            return self._rename(section, path, old_path)
        if not section.hunks:
            return self._mode(section, path)
        return self._modify(section, path)

    def _mode(self, section: Section, path: bytes) -> Fit | Misfit:
        now, base = self.view.now(path), self.world.upstream(path)
        mode = section.new_mode
        if now is None or mode is None or SYMLINK in (now.mode, mode):
            return self.misfit(section, path, "no such file")
        there = now.mode == mode
        here = Fit(entries={} if there else {path: Entry(mode, now.oid)}, how="mode")
        if base is None or base.oid == now.oid or base.mode == mode:
            return here if here.entries else Fit(entries={}, how="there")
        was = Fit(entries={path: Entry(mode, base.oid)}, how="snapshot")  # a mode and no edits
        return first_fit(self.either(path, here, was, now, base))

    def _rename(self, section: Section, path: bytes, old: bytes) -> Fit | Misfit:
        now, base = self.view.now(old), self.world.upstream(old)
        moved = now is None and self.view.now(path) is not None
        row = self.view.by_id(old, section.old_id) if section.old_id else None
        if row is not None:
            return self._renamed(section, path, old, row.entry, known=True)
        here = self._renamed(section, path, old, base if moved else now, known=False)
        if now is None or base is None or base == now or section.old_id:
            return here
        was = self._renamed(section, path, old, base, known=False)
        if isinstance(was, Fit) and was.entries:
            was = msgspec.structs.replace(was, how="snapshot")
        return first_fit(self.either(path, here, was, now, base))

    def _renamed(
        self, section: Section, path: bytes, old: bytes, source: Entry | None, *, known: bool
    ) -> Fit | Misfit:
        """The new file, made of one state of the old one."""
        if source is None:
            return self.misfit(section, old, "no such file")
        put = place(self.world.lines(source.oid), section.hunks, known=known)
        if isinstance(put, Unfit):
            return Misfit(old, put.line, put.why)
        entries: dict[bytes, Entry | None] = {path: self.entry(section, put.data, source)}
        if section.kind == "rename":
            entries[old] = None
        gone = {one: to for one, to in entries.items() if self.view.now(one) != to}
        return Fit(entries=gone, how="renamed" if gone else "there", flags=put.flags)

    def _modify(self, section: Section, path: bytes) -> Fit | Misfit:
        now = self.view.now(path)
        if now is not None and SYMLINK in (now.mode, section.old_mode) and now.mode != (
            section.old_mode or now.mode
        ):
            return self.misfit(section, path, "a link on one side and a file on the other")
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
            cut = cut or next((hunk for hunk in section.hunks if hunk.stripped), None)
        if cut is not None:
            return Misfit(path, cut.at, "the hunk ends before the lines that its header counts")
        if found is None:
            return first or self.misfit(section, path, "no such file")
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
        yield from self._older(section, path, {now, base})
        if now is not None and snapshot and base is not None:
            here, was = (self._on(section, path, one, "elided") for one in (now, base))
            yield from self.either(path, here, was, now, base)
        elif now is not None:
            yield self._on(section, path, now, "elided")

    def _older(
        self, section: Section, path: bytes, known: set[Entry | None]
    ) -> Iterator[Fit | Misfit]:
        """On the states before, the last one first; flagged where they disagree."""
        older = [
            one for one in reversed(self.world.history(path)[1:])
            if one.entry is not None and one.entry not in known
        ]
        ways = [
            self._on(section, path, one.entry, "merged", on=one.by) for one in older[:_MOST_OLDER]
        ]
        fits = [one for one in ways if isinstance(one, Fit)]
        if any(one.entries != fits[0].entries for one in fits):
            flags = fits[0].flags | {Flag.TWO_STATES}
            yield msgspec.structs.replace(fits[0], flags=flags)
        yield from ways

    def _plain(
        self, section: Section, path: bytes, now: Entry, base: Entry | None, turn: Entry | None
    ) -> Iterator[Fit | Misfit]:
        """On what stands, and on the base where it may be a snapshot; both where they differ."""
        here = self._on(section, path, now, "increment")
        there = self._there(section, path, now)
        if isinstance(here, Misfit) and there is not None and there.how == "there":
            here = there
        if base is None:
            yield here if there is None else again(self.view, path, here, there, now)
        else:
            numbered = all(hunk.old_start is not None for hunk in section.hunks)
            was = self._on(section, path, base, "snapshot", exact=numbered, late=turn)
            yield from self.either(path, here, was, now, base)
        if there is not None:
            yield there

    def _there(self, section: Section, path: bytes, now: Entry) -> Fit | None:
        """Some or all of the hunks stand there already."""
        put = place(self.world.lines(now.oid), section.hunks, there=True)
        if isinstance(put, Unfit) or not put.there:
            return None
        if len(put.there) == len(section.hunks):
            return Fit(entries={}, how="there")
        entry = self.entry(section, put.data, now)
        return Fit(entries={path: entry}, how="increment", flags=put.flags)

    def _on(
        self, section: Section, path: bytes, entry: Entry | None, how: How, *,
        known: bool = False, exact: bool = False, on: str = "", late: Entry | None = None,
        says: Prefer = "",
    ) -> Fit | Misfit:
        """Apply to one state, and bring the result to what stands now."""
        if entry is None:
            return self.misfit(section, path, "no such file")
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
                    return self.misfit(section, path, f"{why} with {by}")
                if done.data == here:
                    return Fit(entries={}, how="there", on=on, sure=sure)
                if not settled:
                    data = done.data
        made = self.entry(section, data, entry)
        entries: dict[bytes, Entry | None] = {} if made == now else {path: made}
        return Fit(
            entries=entries, how=how if entries else "there", flags=flags, on=on, sure=sure
        )
