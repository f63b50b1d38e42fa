"""Builds the CPU extension where torch can be imported; without torch the package has none."""

from __future__ import annotations

from setuptools import setup

# GCC 12 warns about its own intrinsics headers.
GCC_12 = ["-Wno-uninitialized", "-Wno-maybe-uninitialized"]
SOURCES = ["experts", "rows_avx512", "rows_avx2", "rows_portable"]

try:
    from torch.utils.cpp_extension import BuildExtension, CppExtension
except ImportError:
    print("u4moe: torch is not installed here, so the CPU extension is left out")
    setup()
else:
    extension = CppExtension(
        "u4moe._cpu",
        [f"csrc/{name}.cpp" for name in SOURCES],
        depends=["csrc/rows.hpp", "csrc/u4moe_core.hpp"],
        extra_compile_args=[
            "-O3",
            "-std=c++20",
            "-fopenmp",
            "-Wall",
            "-Wno-unknown-pragmas",
            *GCC_12,
        ],
    )
    setup(
        ext_modules=[extension],
        cmdclass={"build_ext": BuildExtension.with_options(use_ninja=False)},
    )
