"""The core header, compiled alone as plain C++17, does what the reference does."""

from __future__ import annotations

import subprocess
from pathlib import Path

HEADER = Path(__file__).resolve().parents[2] / "kernels" / "csrc" / "u4moe_core.hpp"

PROGRAM = r"""
#include <cmath>
#include <cstdio>
#include "u4moe_core.hpp"
using namespace u4moe;

int main() {
  // Byte 0x80 is -8 then 0, 0x0F is 7 then -8: low nibble first, 8 stands for zero.
  const std::uint8_t row[4] = {0x80, 0x0F, 0x71, 0xC6};
  const int wanted[8] = {-8, 0, 7, -8, -7, -1, -2, 4};
  for (int k = 0; k < 8; ++k) {
    const int nibble = (row[k / 2] >> (k % 2 * 4)) & 15;
    if (U4::decode(nibble) != wanted[k]) return 1;
  }
  for (int byte = 0; byte < 256; ++byte) {
    const int converted = to_signed_compact(byte);
    if (S4::decode(converted & 15) != U4::decode(byte & 15)) return 2;
    if (S4::decode(converted >> 4) != U4::decode(byte >> 4)) return 3;
  }
  const float scales[2] = {2.0f, 0.5f};  // groups of four
  const float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  // 2 * (-8 + 0 + 21 - 32) + 0.5 * (-35 - 6 - 14 + 32) = -38 - 11.5
  float dot = 0;
  for (int lane = 0; lane < 2; ++lane) {
    dot = down_lane<U4>(dot, 3.0f, row, scales, x, 8, lane, 2, 4);
  }
  if (dot != 3.0f * -49.5f) return 4;
  const GateUp sums = gate_up_lane<U4>(row, scales, row, scales, x, 4, 0, 1, 4);
  if (sums.gate != -49.5f || sums.up != -49.5f) return 5;
  const float act = silu_mul(2.0f, 3.0f, [](float v) { return std::exp(v); });
  if (std::fabs(act - 5.284782f) > 1e-5f) return 6;
  std::puts("ok");
}
"""


def test_arithmetic(tmp_path: Path, compiler: str) -> None:
    source = tmp_path / "core.cpp"
    source.write_text(PROGRAM)
    program = tmp_path / "core"
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-pedantic", f"-I{HEADER.parent}"]
    subprocess.run([compiler, *flags, str(source), "-o", str(program)], check=True)
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "ok\n")


def test_includes_nothing_but_the_standard_library() -> None:
    lines = [x for x in HEADER.read_text().splitlines() if x.startswith("#include")]
    assert lines == ["#include <cstdint>"]
