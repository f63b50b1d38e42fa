"""Makes piles as people leave them, from a real tree, and knows the truth about each file.

A worktree is edited at random, step by step. Some steps leave a snapshot against the base, some
what changed since the step before, some nothing. Each file is then spoilt in the ways that occur.
The maker keeps book of what a file can be known to mean: whether it can be placed, and what the
worktree holds of everything that was left so far.
"""

from __future__ import annotations

import base64
import bz2
import gzip
import lzma
import random
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from stack.model.diff.linediff import changes, split
from stack.model.objects import object_id

Contents = dict[str, bytes | None]
ZERO = "0" * 40
_HEADING = re.compile(rb"[A-Za-z_$]")


class Truth(NamedTuple):
    """What is true of one file of a pile; `placeable` is None where nobody can tell."""

    name: str
    placeable: bool | None
    kind: str
    spoilt: tuple[str, ...]


class Made(NamedTuple):
    """A pile: its files, the truth of each, and what the worktree is known to hold at the end."""

    files: dict[str, bytes]
    truths: list[Truth]
    end: Contents


def hunks(old: bytes, new: bytes, context: int) -> list[tuple[int, int, bytes, list[bytes]]]:
    """The hunks between two contents: old and new start, heading, body lines."""
    a, b = split(old), split(new)
    groups: list[list[tuple[int, int, int, int]]] = []
    for change in changes(a, b):
        if groups and change[0] - groups[-1][-1][1] <= 2 * context:
            groups[-1].append(change)
        else:
            groups.append([change])
    found = []
    for group in groups:
        start = max(group[0][0] - context, 0)
        stop = min(group[-1][1] + context, len(a))
        shift = group[0][2] - group[0][0]
        body: list[bytes] = []
        at = start
        for i1, i2, j1, j2 in group:
            body += [b" " + line for line in a[at:i1]]
            body += [b"-" + line for line in a[i1:i2]]
            body += [b"+" + line for line in b[j1:j2]]
            at = i2
        body += [b" " + line for line in a[at:stop]]
        heading = next((a[n] for n in range(start - 1, -1, -1) if _HEADING.match(a[n])), b"")
        olds = sum(not line.startswith(b"+") for line in body)
        news = sum(not line.startswith(b"-") for line in body)
        found.append((
            start + (olds > 0), start + shift + (news > 0), heading.strip()[:80], _ended(body)
        ))
    return found


def _ended(body: list[bytes]) -> list[bytes]:
    out: list[bytes] = []
    for line in body:
        out.append(line if line.endswith(b"\n") else line + b"\n")
        if not line.endswith(b"\n"):
            out.append(b"\\ No newline at end of file\n")
    return out


class Maker:
    """One pile in the making."""

    def __init__(
        self, seed: int, base: Mapping[str, bytes], *, pool: int = 30, wide: float = 0.6
    ) -> None:
        self.random, self.wide = random.Random(seed), wide
        self.base = dict(base)
        names = sorted(base)
        self.pool = self.random.sample(names, min(len(names), pool))
        self.now: Contents = {}
        self.known: Contents = {}
        self.dirty: set[str] = set()
        self.files: dict[str, bytes] = {}
        self.truths: list[Truth] = []
        self.count = 0
        self.ids: set[tuple[str, str]] = set()

    def content(self, path: str) -> bytes | None:
        return self.now[path] if path in self.now else self.base.get(path)

    def before(self, path: str) -> bytes | None:
        return self.known[path] if path in self.known else self.base.get(path)

    def run(self, steps: int) -> Made:
        for number in range(1, steps + 1):
            touched = self._edit(number)
            if self.random.random() < 0.08:
                self.dirty |= touched
                continue
            self._leave(number, touched)
        return Made(self.files, self.truths, {
            path: data for path, data in self.known.items() if data != self.base.get(path)
        })

    def _edit(self, number: int) -> set[str]:
        touched: set[str] = set()
        for _ in range(self.random.choice((1, 1, 2, 3))):
            roll = self.random.random()
            own = [path for path in self.now if path not in self.base and self.now[path]]
            if roll < 0.06:
                path = f"vllm/own/part{number}_{len(self.now)}.py"
                lines = [b"def made_%d_%d():\n    return %d\n\n\n" % (number, n, n)
                         for n in range(self.random.randint(1, 6))]
                self.now[path] = b"".join(lines)
            elif roll < 0.08 and own:
                path = self.random.choice(own)
                self.now[path] = None
            elif roll < 0.15 and self.now:
                path = self.random.choice(sorted(self.now))
                self.now[path] = self.base.get(path)
                if path not in self.base:
                    continue
            else:
                path = self.random.choice([*self.pool, *own])
                self.now[path] = self._changed(self.content(path) or b"", number)
            touched.add(path)
        return touched

    def _changed(self, data: bytes, number: int) -> bytes:
        lines = split(data)
        for _ in range(self.random.choice((1, 1, 2, 4))):
            at = self.random.randrange(len(lines) + 1)
            roll = self.random.random()
            if roll < 0.45:
                new = self._new(number)
                lines[at : at + self.random.randint(1, 3)] = new
            elif roll < 0.8:
                lines[at:at] = self._new(number)
            elif len(lines) > 8:
                del lines[at : at + self.random.randint(1, 3)]
        return b"".join(line if line.endswith(b"\n") else line + b"\n" for line in lines)

    def _new(self, number: int) -> list[bytes]:
        made = []
        for n in range(self.random.randint(1, 4)):
            what = self.random.choice((
                b"    value = compute(%d, %d)\n", b"    # step %d part %d\n",
                b"        return self.helper_%d(%d)\n",
            ))
            made.append(what % (number, self.random.randrange(100) + n))
            if self.random.random() < 0.15:
                made.append(self.random.choice((b"\n", b"    pass\n", b"        return None\n")))
        return made

    def _leave(self, number: int, touched: set[str]) -> None:
        snapshot = bool(touched & self.dirty) or self.random.random() < 0.5
        if snapshot and self.random.random() < self.wide:
            touched = {path for path in self.now if self.content(path) != self.base.get(path)
                       or self.before(path) != self.base.get(path)}
        sides = {}
        for path in sorted(touched):
            old = self.base.get(path) if snapshot else self.before(path)
            new = self.content(path)
            if old != new:
                sides[path] = (old, new)
        if not sides:
            self.dirty |= {path for path in touched if self.content(path) != self.before(path)}
            return
        kind = "snapshot" if snapshot else "increment"
        data, spoilt, placeable = self._spoil(sides, number)
        name = f"{number:04}-{self.random.choice(('try', 'fix', 'router', 'kernel'))}"
        data, suffix, damaged = self._pack(data)
        spoilt = (*spoilt, suffix, *(["damaged"] if damaged else []))
        self.files[name + suffix] = data
        truth = False if damaged else placeable
        self.truths.append(Truth(name + suffix, truth, kind, spoilt))
        if not truth:
            self.dirty |= set(sides)
            return
        for path, (_, new) in sides.items():
            self.known[path] = new
            self.dirty.discard(path)
        if self.random.random() < 0.04:
            copy = f"{number:04}-x-copy.patch"
            self.files[copy] = self._plain(data, suffix)
            self.truths.append(Truth(copy, True, "copy", spoilt))

    def _plain(self, data: bytes, suffix: str) -> bytes:
        for ending in reversed(suffix.split(".")):
            if ending == "b64":
                data = base64.b64decode(data)
            elif ending == "gz":
                data = gzip.decompress(data)
            elif ending in ("bz2", "xz"):
                data = (bz2 if ending == "bz2" else lzma).decompress(data)
        return data

    def _pack(self, data: bytes) -> tuple[bytes, str, bool]:
        roll = self.random.random()
        if roll < 0.06:
            return gzip.compress(data, mtime=0), ".patch.gz", False
        if roll < 0.08:
            return bz2.compress(data), ".patch.bz2", False
        if roll < 0.1:
            return lzma.compress(data), ".diff.xz", False
        if roll < 0.16:
            return base64.encodebytes(gzip.compress(data, mtime=0)), ".patch.gz.b64", False
        if roll < 0.18:
            text = bytearray(base64.encodebytes(gzip.compress(data, mtime=0)))
            at = self.random.randrange(len(text) // 2, len(text) - 2)
            text[at] = ord("!") if self.random.random() < 0.5 else (text[at] ^ 1) | 0x40
            whole = self._survives(bytes(text), data)
            return bytes(text), ".patch.gz.b64", not whole
        if roll < 0.22:
            note = b"# What I tried\n\nSome words.\n\n```diff\n" + data + b"\n```\n\nMore words.\n"
            return note, ".md", False
        return data, self.random.choice((".patch", ".diff")), False

    def _survives(self, text: bytes, data: bytes) -> bool:
        try:
            return gzip.decompress(base64.b64decode(text, validate=False)) == data and (
                b"!" not in text
            )
        except Exception:
            return False

    def _spoil(
        self, sides: Mapping[str, tuple[bytes | None, bytes | None]], number: int
    ) -> tuple[bytes, tuple[str, ...], bool | None]:
        """The text of a diff with its anomalies, and whether it can still be placed."""
        roll = self.random.random
        context = self.random.choice((3, 3, 3, 3, 1, 8, 0))
        ids = self.random.choice(("full", "full", "short", "short", "none", "words", "zero"))
        if context == 0 and ids not in ("full", "short"):
            context = 3
        bare = context > 0 and roll() < 0.1
        counts = context > 0 and roll() < 0.1 and not bare
        head = roll() > 0.1 or context == 0
        names = self.random.choice(("git",) * 6 + ("absolute", "site", "depth", "none"))
        blank = roll() < 0.1
        spoilt = tuple(text for text, is_so in (
            (f"U{context}", context != 3), (ids, ids not in ("full", "short")), ("bare", bare),
            ("counts", counts), ("no-diff-line", not head), (names, names != "git"),
            ("blank", blank),
        ) if is_so)
        parts = [b"Words about step %d.\n\n" % number] if roll() < 0.15 else []
        placeable: bool | None = True
        for path, (old, new) in sides.items():
            options = {"counts": counts, "head": head, "names": names, "blank": blank}
            text, fits = self._section(path, old, new, context, ids, bare=bare, **options)
            if not fits:  # nobody could tell where it goes, so the numbers stay
                text, fits = self._section(path, old, new, context, ids, bare=False, **options)
            placeable = placeable and fits
            parts.append(text)
        if roll() < 0.1:
            parts.append(b"\nThat was it.\n")
            spoilt = (*spoilt, "prose")
        data = b"".join(parts)
        if roll() < 0.08:
            data = data.rstrip(b"\n")
            spoilt = (*spoilt, "no-newline")
        elif roll() < 0.04:
            data = data.replace(b"\n", b"\r\n")
            spoilt = (*spoilt, "crlf")
        elif roll() < 0.03 and ids not in ("full", "short") and not bare:
            at = self.random.randrange(len(data) * 2 // 3, len(data) - 20)
            cut = data[:at].rpartition(b"\n")[0]  # in the middle of what it had to say
            if cut.count(b"\n@@") == data.count(b"\n@@") and cut.endswith(b"\n") is False:
                return cut, (*spoilt, "cut"), None
        if roll() < 0.05:
            mine = b"a/notes/log.md b/notes/log.md"
            data += (
                b"diff --git %s\nindex 1111111..2222222 100644\n--- a/notes/log.md\n"
                b"+++ b/notes/log.md\n@@ -1,2 +1,3 @@\n # Log\n \n+- step %d\n" % (mine, number)
            ) if _is_plain(data) and "prose" not in spoilt else b""
            if data.endswith(b"+- step %d\n" % number):
                spoilt = (*spoilt, "own")
        return data, spoilt, placeable

    def _section(
        self, path: str, old: bytes | None, new: bytes | None, context: int, ids: str, *,
        bare: bool, counts: bool, head: bool, names: str, blank: bool,
    ) -> tuple[bytes, bool]:
        whole = old is None or new is None
        left, right = (
            object_id("blob", data) if data is not None else ZERO for data in (old, new)
        )
        if ids == "short":
            left, right = left[:10], right[:10]
        elif ids == "words":
            left, right = "base", "variant"
        elif ids == "zero":
            left = right = "0" * 7
        out: list[bytes] = []
        if head or whole:
            out.append(f"diff --git a/{path} b/{path}\n".encode())
            if old is None:
                out.append(b"new file mode 100644\n")
            elif new is None:
                out.append(b"deleted file mode 100644\n")
            if ids != "none":
                out.append(f"index {left}..{right}{'' if whole else ' 100644'}\n".encode())
        sides = {
            "git": (f"a/{path}", f"b/{path}"), "none": (path, path),
            "absolute": (f"/home/me/vllm-src/{path}\t2026-04-01 10:00:00.123456789 +0200",
                         f"/home/me/work/vllm-src/{path}\t2026-04-01 11:00:00.123456789 +0200"),
            "site": (f"a/lib/python3.12/site-packages/{path}",
                     f"b/lib/python3.12/site-packages/{path}"),
            "depth": (f"x/y/{path}", f"p/q/r/s/{path}"),
        }[names]
        if whole or not path.startswith("vllm/"):
            sides = (f"a/{path}", f"b/{path}")
        found = hunks(old or b"", new or b"", context)
        if not found:
            return b"".join(out), True
        out.append(b"--- /dev/null\n" if old is None else f"--- {sides[0]}\n".encode())
        out.append(b"+++ /dev/null\n" if new is None else f"+++ {sides[1]}\n".encode())
        fits = True
        known_ids = ids in ("full", "short") and (head or whole)
        for at, (start, to, heading, body) in enumerate(found):
            olds = [line[1:] for line in body if line[:1] in b" -"]
            news = sum(line[:1] in (b" ", b"+") for line in body)
            if bare and not whole:
                out.append(b"@@\n")
                if not known_ids:
                    fits = fits and _once(old or b"", olds)
            else:
                wrong = self.random.choice((1, 2)) if counts and at == len(found) - 1 else 0
                out.append(b"@@ -%d,%d +%d,%d @@ %s\n" % (
                    start, max(len(olds) - wrong, 1) if not whole else len(olds), to,
                    max(news - wrong, 1) if not whole else news, heading,
                ))
            out += [b"\n" if blank and line == b" \n" else line for line in body]
        return b"".join(out), fits


def _is_plain(data: bytes) -> bool:
    return data.endswith(b"\n") and not data.endswith(b"\r\n")


def _once(data: bytes, lines: list[bytes]) -> bool:
    """Whether these lines stand together exactly once."""
    text, wanted = b"\n" + data, b"\n" + b"".join(lines)
    return text.count(wanted) == 1


def real_files(folder: Path, most: int = 400) -> dict[str, bytes]:
    """Python files of an unpacked source tree, by path."""
    found = {}
    for path in sorted((folder / "vllm").rglob("*.py")):
        data = path.read_bytes()
        if 400 < len(data) < 200_000 and data.endswith(b"\n") and path.name != "_version.py":
            found[str(path.relative_to(folder))] = data
    names = sorted(found)[:: max(1, len(found) // most)]
    return {name: found[name] for name in names}
