"""The bill of materials of a built profile, in CycloneDX 1.6's JSON.

Distributions of the base environment, each with the digest of what was installed; every line as a
component with its pin and, in its pedigree, the patches that stand on it. No time and no serial
number: the same build gives the same bytes.
"""

from __future__ import annotations

from typing import Any

from stack import __version__
from stack.flows.builds.build import Built
from stack.model.project.build import BuildRecord
from stack.store.project import Project


def bill(project: Project, built: Built) -> dict[str, Any]:
    """The document, as JSON values."""
    record = built.base.record
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "tools": {
                "components": [{"type": "application", "name": "stack", "version": __version__}]
            },
            "component": {
                "type": "application", "name": built.profile, "version": record.key,
                "properties": [
                    {"name": "stack:python", "value": record.interpreter.version},
                    {"name": "stack:platform", "value": record.interpreter.platform},
                    {"name": "stack:installer", "value": record.installer},
                ],
            },
        },
        "components": [
            *_distributions(record), *(_line(project, line) for line in sorted(built.layers))
        ],
    }


def _distributions(record: BuildRecord) -> list[dict[str, Any]]:
    """What the installer put there; the hash is that of the distribution's RECORD."""
    digests = {
        folder.removesuffix(".dist-info").lower().replace("_", "-"): digest
        for folder, digest in record.records.items()
    }
    found: list[dict[str, Any]] = []
    for text in record.installed:
        name, _, version = text.partition("==")
        one: dict[str, Any] = {
            "type": "library", "name": name, "version": version,
            "purl": f"pkg:pypi/{name.lower().replace('_', '-')}@{version.replace('+', '%2B')}",
        }
        if digest := digests.get(f"{name}-{version}".lower().replace("_", "-")):
            one["properties"] = [{"name": "stack:record-sha256", "value": digest}]
        found.append(one)
    return found


def _line(project: Project, line: str) -> dict[str, Any]:
    """A line: its pin, and its active patches as the pedigree."""
    series = project.find(line).series
    _, upstream = project.upstream(series.upstream)
    folder = project.paths.line(series.upstream, series.pin.label)
    pin = series.pin
    return {
        "type": "library",
        "name": series.upstream,
        "version": pin.label,
        "properties": [{"name": "stack:tree", "value": pin.tree}],
        "pedigree": {
            "commits": [
                {"uid": pin.revision, **({"url": upstream.git} if upstream.git else {})}
            ],
            "patches": [
                {
                    "type": "unofficial",
                    "diff": {"url": project.shown(folder / f"{member.name}.patch")},
                }
                for member in series.select()
            ],
        },
    }
