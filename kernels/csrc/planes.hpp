// SPDX-License-Identifier: Apache-2.0
//
// How activations stand as two planes of bytes, for the kernels that multiply bytes. Each block of
// 128 is whole numbers up to 32512 times a power of two of its own, 256 * high + low with both
// halves signed bytes: exact where they do not differ by more than that, else off by a hundredth of
// what rounding the result to BF16 costs.
#pragma once

#include <cstdint>

namespace u4moe {
namespace {

constexpr std::int64_t kBlockValues = 128;
constexpr std::int64_t kPlane = 16;          // 32-bit units of 64 bytes
constexpr std::int64_t kBlock = 4 * kPlane;  // even and odd places' high bytes, then their low ones

// Where the parts of a token's planes begin, in 32-bit units.
struct Layout {
  // First the blocks' powers of two. Then what a group's scale is multiplied by, for the products
  // and for the eight that each nibble is too large: for sixteen rows, each as the one before.
  std::int64_t factors, eights;
  std::int64_t sums;  // of each block's high bytes and of its low ones, as integers
  std::int64_t planes;
  std::int64_t end;

  Layout(std::int64_t blocks, std::int64_t groups)
      : factors((blocks + 15) / 16 * 16),
        eights(factors + 16 * groups),
        sums(eights + 16 * groups),
        planes(sums + (2 * blocks + 15) / 16 * 16),
        end(planes + blocks * kBlock) {}
};

}  // namespace
}  // namespace u4moe
