"""A layer in an environment that somebody already has: one path file, taken out without a trace."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from packaging.version import InvalidVersion, Version

from stack.errors import BuildFailed, StackError, StateError, UsageError
from stack.flows.builds import environment, layers
from stack.flows.builds.serve import members_of, parse
from stack.flows.builds.shadow import Shadow, import_name, refuse_other_files, split
from stack.flows.events import Emit, Said
from stack.flows.prefixes import replayed
from stack.host import packages as installed
from stack.model.line.line import Pin
from stack.model.project.serving import InstallRecord
from stack.store import atomic
from stack.store.project import Project

FOLDER = "stack-layers"
_NAMED = re.compile(rf"'{FOLDER}/([^']+)/([0-9a-f]{{40}})'")


class Venv(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody's own environment."""

    path: Path
    python: Path
    site_packages: Path

    def path_file(self, upstream: str) -> Path:
        """The file that puts a layer in front of the package."""
        return self.site_packages / f"{FOLDER}-{upstream}.pth"

    def home(self, upstream: str) -> Path:
        """The folder of an upstream's layers in it."""
        return self.path / FOLDER / upstream

    def layer(self, upstream: str) -> tuple[Path, InstallRecord] | None:
        """The layer that it runs, with its record; None where there is none."""
        try:
            found = _NAMED.search(self.path_file(upstream).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        if found is None:
            return None
        path = self.home(upstream) / found[2]
        try:
            data = path.with_name(f"{path.name}.json").read_bytes()
            return path, msgspec.json.decode(data, type=InstallRecord)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None


class Installed(msgspec.Struct, frozen=True, kw_only=True):
    """What `install` put there, and which files of the package were edited by hand before."""

    venv: str
    layer: str
    record: InstallRecord
    version: str
    changed: bool


def open_venv(path: Path) -> Venv:
    """A virtual environment; `UsageError` for any other folder."""
    path = path.absolute()
    python = path / "bin" / "python"
    if not (path / "pyvenv.cfg").is_file() or not python.exists():
        raise UsageError(
            f"{path}: not a virtual environment (no pyvenv.cfg, or no bin/python)",
            hint="name the folder that `python -m venv` or `uv venv` made",
        )
    return Venv(path=path, python=python, site_packages=environment.site_packages(path))


def install(
    project: Project, venv: Venv, text: str | None, emit: Emit, *, dry_run: bool = False
) -> Installed:
    """Put the layer of a prefix into an environment.

    Raises `BuildFailed` where its package is of another version than the pin, or a patched file is
    not the pin's; then nothing is changed. What a layer that stood there before held stays until
    the next one comes, since programs may still load from it.
    """
    named, patch = parse(text) if text else (None, None)
    line = project.find(named)
    series, upstream = line.series, line.series.upstream
    packages = project.settings.upstream[upstream].packages
    names = [import_name(package) for package in packages]
    owner = _owner(venv, names, upstream)
    version = installed.version_of(owner)
    refuse_other_version(series.pin, owner, version)
    members = members_of(line, patch)
    with replayed(project, line, members, emit) as replay:
        prefix = replay.prefixes[-1]
        changes = replay.odb.changed(replay.prefixes[0].tree, prefix.tree)
        inside, outside = split(changes, packages)
        try:
            refuse_other_files(venv.site_packages, f"{line.id} up to {prefix.name}", inside)
        except BuildFailed as wrong:
            raise BuildFailed(
                wrong.message, context=[f"in {venv.site_packages}, {owner.name}", *wrong.context],
                hint=f"stack capture --venv {venv.path} --line {line.id} NAME keeps edits made "
                "there as a patch; then install the package again",
            ) from None
        path = venv.home(upstream) / prefix.tree
        now = venv.layer(upstream)
        digests = {owner.name: installed.record_digests(venv.site_packages)[owner.name]}
        by_hand = installed.edited(venv.site_packages, names, digests)
        record = InstallRecord(
            line=line.id, patch=prefix.name, tree=prefix.tree, distribution=owner.name,
            time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), packages=tuple(packages),
            files={}, links=0, edited=tuple(by_hand),
            env={k: v for one in members for k, v in one.env.items()},
        )
        fresh = now is None or now[0] != path or bool(damage(venv, upstream))
        if now is not None and not fresh:
            record = now[1]
        elif not dry_run:
            with environment.building(project, "install"):
                with atomic.new_folder(path) as staging:
                    shadow = Shadow(venv.site_packages, replay.odb, staging, path)
                    shadow.fill(packages, inside)
                record = msgspec.structs.replace(record, files=shadow.files, links=shadow.links)
                _switch(project, venv, upstream, path, record)
    for name in by_hand:
        emit(Said(f"{name}: edited by hand, and stays as it is", warning=True))
    if outside:
        emit(Said(f"{len(outside)} changed files belong to no package and are not installed"))
    return Installed(
        venv=str(venv.path), layer=str(path), record=record, version=version, changed=fresh
    )


def _switch(
    project: Project, venv: Venv, upstream: str, path: Path, record: InstallRecord
) -> None:
    """Point the path file at a layer, prove it, and drop what is older than the one before it."""
    before = venv.path_file(upstream)
    old = before.read_bytes() if before.exists() else None
    last = venv.layer(upstream)
    atomic.write(path.with_name(f"{path.name}.json"), msgspec.json.encode(record))
    atomic.write(_registered(project, venv, upstream), str(venv.path).encode() + b"\n")
    atomic.write(before, path_text(venv, upstream, path, record).encode())
    try:
        layers.probe(venv.python, path, record.files, record.packages, {})
    except BaseException:
        if old is None:
            remove(project, venv, upstream)
        else:
            atomic.write(before, old)
        raise
    kept = {path, last[0]} if last else {path}
    for other in venv.home(upstream).glob("*/"):
        if other not in kept:
            atomic.discard(other)
            other.with_name(f"{other.name}.json").unlink(missing_ok=True)


def path_text(venv: Venv, upstream: str, path: Path, record: InstallRecord) -> str:
    """The path file: comments, and the one line that Python runs at its start.

    Where the package is another version than the layer was made for, or the layer is gone, it says
    so on stderr and leaves the import path alone.
    """
    site = venv.site_packages.relative_to(venv.path).as_posix()
    what = f"{record.line}:{record.patch or ''}"
    return (
        f"# {what} stands before the package; written by `stack install`, taken out by\n"
        f"# stack install --into {venv.path} --remove {record.line}\n"
        f"import os, sys; j = os.path.join; S = j(sys.prefix, '{site}'); "
        f"L = j(sys.prefix, '{FOLDER}/{upstream}/{path.name}'); "
        f"sys.path.insert(sys.path.index(S) if S in sys.path else 0, L) "
        f"if os.path.isdir(L) and os.path.isdir(j(S, '{record.distribution}')) "
        f"else sys.stderr.write('stack: {what} is not used: its layer or {record.distribution} "
        f"is gone; run stack install again\\n')\n"
    )


def remove(project: Project, venv: Venv, upstream: str) -> bool:
    """Take an upstream's layers out of an environment; false where there were none."""
    there = venv.path_file(upstream).exists() or venv.home(upstream).exists()
    venv.path_file(upstream).unlink(missing_ok=True)
    atomic.discard(venv.home(upstream))
    if (venv.path / FOLDER).is_dir() and not any((venv.path / FOLDER).iterdir()):
        (venv.path / FOLDER).rmdir()
    _registered(project, venv, upstream).unlink(missing_ok=True)
    return there


def removable(project: Project, venv: Venv) -> list[str]:
    """The upstreams of which an environment holds layers."""
    return [
        name
        for name in project.settings.upstream
        if venv.path_file(name).exists() or venv.home(name).exists()
    ]


def damage(venv: Venv, upstream: str) -> list[str]:
    """What is not as `install` left it: files of the layer, the package under it."""
    found = venv.layer(upstream)
    if found is None:
        return [f"{venv.path_file(upstream).name} (its layer or record is gone)"]
    path, record = found
    if not (venv.site_packages / record.distribution).is_dir():
        return [f"{record.distribution} (gone: another version of the package is installed)"]
    wrong = layers.edited(path, record.files, record.links)
    digests = {
        name: digest
        for name, digest in installed.record_digests(venv.site_packages).items()
        if name == record.distribution
    }
    since = path.with_name(f"{path.name}.json").stat().st_ctime
    names = [import_name(package) for package in record.packages]
    edited = installed.edited(venv.site_packages, names, digests, since=since)
    return wrong + [name for name in edited if name not in record.edited]


def known(project: Project) -> Iterator[tuple[str, Venv]]:
    """Every upstream and environment that `install` was used on and that still stands."""
    for path in sorted((project.paths.state / "installed").glob("*/*")):
        try:
            yield path.parent.name, open_venv(Path(path.read_text(encoding="utf-8").strip()))
        except StackError:
            continue


def _registered(project: Project, venv: Venv, upstream: str) -> Path:
    name = hashlib.sha256(str(venv.path).encode()).hexdigest()[:16]
    return project.paths.state / "installed" / upstream / name


def _owner(venv: Venv, names: Sequence[str], upstream: str) -> Path:
    """The distribution that brought the package; `StateError` where none did."""
    if not names:
        raise StateError(
            f"upstream {upstream} has no `packages` that a layer could stand before",
            hint=f"stack run serves compiled parts; or packages = [...] in [upstream.{upstream}]",
        )
    for name in names:
        if not (venv.site_packages / name).is_dir():
            raise StateError(
                f"{venv.path}: `{name}` is not installed there", hint=f"pip install {name}"
            )
    owner = installed.owner(venv.site_packages, names[0])
    if owner is None:
        raise StateError(
            f"{venv.site_packages / names[0]}: no installed distribution brought this folder",
            hint="install the package with pip or uv",
        )
    return owner


def refuse_other_version(pin: Pin, owner: Path, version: str) -> None:
    """Raise `BuildFailed` where the installed version says that it is of another revision.

    A version whose local part names the pin's commit (`0.2.dev1+g1234567`) is the pin's.
    """
    said = pin.sdist.version if pin.sdist else pin.label
    commit = (pin.commit or (pin.sdist.short or "").removeprefix("g") if pin.sdist else pin.commit)
    try:
        mine, theirs = Version(said), Version(version)
    except InvalidVersion:
        return
    built_from = re.search(r"\bg([0-9a-f]{7,40})\b", theirs.local or "")
    if built_from and commit and commit.startswith(built_from[1][: len(commit)]):
        return
    if mine.public == theirs.public:
        return
    raise BuildFailed(
        f"{owner.name}: version {version} is installed, but the line is pinned at {said}",
        context=[f"in {owner.parent}"],
        hint="install that version, or carry the line to yours: stack rebase --onto NAME@REV",
    )
