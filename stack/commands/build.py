"""`stack build`: the environment of a profile and a layer per prefix."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from stack import options
from stack.console import Console
from stack.context import Answer, Context, Verb
from stack.flows.builds import build as flow
from stack.flows.builds import script
from stack.flows.builds.bill import bill
from stack.model.project.build import BuildRecord
from stack.store import atomic

COLUMNS = ("line", "patch", "tree", "layer")


@click.command("build")
@click.option("--profile", metavar="NAME", help="A profile of stack.toml [default: its default]")
@options.trust
@click.option("--fresh", is_flag=True, help="Make the base environment again")
@click.option("--dry-run", is_flag=True, help="Say what would be made, and make nothing")
@click.option(
    "--bom", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Write a bill of materials (CycloneDX JSON) as well",
)
@click.option("--print", "print_", is_flag=True, help="Write the steps as a shell script")
def command(
    *, profile: str | None, trust: bool, fresh: bool, dry_run: bool, bom: Path | None,
    print_: bool,
) -> Verb:
    """Make the environment of a profile and a layer per prefix.

    What is there already is kept: a second build installs and copies nothing. Killed at any
    point, the next build carries on, and nothing half-made is ever used. With --print it writes
    the steps as a shell script instead, on any machine.

    What stack.toml says to install and to run is asked for once, and again when it changes.
    """

    def run(context: Context) -> Answer:
        if print_:
            text = script.script(context.project, profile)
            name, _ = context.project.profile(profile)
            return Answer(
                data={"profile": name, "script": text},
                show=lambda console: console.raw(text.encode()),
            )
        if dry_run:
            return _planned(flow.plan(context.project, profile, context.console.emit, fresh=fresh))
        project, emit = context.project, context.console.emit
        built = options.trusting(
            context, lambda: flow.build(project, profile, emit, fresh=fresh), trust=trust
        )
        if bom is not None:
            document = msgspec.json.encode(bill(project, built))
            atomic.write(context.folder / bom, msgspec.json.format(document, indent=2) + b"\n")
        return _answer(built)

    return run


def _answer(built: flow.Built) -> Answer:
    rows = [
        (line, one.prefix.name, one.prefix.tree, "new" if one.made else "kept")
        for line, prefixes in built.layers.items()
        for one in prefixes
    ]
    new = sum(row[3] == "new" for row in rows)
    record = built.base.record
    parts = []
    if built.base_made:
        parts.append(f"base {record.key} made in {record.seconds:.0f} s")
    if new:
        parts.append(f"{new} layer{'s' * (new > 1)} made, {len(rows) - new} kept")
    if built.prepared:
        parts.append(f"prepared {', '.join(built.prepared)}")
    summary = "; ".join(parts) or (
        f"nothing to do: base {record.key} ({len(record.installed)} packages, "
        f"{record.size / 1e9:.2f} GB) and {len(rows)} layers are as they were"
    )
    data = {
        "profile": built.profile,
        "changed": bool(parts),
        "base": {
            **_base(record), "made": built.base_made, "venv": str(built.base.venv),
            "python": str(built.base.python),
        },
        "layers": [
            {
                "line": line, "patch": one.prefix.name, "commit": one.prefix.commit,
                "tree": one.prefix.tree, "path": str(one.layer.path),
                "state": "new" if one.made else "kept", "files": dict(one.layer.files),
            }
            for line, prefixes in built.layers.items()
            for one in prefixes
        ],
        "prepared": list(built.prepared),
    }
    return Answer(data=data, show=_show(rows, summary))


def _planned(plan: flow.Plan) -> Answer:
    rows = [
        (line, one.prefix.name, one.prefix.tree, "kept" if one.there else "would be new")
        for line, prefixes in plan.layers.items()
        for one in prefixes
    ]
    new = sum(row[3] != "kept" for row in rows)
    parts = []
    if plan.base is None:
        parts.append(
            f"make base {plan.want.key} with Python {plan.want.interpreter.version}: "
            + ", ".join(plan.want.packages)
        )
    if new:
        parts.append(f"make {new} layer{'s' * (new > 1)}")
    if plan.prepare:
        parts.append(f"run {plan.prepare} prepare command{'s' * (plan.prepare > 1)}")
    summary = f"would {'; '.join(parts)}" if parts else "nothing to do"
    base: dict[str, Any] = {"key": plan.want.key, "made": False, "there": plan.base is not None}
    if plan.base is not None:
        base |= _base(plan.base.record)
    data = {
        "profile": plan.profile, "dry_run": True, "changed": bool(parts), "base": base,
        "layers": [
            {"line": line, "patch": name, "tree": tree, "state": state}
            for line, name, tree, state in rows
        ],
        "prepare": plan.prepare,
    }
    return Answer(data=data, show=_show(rows, summary))


def _base(record: BuildRecord) -> Mapping[str, Any]:
    return {
        "key": record.key, "python_version": record.interpreter.version,
        "platform": record.interpreter.platform, "installer": record.installer,
        "packages": list(record.installed), "requested": list(record.requested),
        "indexes": list(record.indexes), "skipped_indexes": list(record.skipped),
        "torch": record.torch, "size_bytes": record.size, "files": record.files,
        "seconds": record.seconds, "downloaded": record.fetched.count,
        "downloaded_bytes": record.fetched.size,
    }


def _show(
    rows: list[tuple[str, str | None, str, str]], summary: str
) -> Callable[[Console], None]:
    def show(console: Console) -> None:
        if rows:
            shown = [(line, name or "(base)", tree[:12], state) for line, name, tree, state in rows]
            console.table(COLUMNS, shown)
        console.out(summary)

    return show
