// SPDX-License-Identifier: Apache-2.0
//
// Products of 16-bit integers, summed in 32 bits. Each 128 activations are whole numbers up to
// 32767 times a power of two of their own: exact where they do not differ by more than that, else
// off by a hundredth of what rounding the result to BF16 costs. Nibbles less eight are exact. A
// permute looks at the five low bits of each half word: its table holds the sixteen values twice,
// so the next nibble's bit does no harm. Nibbles 0 and 4 of a word stand in one lane, 1 and 5 after
// a shift by four; the same words read from one byte further on give 2 and 6, 3 and 7.
#include "rows.hpp"

#if defined(__x86_64__)
#include <immintrin.h>

#pragma GCC target("avx512f,avx512bw,avx512vnni")
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vnni"))), \
                             apply_to = function)
#endif

#include <cmath>
#include <cstring>

#include "avx512_common.hpp"

namespace u4moe {
namespace {

constexpr std::int64_t kPairs = kNibbles / 2;
constexpr std::int64_t kBlock = kPairs * kLanes;  // 32-bit units of a block's activations
constexpr std::int64_t kAhead = 4;  // blocks of rows
constexpr float kLargest = 32767.0f;
constexpr float kSmallest = 1e-30f;  // a block with nothing larger counts as zero

std::int64_t scales_size(std::int64_t k) { return (blocks_of(k) + kLanes - 1) / kLanes * kLanes; }

std::int64_t arranged_size(std::int64_t k) { return scales_size(k) + blocks_of(k) * kBlock; }

// The scales of all blocks, then the blocks: four vectors of words 0 to 15 each, a lane of which
// holds activations i and i + 4 of its word. A block with an infinity or NaN has a scale of NaN.
void arrange(const float* x, float* arranged, std::int64_t k) {
  float* to = arranged + scales_size(k);
  for (std::int64_t b = 0; b < blocks_of(k); ++b) {
    const float* from = x + b * kLanes * kNibbles;
    const std::int64_t left = k - b * kLanes * kNibbles;
    const std::int64_t count = left < kLanes * kNibbles ? left : kLanes * kNibbles;
    float largest = 0.0f;
    float sum = 0.0f;  // becomes NaN where one is infinite or NaN
    for (std::int64_t i = 0; i < count; ++i) {
      largest = std::fabs(from[i]) > largest ? std::fabs(from[i]) : largest;
      sum += 0.0f * from[i];
    }
    int exponent = 0;  // the largest is less than two to the power of it
    std::frexp(largest, &exponent);
    if (std::ldexp(largest, 15 - exponent) > kLargest) ++exponent;
    const bool whole_numbers = largest > kSmallest && sum == 0.0f;
    const float inverse = whole_numbers ? std::ldexp(1.0f, 15 - exponent) : 0.0f;
    arranged[b] = whole_numbers ? std::ldexp(1.0f, exponent - 15) : sum;
    alignas(64) std::int16_t whole[kLanes * kNibbles] = {};
    for (std::int64_t i = 0; i < count && inverse != 0.0f; ++i) {
      whole[i] = static_cast<std::int16_t>(std::lrintf(from[i] * inverse));
    }
    std::int16_t pairs[2 * kBlock];
    for (std::int64_t i = 0; i < kPairs; ++i) {
      for (std::int64_t lane = 0; lane < kLanes; ++lane) {
        pairs[2 * (i * kLanes + lane)] = whole[lane * kNibbles + i];
        pairs[2 * (i * kLanes + lane) + 1] = whole[lane * kNibbles + i + kPairs];
      }
    }
    std::memcpy(to + b * kBlock, pairs, sizeof pairs);
  }
}

__m512i doubled_table() {
  alignas(64) std::int16_t table[32];
  for (int i = 0; i < 32; ++i) table[i] = static_cast<std::int16_t>(i % 16 - 8);
  return _mm512_load_si512(table);
}

struct Block {
  template <int R, int T>
  static void run(const DotCall& c, std::int64_t row, std::int64_t token) {
    const __m512i value = doubled_table();
    const std::int64_t words = c.k / kNibbles;
    const std::int64_t header = scales_size(c.k);
    Groups groups(c);
    const std::uint8_t* w[R];
    __m512 sum[R][T];
    for (int r = 0; r < R; ++r) {
      w[r] = c.weights + (row + r) * c.k / 2;
      for (int t = 0; t < T; ++t) sum[r][t] = _mm512_setzero_ps();
    }
    for (std::int64_t b = 0; b < blocks_of(c.k); ++b, groups.next()) {
      const std::int64_t left = words - b * kLanes;
      const __mmask16 mask = static_cast<__mmask16>(left < kLanes ? (1u << left) - 1 : 0xFFFFu);
      // One byte less than the words have: no read goes beyond the row.
      const __mmask64 bytes = left < kLanes ? (1ull << (4 * left - 1)) - 1 : ~0ull >> 1;
      for (int r = 0; r < R; ++r) {
        const std::uint8_t* at = w[r] + b * kLanes * 4;
        const __m512i even = _mm512_maskz_loadu_epi32(mask, at);
        const __m512i odd = _mm512_maskz_loadu_epi8(bytes, at + 1);
        // Into the second cache, which can wait for more lines at a time than the first.
        if (token == 0) _mm_prefetch(at + kAhead * R * c.k / 2, _MM_HINT_T1);
        const __m512i f0 = _mm512_permutexvar_epi16(even, value);
        const __m512i f1 = _mm512_permutexvar_epi16(_mm512_srli_epi32(even, 4), value);
        const __m512i f2 = _mm512_permutexvar_epi16(odd, value);
        const __m512i f3 = _mm512_permutexvar_epi16(_mm512_srli_epi32(odd, 4), value);
        const __m512 s = groups.scale(c.scale_buffer + (row + r) * groups.count, b);
        for (int t = 0; t < T; ++t) {
          const float* x = c.x[token + t] + header + b * kBlock;
          __m512i part = _mm512_setzero_si512();
          part = _mm512_dpwssd_epi32(part, f0, _mm512_loadu_si512(x));
          part = _mm512_dpwssd_epi32(part, f1, _mm512_loadu_si512(x + kLanes));
          part = _mm512_dpwssd_epi32(part, f2, _mm512_loadu_si512(x + 2 * kLanes));
          part = _mm512_dpwssd_epi32(part, f3, _mm512_loadu_si512(x + 3 * kLanes));
          const __m512 scaled = _mm512_mul_ps(s, _mm512_set1_ps(c.x[token + t][b]));
          sum[r][t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(part), scaled, sum[r][t]);
        }
      }
    }
    put(c, row, token, sum);
  }
};

}  // namespace

const RowKernels* avx512vnni_kernels() {
  static const RowKernels kernels{"avx512vnni", takes_group, arranged_size, arrange, dot<Block>};
  return &kernels;
}

}  // namespace u4moe

#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
namespace u4moe {
const RowKernels* avx512vnni_kernels() { return nullptr; }
}  // namespace u4moe
#endif
