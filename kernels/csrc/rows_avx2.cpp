// SPDX-License-Identifier: Apache-2.0
//
// Eight int32 words a vector. Nibble i of every word is masked where it stands and converted,
// which makes it 16^i too large; the activations that meet it are made 16^i too small. The zero
// points are taken off at the start. So for each 8 words the activations are arranged as one
// vector of -8 times their sums, then eight vectors by position in the word. The highest nibble
// is shifted down instead: where it stands it is a sign.
#include "rows.hpp"

#if defined(__x86_64__)
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#endif

namespace u4moe {
namespace {

constexpr std::int64_t kLanes = 8;
constexpr std::int64_t kNibbles = 8;
constexpr std::int64_t kVectors = 1 + kNibbles;

bool takes_group(std::int64_t group) {
  const std::int64_t words = group / kNibbles;
  return words % kLanes == 0 || kLanes % words == 0;
}

std::int64_t blocks_of(std::int64_t k) { return (k / kNibbles + kLanes - 1) / kLanes; }

std::int64_t arranged_size(std::int64_t k, std::int64_t) { return blocks_of(k) * kLanes * kVectors; }

void arrange(const float* x, float* arranged, std::int64_t k, std::int64_t) {
  const std::int64_t words = k / kNibbles;
  for (std::int64_t b = 0; b < blocks_of(k); ++b, arranged += kLanes * kVectors) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      const std::int64_t word = b * kLanes + lane;
      float sum = 0.0f;
      float scale = 1.0f;
      for (std::int64_t i = 0; i < kNibbles; ++i) {
        const float value = word < words ? x[word * kNibbles + i] : 0.0f;
        sum += value;
        arranged[(1 + i) * kLanes + lane] = i + 1 < kNibbles ? value * scale : value;
        scale *= 0.0625f;
      }
      arranged[lane] = -8.0f * sum;
    }
  }
}

void widen(const std::uint16_t* raw, bool bf16, float* out, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const __m128i bits = _mm_cvtsi32_si128(bf16 ? static_cast<int>(std::uint32_t{raw[i]} << 16)
                                                : static_cast<int>(raw[i]));
    out[i] = _mm_cvtss_f32(bf16 ? _mm_castsi128_ps(bits) : _mm_cvtph_ps(bits));
  }
}

__m256i load_words(const std::uint8_t* at, std::int64_t left) {
  if (left >= kLanes) return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(left)), lane);
  return _mm256_maskload_epi32(reinterpret_cast<const int*>(at), mask);
}

float add_lanes(__m256 v) {
  __m128 half = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  half = _mm_add_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}

// The scale of each of a block's words, where several groups share a block.
__m256 spread(const float* scales, std::int64_t groups, std::int64_t block, std::int64_t words) {
  alignas(32) float lane_scales[kLanes];
  for (std::int64_t lane = 0; lane < kLanes; ++lane) {
    const std::int64_t g = (block * kLanes + lane) / words;
    lane_scales[lane] = g < groups ? scales[g] : 0.0f;
  }
  return _mm256_load_ps(lane_scales);
}

template <int R, int T>
void dot_block(const DotCall& c, std::int64_t row, std::int64_t token) {
  const std::int64_t groups = c.groups;
  const std::int64_t words = c.k / kNibbles;
  const std::int64_t group_words = c.group / kNibbles;
  std::int64_t group = 0;
  std::int64_t group_left = group_words;
  __m256 sum[R][T];
  for (int r = 0; r < R; ++r) {
    for (int t = 0; t < T; ++t) sum[r][t] = _mm256_setzero_ps();
  }
  for (std::int64_t b = 0; b < blocks_of(c.k); ++b) {
    for (int r = 0; r < R; ++r) {
      const std::uint8_t* at = c.weights + (row + r) * c.k / 2 + b * kLanes * 4;
      const __m256i bits = load_words(at, words - b * kLanes);
      // The same place R rows on: asked for once, well before it is needed.
      if (token == 0) _mm_prefetch(at + R * c.k / 2, _MM_HINT_T0);
      __m256 part[T];
      for (int t = 0; t < T; ++t) {
        part[t] = _mm256_loadu_ps(c.x[token + t] + b * kVectors * kLanes);
      }
#pragma GCC unroll 8
      for (int i = 0; i < kNibbles; ++i) {
        const __m256i nibble = i + 1 < kNibbles
                                   ? _mm256_and_si256(bits, _mm256_set1_epi32(15 << (4 * i)))
                                   : _mm256_srli_epi32(bits, 4 * i);
        const __m256 f = _mm256_cvtepi32_ps(nibble);
        for (int t = 0; t < T; ++t) {
          const float* x = c.x[token + t] + (b * kVectors + 1 + i) * kLanes;
          part[t] = _mm256_fmadd_ps(f, _mm256_loadu_ps(x), part[t]);
        }
      }
      const float* scales = c.scale_buffer + r * groups;
      const __m256 s = group_words >= kLanes ? _mm256_set1_ps(scales[group])
                                             : spread(scales, groups, b, group_words);
      for (int t = 0; t < T; ++t) sum[r][t] = _mm256_fmadd_ps(part[t], s, sum[r][t]);
    }
    if ((group_left -= kLanes) == 0) {
      group_left = group_words;
      ++group;
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int t = 0; t < T; ++t) {
      c.out[(token + t) * kBlockRows + row + r] = add_lanes(sum[r][t]);
    }
  }
}

template <int R>
void dot_rows(const DotCall& c, std::int64_t row) {
  widen(c.scales + row * c.groups, c.scales_bf16, c.scale_buffer, R * c.groups);
  std::int64_t token = 0;
  for (; token + 4 <= c.tokens; token += 4) dot_block<R, 4>(c, row, token);
  for (; token < c.tokens; ++token) dot_block<R, 1>(c, row, token);
}

void dot(const DotCall& c) {
  std::int64_t row = 0;
  for (; row + 2 <= c.rows; row += 2) dot_rows<2>(c, row);
  if (row < c.rows) dot_rows<1>(c, row);
}

// What follows runs on every processor.
#if defined(__clang__)
#pragma clang attribute pop
#endif
#pragma GCC pop_options

bool runs_here() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}

}  // namespace

const RowKernels* avx2_kernels() {
  static const RowKernels kernels{"avx2", runs_here, takes_group, arranged_size, arrange, dot};
  return &kernels;
}

}  // namespace u4moe
#else
namespace u4moe {
const RowKernels* avx2_kernels() { return nullptr; }
}  // namespace u4moe
#endif
