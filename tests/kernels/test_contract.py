"""Wrong arguments are named, and the package imports where its backends are missing."""

from __future__ import annotations

import dataclasses
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

import torch
import u4moe
from torch import Tensor
from u4moe import layout, tuning

from tests.kernels.helpers import Problem, problem

KERNELS = Path(u4moe.__file__).resolve().parents[1]


def test_sizes() -> None:
    shape = layout.check(problem(2, 256, 128, experts=5, topk=3).arguments())
    assert shape == layout.Shape(2, 256, 128, 5, 3, 128)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("x", torch.float32),
        ("w13", torch.int8),
        ("w2", torch.int32),
        ("s13", torch.float32),
        ("s2", torch.float64),
        ("route", torch.float64),
        ("ids", torch.int16),
    ],
)
def test_wrong_types_are_named(name: str, dtype: torch.dtype) -> None:
    p = problem(2, 256, 128)
    bad = dataclasses.replace(p, **{name: getattr(p, name).to(dtype)})
    public = {"x": "hidden_states", "route": "topk_weights", "ids": "topk_ids"}.get(name, name)
    with pytest.raises(TypeError, match=f"^{public} has type"):
        layout.check(bad.arguments())


def _changed(p: Problem, name: str, tensor: Tensor) -> Problem:
    return dataclasses.replace(p, **{name: tensor})


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("x", lambda t: t[0], "hidden_states has 1 dimensions, expected 2"),
        ("x", lambda t: t.t().contiguous().t(), "hidden_states is not contiguous"),
        ("x", lambda t: t.to("meta"), "w13 is on cpu, hidden_states on meta"),
        ("w13", lambda t: t[:, :-1].contiguous(), r"w13 has shape \(5, 255, 128\), expected"),
        ("w2", lambda t: t[:, :, :-4].contiguous(), "is not a multiple of the group size 128"),
        ("s13", lambda t: t[:, :, :0].contiguous(), "empty dimension"),
        ("s13", lambda t: torch.cat((t, t[:, :, :1]), -1), "s13 has 3 scales for H=256"),
        ("s2", lambda t: t[:, :-1].contiguous(), "s2 has shape"),
        ("route", lambda t: t[:, :-1].contiguous(), "topk_weights has shape"),
        ("ids", lambda t: t[:-1].contiguous(), "topk_ids has shape"),
    ],
)
def test_wrong_shapes_are_named(name: str, change: object, message: str) -> None:
    p = problem(2, 256, 128)
    assert callable(change)
    with pytest.raises(ValueError, match=message):
        layout.check(_changed(p, name, change(getattr(p, name))).arguments())


def test_fake_kernel_gives_the_shape() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        fake = [mode.from_tensor(t) for t in problem(3, 256, 128).arguments()]
        out = torch.ops.u4moe.fused_experts(*fake)
    assert out.shape == (3, 256) and out.dtype == torch.float16


def test_unknown_device() -> None:
    assert "no kernels for meta" in str(u4moe.u4_unavailable("meta"))


def test_absent_gpu_has_a_reason() -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert u4moe.u4_unavailable("cuda") == "torch sees no cuda device"


def test_runs_without_triton_and_extension(tmp_path: Path) -> None:
    """A copy of the Python files alone, with Triton hidden, runs and says once what is missing."""
    copy = tmp_path / "u4moe"
    copy.mkdir()
    for file in (KERNELS / "u4moe").glob("*.py"):
        (copy / file.name).write_text(file.read_text())
    (tmp_path / "triton.py").write_text("raise ImportError('hidden')\n")
    script = (
        "import sys; sys.modules['triton'] = None; import torch, u4moe\n"
        "print(u4moe.u4_unavailable('cpu'))\n"
        "x = torch.zeros(1, 128).half(); w13 = torch.zeros(1, 256, 64, dtype=torch.uint8)\n"
        "s13 = torch.zeros(1, 256, 1).half(); w2 = torch.zeros(1, 128, 64, dtype=torch.uint8)\n"
        "s2 = torch.zeros(1, 128, 1).half(); r = torch.ones(1, 1); i = torch.zeros(1, 1).int()\n"
        "for _ in range(2):\n"
        "    print(u4moe.moe_forward_tiny_nmajor_u4(x, w13, s13, w2, s2, r, i).norm().item())\n"
    )
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            "-c",
            f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {script}",
        ],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert done.stdout.split() == ["None", "0.0", "0.0"]
    assert done.stderr.count("CPU extension is not built") == 1


def test_tiles_are_chosen_by_shape() -> None:
    rows = tuning.TABLE[(3072, 1536)]
    assert tuning.choose(3072, 1536, 1) == rows[1]
    assert tuning.choose(3072, 1536, 3) == rows[4]
    assert tuning.choose(3072, 1536, 100) == rows[max(rows)]
    assert tuning.choose(1000, 1536, 1) == tuning.DEFAULT
