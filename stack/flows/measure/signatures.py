"""The texts by which the end of a run is known: ours, then those of the project."""

from __future__ import annotations

import msgspec

from stack.bench import logs
from stack.model.log.signatures import Catalogue
from stack.store.project import Project


def catalogue(project: Project | None) -> Catalogue:
    """The signatures that hold in a project; one of `stack.toml` replaces ours of that name."""
    own = project.settings.signature if project else ()
    return logs.catalogue({"signature": [msgspec.to_builtins(signature) for signature in own]})
