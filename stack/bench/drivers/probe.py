"""Prove which files of a package a process would load: here and in a spawned worker.

Runs in the engine's Python, not in the tool's: only the standard library is imported, and the
package is looked up exactly as an import would, parent by parent, but not executed (importing
vllm takes seconds). Argument: a JSON file, `-` for standard input, of this form:

    {"vllm/model_executor/layers/utils.py": "<sha256>", "vllm/new_module.py": null}

with null for a file that must be absent. Prints one JSON object with what each process found.
Exit code 0 when both agree with the expectation, 1 when one does not, 2 on unreadable input.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path, PurePosixPath

Found = dict[str, dict[str, str | None]]


def spec_of(module: str, search: list[str] | None) -> ModuleSpec | None:
    """Ask the import system's finders, in its order, without importing parents."""
    found = (finder.find_spec(module, search, None) for finder in sys.meta_path)
    return next((spec for spec in found if spec is not None), None)


def locate(name: str) -> Path | None:
    """Return the file that an import of package-relative `name` would read, or None.

    A name that is no Python module (a kernel, a table) is looked for in the directories of its
    package, in their order.
    """
    path = PurePosixPath(name)
    parts = path.parent.parts
    search: list[str] | None = None
    origin: str | None = None
    for depth in range(1, len(parts) + 1):
        try:
            spec = spec_of(".".join(parts[:depth]), search)
        except KeyError:  # a folder without __init__.py, whose parent was not imported
            folders = [Path(directory, parts[depth - 1]) for directory in search or []]
            search, origin = [str(folder) for folder in folders if folder.is_dir()], None
            continue
        if spec is None or spec.submodule_search_locations is None:
            return None
        search, origin = list(spec.submodule_search_locations), spec.origin
    if path.suffix != ".py":
        hits = (Path(directory, path.name) for directory in search or [])
        return next((hit for hit in hits if hit.is_file()), None)
    if path.name != "__init__.py":
        spec = spec_of(".".join((*parts, path.stem)), search)
        origin = spec.origin if spec else None
    return Path(origin) if origin else None


def look(names: list[str]) -> Found:
    """Return `__file__` and SHA-256 (hex) of each name, both None where nothing is found."""
    found: Found = {}
    for name in names:
        at = locate(name)
        digest = hashlib.sha256(at.read_bytes()).hexdigest() if at else None
        found[name] = {"file": str(at) if at else None, "sha256": digest}
    return found


def main(argv: list[str]) -> int:
    """Look in this process and in a spawned one, print both, compare."""
    try:
        text = sys.stdin.read() if argv[0] == "-" else Path(argv[0]).read_text(encoding="utf-8")
        expected: dict[str, str | None] = json.loads(text)
    except (IndexError, OSError, ValueError) as error:
        print(f"probe: {error}", file=sys.stderr)
        return 2
    names = sorted(expected)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        processes = {"process": look(names), "worker": pool.apply(look, (names,))}
    wrong = sorted(
        name
        for name in names
        if any(found[name]["sha256"] != expected[name] for found in processes.values())
    )
    print(json.dumps({"probe": 1, "match": not wrong, "wrong": wrong, **processes}))
    return 1 if wrong else 0


if __name__ == "__main__":  # the worker is spawned and imports this file
    sys.exit(main(sys.argv[1:]))
