"""Which upstream, and which file of it, each section of a pile is about."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import msgspec

from stack.flows.pile.read import Input
from stack.flows.pile.world import World
from stack.model.pile.paths import find, prefix_of, suffixes
from stack.model.pile.sections import Flag, Section


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """A section with the upstream (None for nobody's) and the paths that it is about."""

    section: Section
    upstream: str | None
    path: bytes = b""
    old: bytes = b""


class Router:
    """Knows the upstreams' worlds, and the files that inputs of the pile are going to make."""

    def __init__(
        self, worlds: Mapping[str, World], packages: Mapping[str, Sequence[str]],
        inputs: Sequence[Input],
    ) -> None:
        self.worlds, self.packages, self.inputs = worlds, packages, inputs
        self.coming: dict[str, set[bytes]] = {name: set() for name in worlds}
        for one in inputs:
            for route in self.routes(one):
                if route.upstream and route.section.kind in ("add", "rename", "copy"):
                    self.coming[route.upstream].add(route.path)

    def routes(self, one: Input) -> list[Route]:
        """Where each section of an input belongs."""
        found = [self._known(section) for section in one.sections]
        settled = [route for route in found if route.upstream]
        prefixes = {
            (str(route.upstream), prefix_of(route.section.name, route.path)) for route in settled
        }
        whole = len(prefixes) == 1 and all(
            route.upstream or route.section.kind == "add" for route in found
        ) and _one_diff(one.sections)
        return [
            route if route.upstream or route.section.kind != "add"
            else self._new(route.section, prefixes, whole=whole)
            for route in found
        ]

    def _known(self, section: Section) -> Route:
        """The file that a section names, where some upstream has or had or will have it."""
        options: list[tuple[int, int, Route]] = []
        for name in self.worlds:
            path, old = self._path(name, section)
            if path is None or (section.kind == "add" and not self._is_there(name, path)):
                continue
            evidence = self._evidence(name, old or path, section.old_id)
            route = Route(section=section, upstream=name, path=path, old=old or path)
            options.append((evidence, len(path), route))
        if not options:
            return Route(section=section, upstream=None)
        chosen = max(options, key=lambda option: option[:2])[2]
        flags = set(section.flags)
        if section.kind == "modify":
            new, old = (self._find(str(chosen.upstream), one, section)
                        for one in (section.new, section.old))
            if new != old:
                flags.add(Flag.TWO_NAMES)
            depths = {
                one.count(b"/") - chosen.path.count(b"/") for one in (section.old, section.new)
            }
            if depths != {1}:
                flags.add(Flag.DEPTH)
        section = msgspec.structs.replace(section, flags=tuple(sorted(flags)))
        return msgspec.structs.replace(chosen, section=section)

    def _path(self, name: str, section: Section) -> tuple[bytes | None, bytes | None]:
        """The paths after and before a section in one upstream."""
        old = self._find(name, section.old, section)
        new = self._find(name, section.new, section)
        if section.kind in ("rename", "copy"):
            if old is None:
                return (new, None) if new is not None else (None, None)
            prefix = section.old[: len(section.old) - len(old)]
            target = new or section.new.removeprefix(prefix)
            if new is None and target == section.new and prefix:
                target = section.new.partition(b"/")[2] or section.new
            return target, old
        if section.kind == "delete":
            return old, old
        return new or old, None

    def _find(self, name: str, raw: bytes, section: Section) -> bytes | None:
        world, coming = self.worlds[name], self.coming.get(name, set())
        return find(
            raw, lambda path: path in coming or world.known(path), self.packages.get(name, ()),
            section.strip,
        )

    def _is_there(self, name: str, path: bytes) -> bool:
        return path in self.coming.get(name, ()) or self.worlds[name].known(path)

    def _evidence(self, name: str, path: bytes, oid: str) -> int:
        """1 where the upstream has had the very blob, -1 where it has only others."""
        if not oid:
            return 0
        rows = self.worlds[name].history(path)
        return 1 if any(r.entry is not None and r.entry.oid.startswith(oid) for r in rows) else -1

    def _new(
        self, section: Section, prefixes: set[tuple[str, bytes]], *, whole: bool
    ) -> Route:
        """The place of a file that nobody has yet."""
        options: list[tuple[int, int, str, bytes]] = []
        near = {name for name, _ in prefixes}
        for name, world in self.worlds.items():
            paths = suffixes(section.new, self.packages.get(name, ()), section.strip)
            for at, path in enumerate(paths):
                folder, slash, _ = path.rpartition(b"/")
                beside = (name, prefix_of(section.new, path)) in prefixes
                if not slash:
                    if beside and at <= 1:
                        options.append((3, 0, name, path))
                elif world.folder(folder):
                    options.append((4 + beside, -at, name, path))
                elif world.folder(path.partition(b"/")[0]) and (at == 0 or beside):
                    options.append((2 + beside, -at, name, path))
                elif beside and whole:
                    options.append((1, -at, name, path))
        if not options:
            return Route(section=section, upstream=None)
        rank = {name: -at for at, name in enumerate(self.worlds)}
        best = max(options, key=lambda one: (one[0], one[2] in near, one[1], rank[one[2]]))
        return Route(section=section, upstream=best[2], path=best[3], old=best[3])


def _one_diff(sections: Sequence[Section]) -> bool:
    """Whether these look like one `git diff`, whose files stand in order."""
    names = [section.name for section in sections]
    return names == sorted(names) and not any(
        Flag.NO_DIFF_LINE in section.flags for section in sections
    )


def digest_of(routes: Sequence[Route]) -> str:
    """What an input does in one upstream, whatever its packing, depth and order."""
    state = hashlib.sha256()
    for route in sorted(routes, key=lambda route: (route.path, route.section.at)):
        section = route.section
        state.update(b"\1%s\0%s\0" % (section.kind.encode(), route.path))
        state.update(f"{section.old_id[:7]} {section.new_id[:7]} {section.new_mode}".encode())
        for hunk in section.hunks:
            state.update(b"\2")
            for sign, text in hunk.lines:
                state.update(sign + text)
        if section.binary is not None:
            state.update(section.binary.data)
    return state.hexdigest()[:32]
