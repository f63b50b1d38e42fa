"""Builds the CPU extension where torch and a C++ compiler are; else says so and goes without."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

from setuptools import setup

# GCC 12 warns about its own intrinsics headers.
GCC_12 = ["-Wno-uninitialized", "-Wno-maybe-uninitialized"]
SOURCES = Path(__file__).parent / "csrc"


def lacking() -> str | None:
    """What the extension needs and this environment has not."""
    try:
        import torch  # noqa: F401
    except ImportError:
        return "torch is not installed here"
    compiler = shlex.split(os.environ.get("CXX", "c++"))[0]
    if shutil.which(compiler) is None:
        return f"the C++ compiler {compiler} is not on PATH"
    return None


missing = lacking()
if missing is not None:
    print(f"u4moe: {missing}, so the CPU extension is left out: plain torch stands in for it")
    setup()
else:
    from torch.utils.cpp_extension import BuildExtension, CppExtension

    extension = CppExtension(
        "u4moe._cpu",
        sorted(f"csrc/{one.name}" for one in SOURCES.glob("*.cpp")),
        depends=sorted(f"csrc/{one.name}" for one in SOURCES.glob("*.hpp")),
        extra_compile_args=[
            "-O3",
            "-std=c++20",
            "-fopenmp",
            "-Wall",
            "-Wno-unknown-pragmas",
            *GCC_12,
        ],
    )
    setup(ext_modules=[extension], cmdclass={"build_ext": BuildExtension})
