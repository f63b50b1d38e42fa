// SPDX-License-Identifier: Apache-2.0
//
// What the AVX-512 files share: sixteen int32 words a vector, how scales become floats, how rows
// part into blocks and groups, and how sums are written. Included after the file's target pragma,
// in a namespace without a name, so that each file has it compiled for its own instructions.
#pragma once

#include "rows.hpp"

namespace u4moe {
namespace {

constexpr std::int64_t kLanes = 16;
constexpr std::int64_t kNibbles = 8;
constexpr std::int64_t kAhead = 16 << 10;  // bytes on, which are asked for

inline bool takes_group(std::int64_t group) {
  const std::int64_t words = group / kNibbles;
  return words % kLanes == 0 || kLanes % words == 0;
}

inline std::int64_t padded(std::int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

inline std::int64_t blocks_of(std::int64_t k) { return (k / kNibbles + kLanes - 1) / kLanes; }

inline __mmask16 first_lanes(std::int64_t count) {
  return static_cast<__mmask16>(count < kLanes ? (1u << count) - 1 : 0xFFFFu);
}

// Up to sixteen scales as floats, zero beyond the last.
inline __m512 widened(const std::uint16_t* raw, bool bf16, std::int64_t left) {
  const __mmask32 mask = first_lanes(left);
  const __m256i half = _mm512_castsi512_si256(_mm512_maskz_loadu_epi16(mask, raw));
  return bf16 ? _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16))
              : _mm512_cvtph_ps(half);
}

// The scale of each of a block's words, where several groups share a block.
inline __m512 spread(const float* scales, std::int64_t groups, std::int64_t block,
                     std::int64_t words, __m512i lane_group) {
  const std::int64_t in_block = kLanes / words;
  const std::int64_t first = block * in_block;
  const std::int64_t left = groups - first < in_block ? groups - first : in_block;
  const __mmask16 mask = static_cast<__mmask16>((1u << left) - 1);
  return _mm512_permutexvar_ps(lane_group, _mm512_maskz_loadu_ps(mask, scales + first));
}

// How a call's rows part into blocks of words and into groups: the same for all of its rows.
struct Shape {
  std::int64_t blocks, groups, words;  // words of a group
  __mmask16 last;                      // the words of the last block
  __m512i lane_group;                  // of a lane, where a block has several groups

  explicit Shape(const DotCall& c)
      : blocks(blocks_of(c.k)), groups(c.groups), words(c.group / kNibbles) {
    last = first_lanes(c.k / kNibbles - (blocks - 1) * kLanes);
    lane_group = _mm512_setzero_si512();
    for (std::int32_t lane = static_cast<std::int32_t>(words); lane < kLanes;
         lane += static_cast<std::int32_t>(words)) {
      const __mmask16 rest = static_cast<__mmask16>(0xFFFFu << lane);
      lane_group = _mm512_mask_add_epi32(lane_group, rest, lane_group, _mm512_set1_epi32(1));
    }
  }

  __mmask16 mask(std::int64_t block) const {
    return block + 1 < blocks ? static_cast<__mmask16>(0xFFFFu) : last;
  }
};

// Where a row's groups begin, as its blocks go by: one group spans blocks, or a block has several.
struct Groups {
  const Shape& shape;
  std::int64_t at = 0, left;

  explicit Groups(const Shape& shape) : shape(shape), left(shape.words) {}

  __m512 scale(const float* scales, std::int64_t block) const {
    return shape.words >= kLanes
               ? _mm512_set1_ps(scales[at])
               : spread(scales, shape.groups, block, shape.words, shape.lane_group);
  }

  void next() {
    if ((left -= kLanes) == 0) {
      left = shape.words;
      ++at;
    }
  }
};

inline __m256 upper(__m512 v) {
  return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(v), 1));
}

inline __m256 folded(__m512 v) {
  return _mm256_add_ps(_mm512_castps512_ps256(v), upper(v));
}

// The sums of four vectors' lanes, in fewer steps than four times one.
inline void add_lanes(__m512 a, __m512 b, __m512 c, __m512 d, float* out) {
  const __m256 ab = _mm256_hadd_ps(folded(a), folded(b));
  const __m256 cd = _mm256_hadd_ps(folded(c), folded(d));
  const __m256 all = _mm256_hadd_ps(ab, cd);
  _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
}

// Writes the products of R rows with T tokens.
template <int R, int T>
void put(const DotCall& c, std::int64_t row, std::int64_t token, const __m512 (&sum)[R][T]) {
  for (int t = 0; t < T; ++t) {
    float* out = c.out + (token + t) * kBlockRows + row;
    if constexpr (R == 4) {
      add_lanes(sum[0][t], sum[1][t], sum[2][t], sum[3][t], out);
    } else {
      for (int r = 0; r < R; ++r) out[r] = _mm512_reduce_add_ps(sum[r][t]);
    }
  }
}

}  // namespace
}  // namespace u4moe
