"""Upstream's own code beside the patched one, and the graphs that torch.compile makes of both."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import vllm
from vllm.utils import torch_utils

PATCHES = Path(__file__).parents[3] / "patches" / os.environ["STACK_LINE"]


def module_without(root: Path, patch: str, name: str, *, marker: str) -> ModuleType:
    """The module `name` as it was before `patch`, loaded beside the patched one.

    The patch is taken back out of copies of the layer's files in `root`, so it has to be the
    last one there that touches them. `marker` is a text that only the patched module holds.
    """
    file = PATCHES / f"{patch}.patch"
    package = Path(vllm.__file__).parent.parent
    folder = root / name
    for line in file.read_text().splitlines():
        if line.startswith("+++ b/"):
            path = folder / line.removeprefix("+++ b/")
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(package / line.removeprefix("+++ b/"), path)
    subprocess.run(["git", "apply", "-R", str(file)], cwd=folder, check=True)
    source = folder / f"{name.replace('.', '/')}.py"
    assert marker in (package / f"{name.replace('.', '/')}.py").read_text()
    assert marker not in source.read_text()
    # Named as a neighbour of the patched one, so that relative imports work.
    spec = importlib.util.spec_from_file_location(f"{name}_unpatched", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as monkeypatch:
        # Its operators exist already: the patched module registered them.
        monkeypatch.setattr(torch_utils, "direct_register_custom_op", lambda **_: None)
        spec.loader.exec_module(module)
    return module


class _TracedError(Exception):
    """Ends a compiled call once its graph is taken."""


def trace(function: Callable[..., Any], *args: Any) -> str:
    """The code of the one graph that torch.compile makes of `function`."""
    graphs: list[str] = []

    def stop(*_: Any) -> Any:
        raise _TracedError

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        graphs.append(graph.code)
        return stop

    torch._dynamo.reset()
    with pytest.raises(_TracedError):
        torch.compile(function, backend=backend, fullgraph=True)(*args)
    (code,) = graphs
    return code
