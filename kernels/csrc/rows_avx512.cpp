// SPDX-License-Identifier: Apache-2.0
//
// Sixteen int32 words a vector. One permute turns nibble i of every word into its float: the
// permute looks at the four low bits of each lane only, so a shift is all the decoding there is.
// Activations are arranged to match: for each 16 words, eight vectors by position in the word.
#include "rows.hpp"

#if defined(__x86_64__)
#include <immintrin.h>

#pragma GCC target("avx512f")
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f"))), apply_to = function)
#endif

namespace u4moe {
namespace {

constexpr std::int64_t kLanes = 16;
constexpr std::int64_t kNibbles = 8;

bool takes_group(std::int64_t group) {
  const std::int64_t words = group / kNibbles;
  return words % kLanes == 0 || kLanes % words == 0;
}

std::int64_t blocks_of(std::int64_t k) { return (k / kNibbles + kLanes - 1) / kLanes; }

std::int64_t arranged_size(std::int64_t k) { return blocks_of(k) * kLanes * kNibbles; }

void arrange(const float* x, float* arranged, std::int64_t k) {
  const std::int64_t words = k / kNibbles;
  for (std::int64_t b = 0; b < blocks_of(k); ++b) {
    for (std::int64_t i = 0; i < kNibbles; ++i) {
      for (std::int64_t lane = 0; lane < kLanes; ++lane) {
        const std::int64_t word = b * kLanes + lane;
        *arranged++ = word < words ? x[word * kNibbles + i] : 0.0f;
      }
    }
  }
}

void widen(const std::uint16_t* raw, bool bf16, float* out, std::int64_t n) {
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const std::int64_t left = n - i;
    std::uint16_t part[kLanes] = {};
    for (std::int64_t j = 0; j < (left < kLanes ? left : kLanes); ++j) part[j] = raw[i + j];
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(part));
    const __m512 wide =
        bf16 ? _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16))
             : _mm512_cvtph_ps(half);
    const __mmask16 mask = static_cast<__mmask16>(left < kLanes ? (1u << left) - 1 : 0xFFFFu);
    _mm512_mask_storeu_ps(out + i, mask, wide);
  }
}

// The scale of each of a block's words, where several groups share a block.
__m512 spread(const float* scales, std::int64_t groups, std::int64_t block, std::int64_t words,
              __m512i lane_group) {
  const std::int64_t in_block = kLanes / words;
  const std::int64_t first = block * in_block;
  const std::int64_t left = groups - first < in_block ? groups - first : in_block;
  const __mmask16 mask = static_cast<__mmask16>((1u << left) - 1);
  return _mm512_permutexvar_ps(lane_group, _mm512_maskz_loadu_ps(mask, scales + first));
}

template <int R, int T>
void dot_block(const DotCall& c, std::int64_t row, std::int64_t token) {
  const __m512 value = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
  const std::int64_t groups = c.k / c.group;
  const std::int64_t group_words = c.group / kNibbles;
  const std::int64_t words = c.k / kNibbles;
  const bool wide_group = group_words >= kLanes;
  alignas(64) std::int32_t lane_groups[kLanes];
  for (std::int64_t lane = 0; lane < kLanes; ++lane) {
    lane_groups[lane] = static_cast<std::int32_t>(lane / group_words);
  }
  const __m512i lane_group = _mm512_load_si512(lane_groups);
  const std::uint8_t* w[R];
  __m512 sum[R][T];
  for (int r = 0; r < R; ++r) {
    w[r] = c.weights + (row + r) * c.k / 2;
    for (int t = 0; t < T; ++t) sum[r][t] = _mm512_setzero_ps();
  }
  std::int64_t group = 0;
  std::int64_t group_left = group_words;
  for (std::int64_t b = 0; b < blocks_of(c.k); ++b) {
    const std::int64_t left = words - b * kLanes;
    const __mmask16 mask = static_cast<__mmask16>(left < kLanes ? (1u << left) - 1 : 0xFFFFu);
    __m512i bits[R];
    __m512 part[R][T];
    for (int r = 0; r < R; ++r) {
      bits[r] = _mm512_maskz_loadu_epi32(mask, w[r] + b * kLanes * 4);
      // The same place R rows on: asked for once, about half a microsecond before it is needed.
      if (token == 0) _mm_prefetch(w[r] + R * c.k / 2 + b * kLanes * 4, _MM_HINT_T0);
      for (int t = 0; t < T; ++t) part[r][t] = _mm512_setzero_ps();
    }
#pragma GCC unroll 8
    for (int i = 0; i < kNibbles; ++i) {
      __m512 x[T];
      for (int t = 0; t < T; ++t) {
        x[t] = _mm512_loadu_ps(c.x[token + t] + (b * kNibbles + i) * kLanes);
      }
      for (int r = 0; r < R; ++r) {
        const __m512 f = _mm512_permutexvar_ps(_mm512_srli_epi32(bits[r], 4 * i), value);
        for (int t = 0; t < T; ++t) part[r][t] = _mm512_fmadd_ps(f, x[t], part[r][t]);
      }
    }
    for (int r = 0; r < R; ++r) {
      const float* scales = c.scale_buffer + r * groups;
      const __m512 s = wide_group ? _mm512_set1_ps(scales[group])
                                  : spread(scales, groups, b, group_words, lane_group);
      for (int t = 0; t < T; ++t) sum[r][t] = _mm512_fmadd_ps(part[r][t], s, sum[r][t]);
    }
    if ((group_left -= kLanes) == 0) {
      group_left = group_words;
      ++group;
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int t = 0; t < T; ++t) {
      c.out[(token + t) * c.out_stride + row + r] = _mm512_reduce_add_ps(sum[r][t]);
    }
  }
}

template <int R>
void dot_rows(const DotCall& c, std::int64_t row) {
  widen(c.scales + row * (c.k / c.group), c.scales_bf16, c.scale_buffer, R * (c.k / c.group));
  std::int64_t token = 0;
  for (; token + 4 <= c.tokens; token += 4) dot_block<R, 4>(c, row, token);
  if (token + 2 <= c.tokens) {
    dot_block<R, 2>(c, row, token);
    token += 2;
  }
  if (token < c.tokens) dot_block<R, 1>(c, row, token);
}

void dot(const DotCall& c) {
  std::int64_t row = 0;
  if (c.tokens < 3) {  // more tokens need the registers of two rows
    for (; row + 4 <= c.rows; row += 4) dot_rows<4>(c, row);
  }
  for (; row + 2 <= c.rows; row += 2) dot_rows<2>(c, row);
  if (row < c.rows) dot_rows<1>(c, row);
}

}  // namespace

const RowKernels* avx512_kernels() {
  static const RowKernels kernels{"avx512", takes_group, arranged_size, arrange, dot};
  return &kernels;
}

}  // namespace u4moe

#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
namespace u4moe {
const RowKernels* avx512_kernels() { return nullptr; }
}  // namespace u4moe
#endif
