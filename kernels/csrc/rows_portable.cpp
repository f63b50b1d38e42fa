// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "rows.hpp"
#include "u4moe_core.hpp"

namespace u4moe {
namespace {

float from_bits(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

float from_bf16(std::uint16_t bits) { return from_bits(static_cast<std::uint32_t>(bits) << 16); }

float from_fp16(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1Fu;
  const std::uint32_t fraction = bits & 0x3FFu;
  if (exponent == 0x1F) return from_bits(sign | 0x7F800000u | (fraction << 13));
  if (exponent != 0) return from_bits(sign | ((exponent + 112) << 23) | (fraction << 13));
  const float tiny = static_cast<float>(fraction) * 5.9604644775390625e-8f;  // 2^-24
  return sign != 0 ? -tiny : tiny;
}

bool runs_here() { return true; }

bool takes_group(std::int64_t) { return true; }

std::int64_t arranged_size(std::int64_t k, std::int64_t) { return k; }

void arrange(const float* x, float* arranged, std::int64_t k, std::int64_t) {
  std::memcpy(arranged, x, static_cast<std::size_t>(k) * sizeof(float));
}

void dot(const DotCall& c) {
  const std::int64_t groups = c.groups;
  for (std::int64_t r = 0; r < c.rows; ++r) {
    const std::uint16_t* raw = c.scales + r * groups;
    for (std::int64_t g = 0; g < groups; ++g) {
      c.scale_buffer[g] = c.scales_bf16 ? from_bf16(raw[g]) : from_fp16(raw[g]);
    }
    for (std::int64_t t = 0; t < c.tokens; ++t) {
      c.out[t * kBlockRows + r] =
          down_lane<U4>(0.0f, 1.0f, c.weights + r * c.k / 2, c.scale_buffer, c.x[t],
                        static_cast<int>(c.k), 0, 1, static_cast<int>(c.group));
    }
  }
}

}  // namespace

const RowKernels* portable_kernels() {
  static const RowKernels kernels{"portable", runs_here, takes_group, arranged_size, arrange, dot};
  return &kernels;
}

}  // namespace u4moe
