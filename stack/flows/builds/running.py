"""What each environment runs, and whether somebody edited it since; cheap enough for `status`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from stack.flows.builds import environment, install_into, layers, serve
from stack.flows.builds.shadow import import_name
from stack.host import packages as installed
from stack.model.project.serving import Serving
from stack.store.project import Project


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """An environment: `kind` and `name` say which, `runs` is `LINE:PATCH`.

    `state` is `edited` where files are not as they were made (`edited` names them), `gone` where
    its layer or base stands no more, else `whole`.
    """

    kind: Literal["profile", "venv"]
    name: str
    runs: str
    state: Literal["whole", "edited", "gone"]
    number: int | None = None
    edited: tuple[str, ...] = ()


def environments(project: Project) -> list[Running]:
    """The profiles for which a prefix was chosen, and the environments that have a layer."""
    return [*_profiles(project), *_venvs(project)]


def _profiles(project: Project) -> Iterator[Running]:
    for name in serve.profiles(project):
        serving = serve.current(project, name)
        if serving is None:
            continue
        wrong = _edited(project, serving)
        yield Running(
            kind="profile", name=name, runs=serving.chosen(), number=serving.number,
            state="gone" if wrong is None else "edited" if wrong else "whole",
            edited=tuple(wrong or ()),
        )


def _edited(project: Project, serving: Serving) -> list[str] | None:
    """The edited files of a profile's layers and base; None where they are gone.

    Of the base only files are read whose inode changed after it was made.
    """
    key, _, folder = serving.base.partition("-")
    home = project.paths.venvs / key
    record = environment.read_record(home)
    if record is None or record.venv != folder:
        return None
    wrong: list[str] = []
    for one in serving.layers:
        path = project.paths.layers / one.place
        try:
            made = msgspec.json.decode(path.with_name(f"{path.name}.json").read_bytes())
        except (FileNotFoundError, msgspec.DecodeError):
            return None
        wrong += layers.edited(path, dict(made["files"]), int(made.get("links", 0)))
    site = environment.site_packages(home / folder)
    since = (home / environment.RECORD).stat().st_ctime
    names = [
        import_name(package)
        for name in dict.fromkeys(one.line.partition("/")[0] for one in serving.layers)
        if name in project.settings.upstream
        for package in project.settings.upstream[name].packages
    ]
    return wrong + installed.edited(site, names, _brought(site, names, record.records), since=since)


def _brought(site: Path, names: list[str], records: Mapping[str, str]) -> dict[str, str]:
    """The RECORD digests of the distributions that brought these packages."""
    owners = {owner.name for name in names if (owner := installed.owner(site, name))}
    return {name: digest for name, digest in records.items() if name in owners}


def _venvs(project: Project) -> Iterator[Running]:
    for upstream, venv in install_into.known(project):
        found = venv.layer(upstream)
        if found is None:
            if venv.path_file(upstream).exists():
                yield Running(kind="venv", name=str(venv.path), runs=upstream, state="gone")
            continue
        _, record = found
        wrong = install_into.damage(venv, upstream)
        yield Running(
            kind="venv", name=str(venv.path), runs=f"{record.line}:{record.patch or ''}",
            state="edited" if wrong else "whole", edited=tuple(wrong),
        )
