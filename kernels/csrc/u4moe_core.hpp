// SPDX-License-Identifier: Apache-2.0
// Arithmetic of routed INT4 experts: nibble decode, dot products, activation
// and route weighting. Plain C++17 without SYCL, torch or intrinsics, so that
// one text is device code, host code and what the CPU tests compile.
//
// Layout: two nibbles a byte along K, low nibble first; one scale per row and
// group along K; value = decode(nibble) * scale. Sums are kept in float.

#pragma once

#include <cstdint>

namespace u4moe {

constexpr int kGroupSize = 128;

// Unsigned nibbles as checkpoints store them: 0..15 stands for -8..7.
struct U4 {
  static int decode(std::uint8_t nibble) { return int(nibble & 0x0F) - 8; }
};

// Two's complement nibbles, the signed compact form.
struct S4 {
  static int decode(std::uint8_t nibble) {
    const int value = nibble & 0x0F;
    return value >= 8 ? value - 16 : value;
  }
};

// Both nibbles of a byte from the unsigned to the signed compact form.
inline std::uint8_t to_signed_compact(std::uint8_t packed) {
  return packed ^ 0x88;
}

struct GateUp {
  float gate;
  float up;
};

// One lane's share of a gate row and an up row times x: bytes lane,
// lane + lanes, ... The order of the additions is part of the contract: with
// it U4 and S4 give equal bits on converted weights.
template <class Decode, class X, class Scale>
inline GateUp gate_up_lane(const std::uint8_t* gate_row,
                           const Scale* gate_scales,
                           const std::uint8_t* up_row, const Scale* up_scales,
                           const X* x, int k_bytes, int lane, int lanes,
                           int group_size = kGroupSize) {
  GateUp sum{0.0f, 0.0f};
  for (int kb = lane; kb < k_bytes; kb += lanes) {
    const int group = kb / (group_size / 2);
    const std::uint8_t gate_packed = gate_row[kb];
    const std::uint8_t up_packed = up_row[kb];
    const float gate_scale = static_cast<float>(gate_scales[group]);
    const float up_scale = static_cast<float>(up_scales[group]);
    const float x0 = static_cast<float>(x[2 * kb]);
    const float x1 = static_cast<float>(x[2 * kb + 1]);
    sum.gate += x0 * (float(Decode::decode(gate_packed & 0x0F)) * gate_scale);
    sum.gate += x1 * (float(Decode::decode(gate_packed >> 4)) * gate_scale);
    sum.up += x0 * (float(Decode::decode(up_packed & 0x0F)) * up_scale);
    sum.up += x1 * (float(Decode::decode(up_packed >> 4)) * up_scale);
  }
  return sum;
}

// One lane's share of route_weight * (row . x), added to acc: elements lane,
// lane + lanes, ...
template <class Decode, class X, class Scale>
inline float down_lane(float acc, float route_weight, const std::uint8_t* row,
                       const Scale* scales, const X* x, int k_size, int lane,
                       int lanes, int group_size = kGroupSize) {
  for (int k = lane; k < k_size; k += lanes) {
    const std::uint8_t packed = row[k / 2];
    const std::uint8_t nibble = (k & 1) ? packed >> 4 : packed & 0x0F;
    const float value = float(Decode::decode(nibble)) *
                        static_cast<float>(scales[k / group_size]);
    acc += route_weight * static_cast<float>(x[k]) * value;
  }
  return acc;
}

// silu(gate) * up; exp is an argument because device code has its own.
template <class Exp>
inline float silu_mul(float gate, float up, Exp exp) {
  return gate / (1.0f + exp(-gate)) * up;
}

}  // namespace u4moe
