// SPDX-License-Identifier: Apache-2.0
//
// Sixteen int32 words a vector. One permute turns nibble i of every word into its float: the
// permute looks at the four low bits of each lane only, so a shift is all the decoding there is.
// Activations are arranged to match: for each 16 words, eight vectors by position in the word.
#include "rows.hpp"

#if defined(__x86_64__)
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw")
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw"))), apply_to = function)
#endif

#include "avx512_common.hpp"

namespace u4moe {
namespace {

std::int64_t arranged_size(std::int64_t k, std::int64_t) { return blocks_of(k) * kLanes * kNibbles; }

void arrange(const float* x, float* arranged, std::int64_t k, std::int64_t) {
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

// A row's scales as floats in the buffer's given row.
void widen(const DotCall& c, const Shape& shape, std::int64_t row, std::int64_t to) {
  const std::uint16_t* raw = c.scales + row * shape.groups;
  float* out = c.scale_buffer + to * padded(shape.groups);
  for (std::int64_t g = 0; g < shape.groups; g += kLanes) {
    _mm512_storeu_ps(out + g, widened(raw + g, c.scales_bf16, shape.groups - g));
  }
}

// The products of R rows with T tokens.
template <int R, int T>
void run(const DotCall& c, const Shape& shape, std::int64_t row, std::int64_t token) {
  const __m512 value = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
  Groups groups(shape);
  const std::uint8_t* w[R];
  const float* scales[R];
  __m512 sum[R][T];
  for (int r = 0; r < R; ++r) {
    w[r] = c.weights + (row + r) * c.k / 2;
    scales[r] = c.scale_buffer + r * padded(shape.groups);
    widen(c, shape, row + r, r);
    for (int t = 0; t < T; ++t) sum[r][t] = _mm512_setzero_ps();
  }
  for (std::int64_t b = 0; b < shape.blocks; ++b, groups.next()) {
    const __mmask16 mask = shape.mask(b);
    __m512i bits[R];
    __m512 part[R][T];
    for (int r = 0; r < R; ++r) {
      bits[r] = _mm512_maskz_loadu_epi32(mask, w[r] + b * kLanes * 4);
      // The same place R rows on: asked for once, half a microsecond before it is needed.
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
      const __m512 s = groups.scale(scales[r], b);
      for (int t = 0; t < T; ++t) sum[r][t] = _mm512_fmadd_ps(part[r][t], s, sum[r][t]);
    }
  }
  put(c, row, token, sum);
}

template <int R>
void dot_rows(const DotCall& c, const Shape& shape, std::int64_t row) {
  std::int64_t token = 0;
  for (; token + 4 <= c.tokens; token += 4) run<R, 4>(c, shape, row, token);
  if (token + 2 <= c.tokens) {
    run<R, 2>(c, shape, row, token);
    token += 2;
  }
  if (token < c.tokens) run<R, 1>(c, shape, row, token);
}

void dot(const DotCall& c) {
  const Shape shape(c);
  std::int64_t row = 0;
  if (c.tokens < 3) {  // more tokens need the registers of two rows
    for (; row + 4 <= c.rows; row += 4) dot_rows<4>(c, shape, row);
  }
  for (; row + 2 <= c.rows; row += 2) dot_rows<2>(c, shape, row);
  if (row < c.rows) dot_rows<1>(c, shape, row);
}

// What follows runs on every processor.
#if defined(__clang__)
#pragma clang attribute pop
#endif
#pragma GCC pop_options

bool runs_here() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
}

}  // namespace

const RowKernels* avx512_kernels() {
  static const RowKernels kernels{"avx512",     runs_here, takes_group,
                                  arranged_size, arrange,   dot};
  return &kernels;
}

}  // namespace u4moe
#else
namespace u4moe {
const RowKernels* avx512_kernels() { return nullptr; }
}  // namespace u4moe
#endif
