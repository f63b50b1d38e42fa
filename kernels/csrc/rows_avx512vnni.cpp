// SPDX-License-Identifier: Apache-2.0
//
// Products of nibbles with two planes of bytes, summed in 32 bits: first the high bytes', then the
// low bytes' on top of 256 times those. Nibbles stay what they are, 0 to 15: a mask takes out the
// even ones of 64 bytes, a shift and a mask the odd ones. The eight that each is too large is taken
// off once a row: minus eight times a group's sum of activations, times the group's scale.
#include "rows.hpp"

#if defined(__x86_64__)
#include <immintrin.h>

#include <cmath>
#include <cstring>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vnni")
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vnni"))), \
                             apply_to = function)
#endif

#include "avx512_common.hpp"
#include "planes.hpp"

namespace u4moe {
namespace {

constexpr std::int64_t kBlockBytes = 4 * kLanes;
constexpr float kLargest = 32512.0f;       // 127 * 256: both bytes fit
constexpr float kSmallest = 1e-30f;        // a block with nothing larger counts as zero

std::int64_t arranged_size(std::int64_t k, std::int64_t group) {
  return Layout(blocks_of(k), k / group).end;
}

// A block's power of two, or NaN where one of its values is infinite or NaN, or 0 for nothing.
float power_of(const __m512 (&x)[kNibbles]) {
  __m512 largest = _mm512_setzero_ps(), sum = _mm512_setzero_ps();
  for (const __m512& part : x) {
    largest = _mm512_max_ps(largest, _mm512_abs_ps(part));
    sum = _mm512_fmadd_ps(part, _mm512_setzero_ps(), sum);
  }
  const float nothing = _mm512_reduce_add_ps(sum);  // NaN where one is infinite or NaN
  const float most = _mm512_reduce_max_ps(largest);
  if (nothing != 0.0f || most <= kSmallest) return nothing;
  int exponent = 0;  // the largest is less than two to the power of it
  std::frexp(most, &exponent);
  if (std::ldexp(most, 15 - exponent) > kLargest) ++exponent;
  return std::ldexp(1.0f, exponent - 15);
}

// The low bytes of eight vectors, parted into even and odd places. Returns their sum.
std::int32_t put_plane(const __m512i (&v)[kNibbles], float* even, float* odd) {
  alignas(64) std::int8_t bytes[kBlockValues];
  for (std::int64_t i = 0; i < kNibbles; ++i) {
    _mm_store_si128(reinterpret_cast<__m128i*>(bytes) + i, _mm512_cvtepi32_epi8(v[i]));
  }
  for (std::int64_t half = 0; half < 2; ++half) {
    const __m512i pairs = _mm512_load_si512(bytes + half * 64);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(even) + half, _mm512_cvtepi16_epi8(pairs));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(odd) + half,
                        _mm512_cvtepi16_epi8(_mm512_srli_epi16(pairs, 8)));
  }
  __m512i sum = v[0];
  for (std::int64_t i = 1; i < kNibbles; ++i) sum = _mm512_add_epi32(sum, v[i]);
  return _mm512_reduce_add_epi32(sum);
}

void arrange(const float* x, float* arranged, std::int64_t k, std::int64_t group) {
  const std::int64_t groups = k / group;
  const Layout at(blocks_of(k), groups);
  for (std::int64_t i = 0; i < at.planes; ++i) arranged[i] = 0.0f;
  for (std::int64_t b = 0; b < blocks_of(k); ++b) {
    __m512 part[kNibbles];
    for (std::int64_t i = 0; i < kNibbles; ++i) {
      const std::int64_t from = b * kBlockValues + i * kLanes;
      const std::int64_t left = k - from;
      part[i] = _mm512_maskz_loadu_ps(first_lanes(left > 0 ? left : 0), x + from);
    }
    const float power = power_of(part);
    arranged[b] = power;
    const float inverse = power > 0.0f ? 1.0f / power : 0.0f;
    __m512i high[kNibbles], low[kNibbles];
    alignas(64) std::int32_t whole[kBlockValues];
    for (std::int64_t i = 0; i < kNibbles; ++i) {
      const __m512i v = inverse == 0.0f
                            ? _mm512_setzero_si512()
                            : _mm512_cvtps_epi32(_mm512_mul_ps(part[i], _mm512_set1_ps(inverse)));
      high[i] = _mm512_srai_epi32(_mm512_add_epi32(v, _mm512_set1_epi32(128)), 8);
      low[i] = _mm512_sub_epi32(v, _mm512_slli_epi32(high[i], 8));
      _mm512_store_si512(whole + i * kLanes, v);
    }
    float* to = arranged + at.planes + b * kBlock;
    const std::int32_t sums[2] = {put_plane(high, to, to + kPlane),
                                  put_plane(low, to + 2 * kPlane, to + 3 * kPlane)};
    std::memcpy(arranged + at.sums + 2 * b, sums, sizeof sums);
    const std::int64_t step = group < kBlockValues ? group : kBlockValues;
    for (std::int64_t i = 0; i < kBlockValues && b * kBlockValues + i < k; i += step) {
      std::int32_t sum = 0;
      for (std::int64_t j = 0; j < step; ++j) sum += whole[i + j];
      const std::int64_t g = (b * kBlockValues + i) / group;
      arranged[at.eights + g] -= 8.0f * power * static_cast<float>(sum);
    }
  }
  // Where each block is a group, its power goes with the scale.
  for (std::int64_t g = 0; g < groups; ++g) {
    arranged[at.factors + g] = group == kBlockValues ? arranged[g] : 1.0f;
  }
  for (std::int64_t i = groups; i < kLanes * groups; ++i) {
    arranged[at.factors + i] = arranged[at.factors + i - groups];
    arranged[at.eights + i] = arranged[at.eights + i - groups];
  }
}

constexpr int kTokens = 4;  // at a time

// What the scales of a call's rows come to for up to four tokens, in its buffer.
struct Scales {
  const Shape& shape;
  float* buffer;
  std::int64_t size;

  Scales(const DotCall& c, const Shape& shape, std::int64_t token, int tokens)
      : shape(shape), buffer(c.scale_buffer), size(padded(c.rows * shape.groups)) {
    const Layout layout(shape.blocks, shape.groups);
    const std::int64_t count = c.rows * shape.groups;
    const std::int64_t turn = kLanes * shape.groups;
    for (std::int64_t i = 0, j = 0; i < count; i += kLanes) {
      const __m512 s = widened(c.scales + i, c.scales_bf16, count - i);
      for (int t = 0; t < tokens; ++t) {
        const float* x = c.x[token + t];
        const __m512 factor = _mm512_loadu_ps(x + layout.factors + j);
        const __m512 eight = _mm512_loadu_ps(x + layout.eights + j);
        _mm512_storeu_ps(buffer + 2 * t * size + i, _mm512_mul_ps(s, factor));
        _mm512_storeu_ps(buffer + (2 * t + 1) * size + i, _mm512_mul_ps(s, eight));
      }
      if ((j += kLanes) == turn) j = 0;
    }
  }

  const float* factors(std::int64_t row, int t) const {
    return buffer + 2 * t * size + row * shape.groups;
  }

  // The products of a row's scales with the eights, in sixteen sums.
  __m512 eights(std::int64_t row, int t) const {
    const float* from = factors(row, t) + size;
    __m512 sum = _mm512_maskz_loadu_ps(first_lanes(shape.groups), from);
    for (std::int64_t g = kLanes; g < shape.groups; g += kLanes) {
      sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(first_lanes(shape.groups - g), from + g));
    }
    return sum;
  }
};

// The products of R rows with T tokens.
template <int R, int T, bool OneGroup>
void run(const DotCall& c, const Scales& scales, std::int64_t row, std::int64_t token) {
  const Shape& shape = scales.shape;
  const Layout layout(shape.blocks, shape.groups);
  const std::int64_t stride = c.k / 2;
  const std::uint8_t* weights = c.weights + row * stride;
  const float* factors[T];
  const float* planes[T];
  const float* powers[T];
  __m512 sum[R][T];
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    powers[t] = c.x[token + t];
    planes[t] = powers[t] + layout.planes;
    factors[t] = scales.factors(row, t);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) sum[r][t] = scales.eights(row + r, t);
  }
  const __m512i nibble = _mm512_set1_epi32(0x0F0F0F0F);
  Groups groups(shape);
  for (std::int64_t b = 0; b < shape.blocks; ++b) {
    const __mmask16 mask = OneGroup ? first_lanes(kLanes) : shape.mask(b);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const std::uint8_t* from = weights + r * stride + b * kBlockBytes;
      // Into the second cache, which can wait for more lines at a time than the first.
      _mm_prefetch(from + kAhead, _MM_HINT_T1);
      const __m512i both = _mm512_maskz_loadu_epi32(mask, from);
      const __m512i even = _mm512_and_si512(both, nibble);
      const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(both, 4), nibble);
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) {
        const float* x = planes[t] + b * kBlock;
        __m512i part = _mm512_setzero_si512();
        part = _mm512_dpbusd_epi32(part, even, _mm512_loadu_si512(x));
        part = _mm512_dpbusd_epi32(part, odd, _mm512_loadu_si512(x + kPlane));
        part = _mm512_slli_epi32(part, 8);
        part = _mm512_dpbusd_epi32(part, even, _mm512_loadu_si512(x + 2 * kPlane));
        part = _mm512_dpbusd_epi32(part, odd, _mm512_loadu_si512(x + 3 * kPlane));
        const float* factor = factors[t] + r * shape.groups;
        const __m512 f = OneGroup ? _mm512_set1_ps(factor[b])
                                  : _mm512_mul_ps(groups.scale(factor, b),
                                                  _mm512_set1_ps(powers[t][b]));
        sum[r][t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(part), f, sum[r][t]);
      }
    }
    if (!OneGroup) groups.next();
  }
  put(c, row, token, sum);
}

template <int R, int T>
void run(const DotCall& c, const Scales& scales, std::int64_t row, std::int64_t token) {
  return scales.shape.words == kLanes ? run<R, T, true>(c, scales, row, token)
                                      : run<R, T, false>(c, scales, row, token);
}

template <int R, int T>
void rows(const DotCall& c, const Shape& shape, std::int64_t token) {
  const Scales scales(c, shape, token, T);
  std::int64_t row = 0;
  for (; row + R <= c.rows; row += R) run<R, T>(c, scales, row, token);
  for (; row < c.rows; ++row) run<1, T>(c, scales, row, token);
}

void dot(const DotCall& c) {
  const Shape shape(c);
  std::int64_t token = 0;
  for (; token + kTokens <= c.tokens; token += kTokens) rows<2, kTokens>(c, shape, token);
  switch (c.tokens - token) {
    case 3: return rows<2, 3>(c, shape, token);
    case 2: return rows<4, 2>(c, shape, token);
    case 1: return rows<4, 1>(c, shape, token);
  }
}

// What follows runs on every processor.
#if defined(__clang__)
#pragma clang attribute pop
#endif
#pragma GCC pop_options

bool runs_here() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vnni");
}

}  // namespace

const RowKernels* avx512vnni_kernels() {
  static const RowKernels kernels{"avx512vnni",     runs_here, takes_group,
                                  arranged_size, arrange,   dot};
  return &kernels;
}

}  // namespace u4moe
#else
namespace u4moe {
const RowKernels* avx512vnni_kernels() { return nullptr; }
}  // namespace u4moe
#endif
