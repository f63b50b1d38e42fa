"""What file of an upstream a name in a pile means: any prefix, on each side its own depth."""

from __future__ import annotations

from collections.abc import Callable, Sequence

_SITE = (b"site-packages", b"dist-packages")
_SIDES = (b"a", b"b", b"i", b"w", b"c", b"o", b"old", b"new", b"orig")


def suffixes(name: bytes, packages: Sequence[str] = (), strip: int | None = None) -> list[bytes]:
    """The paths that a raw name can mean, the likeliest first.

    `packages` are the upstream's import packages (`src/flake`), for names in site-packages;
    `strip` is what a series file says of the depth.
    """
    parts = [part for part in name.split(b"/") if part not in (b"", b".")]
    if strip is not None:
        return [b"/".join(parts[strip:])] if len(parts) > strip else []
    for marker in _SITE:
        if marker in parts:
            inside = parts[len(parts) - parts[::-1].index(marker) :]
            for package in packages:
                folder = package.encode().split(b"/")
                if inside[:1] == folder[-1:]:
                    return [b"/".join([*folder[:-1], *inside])]
            return [b"/".join(inside)] if inside else []
    found = [b"/".join(parts[at:]) for at in range(len(parts))]
    if len(found) > 1 and parts[0] in _SIDES and not name.startswith(b"/"):
        found = [*found[1:], found[0]]
    return found


def find(
    name: bytes, exists: Callable[[bytes], bool], packages: Sequence[str] = (),
    strip: int | None = None,
) -> bytes | None:
    """The file that a raw name means, or None.

    A file at the top (`README.md`) is meant only by a name without folders in front of it.
    """
    if not name:
        return None
    options = suffixes(name, packages, strip)
    for at, path in enumerate(options):
        if b"/" not in path and at > 0 and not _at_the_top(name, path):
            continue
        if exists(path):
            return path
    return None


def prefix_of(name: bytes, path: bytes) -> bytes:
    """What stands before `path` in a raw name; the side (`a/`) does not count."""
    before = name[: len(name) - len(path)] if name.endswith(path) else b""
    parts = [part for part in before.split(b"/") if part not in (b"", b".")]
    if parts and parts[0] in _SIDES and not name.startswith(b"/"):
        parts = parts[1:]
    return b"/".join(parts)


def _at_the_top(name: bytes, path: bytes) -> bool:
    before = [part for part in name.split(b"/") if part not in (b"", b".")][:-1]
    return len(before) <= 1 and (not before or before[0] in _SIDES)


def leads_out(path: bytes, target: bytes) -> bool:
    """Whether a link's target is absolute or above the tree."""
    depth = path.count(b"/")
    for part in target.split(b"/"):
        depth += -1 if part == b".." else part not in (b"", b".")
        if depth < 0:
            return True
    return target.startswith(b"/") or not target
