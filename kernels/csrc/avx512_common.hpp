// SPDX-License-Identifier: Apache-2.0
//
// What the two AVX-512 files share: sixteen int32 words a vector, how scales become floats, and
// how rows and tokens are taken in blocks. Included after the file's target pragma, in a namespace
// without a name, so that each file has it compiled for its own instructions.
#pragma once

#include "rows.hpp"

namespace u4moe {
namespace {

constexpr std::int64_t kLanes = 16;
constexpr std::int64_t kNibbles = 8;

bool takes_group(std::int64_t group) {
  const std::int64_t words = group / kNibbles;
  return words % kLanes == 0 || kLanes % words == 0;
}

std::int64_t blocks_of(std::int64_t k) { return (k / kNibbles + kLanes - 1) / kLanes; }

void widen(const std::uint16_t* raw, bool bf16, float* out, std::int64_t n) {
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const std::int64_t left = n - i;
    std::uint16_t part[kLanes] = {};
    for (std::int64_t j = 0; j < left && left < kLanes; ++j) part[j] = raw[i + j];
    const std::uint16_t* from = left < kLanes ? part : raw + i;
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
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

// Where a row's groups begin, as its blocks go by: one group spans blocks, or a block has several.
struct Groups {
  std::int64_t count, words, at = 0, left;
  __m512i lane_group;

  explicit Groups(const DotCall& c)
      : count(c.k / c.group), words(c.group / kNibbles), left(c.group / kNibbles) {
    alignas(64) std::int32_t lanes[kLanes];
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = static_cast<std::int32_t>(lane / words);
    }
    lane_group = _mm512_load_si512(lanes);
  }

  __m512 scale(const float* scales, std::int64_t block) const {
    return words >= kLanes ? _mm512_set1_ps(scales[at])
                           : spread(scales, count, block, words, lane_group);
  }

  void next() {
    if ((left -= kLanes) == 0) {
      left = words;
      ++at;
    }
  }
};

__m256 folded(__m512 v) {
  const __m512d bits = _mm512_castps_pd(v);
  return _mm256_add_ps(_mm512_castps512_ps256(v), _mm256_castpd_ps(_mm512_extractf64x4_pd(bits, 1)));
}

// The sums of four vectors' lanes, in fewer steps than four times one.
void add_lanes(__m512 a, __m512 b, __m512 c, __m512 d, float* out) {
  const __m256 ab = _mm256_hadd_ps(folded(a), folded(b));
  const __m256 cd = _mm256_hadd_ps(folded(c), folded(d));
  const __m256 all = _mm256_hadd_ps(ab, cd);
  _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
}

// Writes the products of R rows with T tokens.
template <int R, int T>
void put(const DotCall& c, std::int64_t row, std::int64_t token, const __m512 (&sum)[R][T]) {
  for (int t = 0; t < T; ++t) {
    float* out = c.out + (token + t) * c.out_stride + row;
    if constexpr (R == 4) {
      add_lanes(sum[0][t], sum[1][t], sum[2][t], sum[3][t], out);
    } else {
      for (int r = 0; r < R; ++r) out[r] = _mm512_reduce_add_ps(sum[r][t]);
    }
  }
}

// `Block::run<R, T>(call, row, token)` is the product of R rows with T tokens.
template <typename Block, int R>
void dot_rows(const DotCall& c, std::int64_t row) {
  std::int64_t token = 0;
  for (; token + 4 <= c.tokens; token += 4) Block::template run<R, 4>(c, row, token);
  if (token + 2 <= c.tokens) {
    Block::template run<R, 2>(c, row, token);
    token += 2;
  }
  if (token < c.tokens) Block::template run<R, 1>(c, row, token);
}

template <typename Block>
void dot(const DotCall& c) {
  widen(c.scales, c.scales_bf16, c.scale_buffer, c.rows * (c.k / c.group));
  std::int64_t row = 0;
  if (c.tokens < 3) {  // more tokens need the registers of two rows
    for (; row + 4 <= c.rows; row += 4) dot_rows<Block, 4>(c, row);
  }
  for (; row + 2 <= c.rows; row += 2) dot_rows<Block, 2>(c, row);
  if (row < c.rows) dot_rows<Block, 1>(c, row);
}

}  // namespace
}  // namespace u4moe
