"""A project on disk: its settings, its lines, and the finding of lines by what people type."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

import msgspec

from stack.errors import BadPatch, ConfigError, UsageError
from stack.model import toml
from stack.model.line.line import SCHEMA, Series, digest, near
from stack.model.project import settings as model
from stack.store.paths import CONFIG, Paths

SERIES = "series.toml"


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A line as it stands on disk: what `series.toml` says and the bytes of every patch file."""

    folder: Path
    series: Series
    files: Mapping[str, bytes]

    @property
    def id(self) -> str:
        return self.series.id

    def digest(self, names: Sequence[str]) -> str:
        return digest(self.series, names, self.files)

    def patch_path(self, name: str) -> Path:
        return self.folder / f"{name}.patch"


class Project:
    """Settings and lines of one project; it reads, and writes nothing."""

    def __init__(self, paths: Paths) -> None:
        self.paths = paths

    @cached_property
    def settings(self) -> model.Settings:
        data = self.paths.config.read_bytes()
        return toml.load(data, model.Settings, CONFIG, schema=model.SCHEMA)

    def shown(self, path: Path) -> str:
        """A path as messages name it: from the project's folder."""
        try:
            return str(path.relative_to(self.paths.root))
        except ValueError:
            return str(path)

    def upstream(self, name: str | None) -> tuple[str, model.Upstream]:
        """An upstream by name, or the default one."""
        known = list(self.settings.upstream)
        name = name or self.settings.defaults.upstream or (known[0] if len(known) == 1 else None)
        if name is None:
            raise UsageError(
                "no upstream named, and stack.toml has no default", hint="--upstream NAME[@REV]"
            )
        if name not in self.settings.upstream:
            raise UsageError(
                f"no upstream `{name}` in {CONFIG}", hint=near(name, known, "stack upstream list")
            )
        return name, self.settings.upstream[name]

    def profile(self, name: str | None) -> tuple[str, model.Profile]:
        """A profile by name, or the default one."""
        known = list(self.settings.profile)
        name = name or self.settings.defaults.profile or (known[0] if len(known) == 1 else None)
        if name is None:
            raise UsageError(
                "no profile named, and stack.toml has no default", hint="--profile NAME"
            )
        if name not in self.settings.profile:
            raise UsageError(
                f"no profile `{name}` in {CONFIG}", hint=near(name, known, CONFIG)
            )
        return name, self.settings.profile[name]

    def labels(self, upstream: str) -> list[str]:
        """The labels of an upstream's lines, in natural order."""
        folder = self.paths.patches / upstream
        found = [entry.parent.name for entry in folder.glob(f"*/{SERIES}")]
        return sorted(found, key=_natural)

    def series(self, upstream: str, label: str) -> Series:
        """What a line's `series.toml` says; its place and its content must agree."""
        path = self.paths.line(upstream, label) / SERIES
        name = self.shown(path)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            known = [f"{u}/{label_}" for u in self.settings.upstream for label_ in self.labels(u)]
            raise UsageError(
                f"no line {upstream}/{label}", hint=near(f"{upstream}/{label}", known, "stack list")
            ) from None
        series = toml.load(data, Series, name, schema=SCHEMA)
        for key, said, is_ in (
            ("upstream", series.upstream, upstream), ("pin.label", series.pin.label, label),
        ):
            if said != is_:
                line = toml.line_of(data, {}, key)
                raise ConfigError(
                    f"{name}:{line}: `{key}` is {said!r}, but the folder says {is_!r}"
                )
        names: set[str] = set()
        for at, member in enumerate(series.patch):
            twice = member.name in names
            names.add(member.name)
            if not twice and (member.reason is not None) == (member.state == "parked"):
                continue
            line = toml.line_of(data, {}, f"patch[{at}].name")
            if twice:
                raise ConfigError(f"{name}:{line}: patch `{member.name}` is listed twice")
            raise ConfigError(
                f"{name}:{line}: patch `{member.name}`: a parked patch, and only a parked one, "
                "has a `reason`"
            )
        return series

    def line(self, upstream: str, label: str) -> Line:
        """A line with all its patch files."""
        series = self.series(upstream, label)
        folder = self.paths.line(upstream, label)
        files = {}
        for member in series.patch:
            path = folder / f"{member.name}.patch"
            try:
                files[member.name] = path.read_bytes()
            except FileNotFoundError:
                raise BadPatch(
                    f"{self.shown(folder / SERIES)}: patch `{member.name}` has no file",
                    context=[f"expected {self.shown(path)}"],
                    hint="restore the file from git, or take its entry out of the series",
                ) from None
        return Line(folder=folder, series=series, files=files)

    def find(self, text: str | None) -> Line:
        """The line that `NAME`, `NAME@REV` or `NAME/LABEL` means.

        REV is a label, `v` and a label, or any unique prefix of the pin's commit or short id.
        Without a REV it is the upstream's default line.
        """
        if text and "/" in text and "@" not in text:
            upstream, _, label = text.partition("/")
            self.upstream(upstream)
            return self.line(upstream, label)
        given, _, revision = (text or "").partition("@")
        upstream, settings = self.upstream(given or None)
        labels = self.labels(upstream)
        if not labels:
            raise UsageError(
                f"upstream `{upstream}` has no lines", hint=f"stack line add {upstream}@REV"
            )
        if not revision:
            label = settings.default or labels[-1]
            return self.line(upstream, label)
        all_series = [self.series(upstream, label) for label in labels]
        hits = [series for series in all_series if names(series, revision)]
        exact = [series for series in hits if series.pin.label == revision.removeprefix("v")]
        hits = exact or hits
        if len({series.pin.tree for series in hits}) > 1:
            raise UsageError(
                f"`{revision}` is the beginning of several pins: "
                + ", ".join(series.id for series in hits)
            )
        if not hits:
            raise UsageError(
                f"no line of {upstream} is pinned at `{revision}`",
                context=[f"{series.id}  {series.pin.revision[:12]}" for series in all_series],
                hint=f"stack rebase --line {self._nearest(upstream, labels, revision)} "
                f"--onto {upstream}@{revision}, or stack line add {upstream}@{revision}",
            )
        preferred = [series for series in hits if series.pin.label == settings.default]
        return self.line(upstream, (preferred or hits)[0].pin.label)

    def _nearest(self, upstream: str, labels: list[str], revision: str) -> str:
        ordered = sorted([*labels, revision.removeprefix("v")], key=_natural)
        at = ordered.index(revision.removeprefix("v"))
        return f"{upstream}/{ordered[max(0, at - 1)] if at else ordered[1]}"


def names(series: Series, revision: str) -> bool:
    """Whether a revision as typed means the pin of a series."""
    pin = series.pin
    if revision.removeprefix("v") == pin.label:
        return True
    if pin.sdist and revision.removeprefix("v") == pin.sdist.version:
        return True
    if not re.fullmatch(r"g?[0-9a-f]{4,40}", revision):
        return False
    short = (pin.sdist.short or "").removeprefix("g") if pin.sdist else ""
    typed = revision.removeprefix("g")
    if pin.commit:
        return pin.commit.startswith(typed)
    return bool(short) and (short.startswith(typed) or typed.startswith(short))


def _natural(label: str) -> list[tuple[int, str]]:
    return [
        (int(part), "") if part.isdigit() else (-1, part)
        for part in re.findall(r"\d+|[^\d.]+", label)
    ]
