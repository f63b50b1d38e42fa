"""The house rules that no linter keeps."""

from __future__ import annotations

import ast
import statistics
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_files_of_the_package_stay_short() -> None:
    sizes = {path: len(path.read_text().splitlines()) for path in (ROOT / "stack").rglob("*.py")}
    written = [size for size in sizes.values() if size]
    assert {str(path): size for path, size in sizes.items() if size > 300} == {}
    assert statistics.median(written) <= 110


def test_packages_do_not_re_export() -> None:
    for path in (ROOT / "stack").rglob("__init__.py"):
        body = ast.parse(path.read_text()).body
        assert not [one for one in body if isinstance(one, (ast.Import, ast.ImportFrom))], path
