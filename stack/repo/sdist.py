"""A release archive as a source: fetched, checked against the pin, and imported as one commit."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import secrets
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from stack.errors import SourceError
from stack.model.diff.paths import is_git
from stack.model.line.line import Sdist
from stack.model.objects import EMPTY_TREE, EXECUTABLE, FILE, SYMLINK, Commit, Entry, Person
from stack.repo.odb import ObjectStore

if TYPE_CHECKING:
    from unearth import Package, PackageFinder

# More than any release has; an archive of zeros of a few megabytes would unpack to more than this.
MEMBERS, LARGEST, TOTAL = 500_000, 512 << 20, 4 << 30
Report = Callable[[str, float, float | None], None]
_NOBODY = Person(b"stack", b"stack@localhost", b"0 +0000")
_SHORT = re.compile(rb"""commit_id\s*=\s*['"](g?[0-9a-f]{7,40})['"]""")
# What setuptools writes over a project's own setup.cfg when it makes an archive.
_STUB = re.compile(rb"\A\[egg_info\]\s+tag_build\s*=\s*tag_date\s*=\s*0\s*\Z")


def find(package: str, version: str) -> tuple[str, str]:
    """URL and file name of a package's sdist on the configured index (`PIP_INDEX_URL`, else PyPI).

    Raises `SourceError` where the index cannot be reached or has no such archive.
    """
    finder, index = _finder(package)
    try:
        best = finder.find_best_match(f"{package}=={version}", allow_yanked=True).best
    except _index_errors() as wrong:
        raise SourceError(f"{index} cannot be reached: {_short(wrong)}") from None
    if best is None:
        raise SourceError(f"{index} has no source archive of {package} {version}")
    return best.link.normalized, best.link.filename


def _finder(package: str) -> tuple[PackageFinder, str]:
    import unearth

    links = os.environ.get("PIP_FIND_LINKS", "").split()
    index = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple/")
    finder = unearth.PackageFinder(
        index_urls=[] if os.environ.get("PIP_NO_INDEX") else [index],
        find_links=[Path(link).as_uri() if link.startswith("/") else link for link in links],
        no_binary=[package],
    )
    return finder, index


def newest(package: str) -> str | None:
    """The newest release (no pre-release, not yanked) of which the index has a source archive.

    Raises `SourceError` where the index cannot be reached.
    """
    finder, index = _finder(package)
    try:
        found = finder.find_matches(package, allow_yanked=False, allow_prereleases=False)
        return next((one.version for one in found if one.version and _is_archive(one)), None)
    except _index_errors() as wrong:
        raise SourceError(f"{index} cannot be reached: {_short(wrong)}") from None


def _is_archive(found: Package) -> bool:
    return found.link.filename.endswith(".tar.gz")


def fetch(package: str, version: str, sha256: str | None, folder: Path, report: Report) -> Path:
    """The archive in the cache `folder`, downloaded if it is not there; its digest is checked."""
    known = held(folder, package, version)
    if known is not None:
        if sha256 is None or digest(known) == sha256:
            return known
        known.unlink()
    place = _place(folder, package, version)
    url, _ = find(package, version)
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f".{place.name}.{secrets.token_hex(4)}.tmp"
    try:
        _download(url, part, f"{package}-{version}.tar.gz", report)
        found = digest(part)
        if sha256 is not None and found != sha256:
            raise SourceError(
                f"{package} {version}: the archive is not the pinned one",
                context=[f"pinned  sha256 {sha256}", f"found   sha256 {found}", f"from    {url}"],
                hint="do not use it; if the release was replaced, add a new line for it",
            )
        os.replace(part, place)
    finally:
        part.unlink(missing_ok=True)
    return place


def held(folder: Path, package: str, version: str) -> Path | None:
    """The archive of a release in the cache `folder`, if it is there."""
    place = _place(folder, package, version)
    return place if place.exists() else None


def _place(folder: Path, package: str, version: str) -> Path:
    return folder / f"{package}-{version}.tar.gz"


def _download(url: str, target: Path, label: str, report: Report) -> None:
    from unearth.fetchers.sync import PyPIClient

    try:
        with PyPIClient(follow_redirects=True) as client, client.get_stream(url) as response:
            response.raise_for_status()
            total = float(response.headers.get("content-length", 0)) or None
            done = 0.0
            with target.open("wb") as file:
                for chunk in response.iter_bytes(1 << 18):
                    file.write(chunk)
                    done += len(chunk)
                    report(label, done, total)
    except _network_errors() as wrong:
        raise SourceError(f"{url} cannot be fetched: {_short(wrong)}") from None


def _network_errors() -> tuple[type[Exception], ...]:
    import httpx2

    return (httpx2.HTTPError,)


def _index_errors() -> tuple[type[Exception], ...]:
    from unearth.errors import UnpackError

    return (OSError, UnpackError, *_network_errors())


def _short(wrong: Exception) -> str:
    return str(wrong).splitlines()[0][:160] if str(wrong) else type(wrong).__name__


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read(archive: Path, odb: ObjectStore) -> tuple[str, str | None]:
    """Put an archive's files into `odb`; the tree id, and the commit that `_version.py` names.

    Generated files (`PKG-INFO`, `*.egg-info/`, setuptools' `setup.cfg` stub, `_version.py`) are
    left out, so that the tree is upstream's own. A file is executable where its owner may execute
    it. Anything that is not a file or folder inside the archive's one top folder is refused.
    """
    changes: dict[bytes, Entry | None] = {}
    short: str | None = None
    top = ""
    try:
        with (
            gzip.open(archive) as file,
            tarfile.open(fileobj=cast("IO[bytes]", _Bounded(file)), mode="r:") as tar,
        ):
            for count, member in enumerate(tar):
                if count >= MEMBERS or member.size > LARGEST:
                    raise _too_much(archive)
                here, path = _inside(member, archive)
                top = top or here
                if here != top or (not path and not member.isdir()):
                    raise _outside(archive, member)
                if member.isdir():
                    continue
                if member.issym():
                    target = os.fsencode(_link(member, path, archive))
                    changes[path] = Entry(SYMLINK, odb.add("blob", target))
                    continue
                inside = tar.extractfile(member)
                data = inside.read() if inside else b""
                if path.endswith(b"/_version.py") and (match := _SHORT.search(data)):
                    short = match[1].decode()
                if not _generated(path, data):
                    mode = EXECUTABLE if member.mode & 0o100 else FILE
                    entry = Entry(mode, odb.add("blob", data))
                    if changes.setdefault(path, entry) != entry:
                        raise SourceError(
                            f"{archive}: two different files of one name: {member.name!a}"
                        )
    except _TooMuch:
        raise _too_much(archive) from None
    except (tarfile.TarError, EOFError, OSError) as wrong:
        raise SourceError(f"{archive}: damaged archive: {_short(wrong)}") from None
    try:
        return odb.edit(EMPTY_TREE, changes), short
    except (NotADirectoryError, IsADirectoryError) as wrong:
        raise SourceError(
            f"{archive}: a path through something that is not a folder: {ascii(wrong.args[0])[1:]}"
        ) from None


class _TooMuch(Exception):
    pass


class _Bounded:
    """The bytes of an archive, of which at most so many are unpacked, at once and in all."""

    def __init__(self, file: gzip.GzipFile) -> None:
        self._file = file

    def read(self, size: int) -> bytes:
        if size > LARGEST or self._file.tell() + size > TOTAL:
            raise _TooMuch
        return self._file.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        if offset > TOTAL:
            raise _TooMuch
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()


def _too_much(archive: Path) -> SourceError:
    return SourceError(
        f"{archive}: more than {MEMBERS:,} members, {LARGEST >> 20} MiB in one, or "
        f"{TOTAL >> 30} GiB in all",
        hint="no release is so large: look at where it comes from",
    )


def _inside(member: tarfile.TarInfo, archive: Path) -> tuple[str, bytes]:
    """A member's top folder, and its path under it; refuses everything odd."""
    name = member.name
    if name.startswith("/") or ".." in name.split("/") or "\\" in name or "\0" in name:
        raise _outside(archive, member)
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if any(is_git(os.fsencode(part)) for part in parts):
        raise SourceError(f"{archive}: a path into .git: {name!a}")
    if not (member.isreg() or member.isdir() or member.issym()):
        raise SourceError(f"{archive}: neither a file nor a folder: {name!a}")
    return parts[0] if parts else "", os.fsencode("/".join(parts[1:]))


def _link(member: tarfile.TarInfo, path: bytes, archive: Path) -> str:
    """The target of a link; refused where it leads out of the archive's folder."""
    target = member.linkname
    depth = path.count(b"/")
    for part in target.split("/"):
        depth += -1 if part == ".." else part not in ("", ".")
        if depth < 0 or target.startswith("/"):
            raise SourceError(
                f"{archive}: a link that leads out of the archive's folder: "
                f"{member.name!a} -> {target!a}"
            )
    return target


def _outside(archive: Path, member: tarfile.TarInfo) -> SourceError:
    return SourceError(f"{archive}: a path outside the archive's folder: {member.name!a}")


def _generated(path: bytes, data: bytes) -> bool:
    top, _, rest = path.partition(b"/")
    if path == b"PKG-INFO" or (rest and top.endswith(b".egg-info")):
        return True
    if path == b"setup.cfg":
        return _STUB.match(data) is not None
    return path.endswith(b"/_version.py") and _SHORT.search(data) is not None


def import_pin(archive: Path, package: str, sdist: Sdist, tree: str, odb: ObjectStore) -> str:
    """Import the archive of a pin; the id of its base commit, which depends on nothing else.

    Raises `SourceError` where the archive's commit or tree is not the pin's.
    """
    found, short = read(archive, odb)
    if sdist.short and short != sdist.short:
        raise SourceError(
            f"{archive}: names commit {short}, but the pin is {sdist.short}",
            hint="the series.toml of this line and the archive do not belong together",
        )
    if found != tree:
        raise SourceError(
            f"{archive}: its tree is {found}, but the pin's is {tree}",
            hint="stack doctor; the archive may be incomplete",
        )
    return base_commit(package, sdist, tree, odb)


def base_commit(package: str, sdist: Sdist, tree: str, odb: ObjectStore) -> str:
    """The commit that stands for a release archive: the same for everybody."""
    commit = Commit(
        tree=tree, parents=(), author=_NOBODY, committer=_NOBODY,
        message=f"{package} {sdist.version}\n\nsdist sha256 {sdist.sha256}\n".encode(),
    )
    return odb.add("commit", commit.render())
