// SPDX-License-Identifier: Apache-2.0
//
// Tiles of bytes: sixteen rows of nibbles, 64 places of each, times sixteen columns, summed in 32
// bits. A token has two columns, its high and its low bytes, so eight fill a tile; fewer take turns
// along the row with columns of their own (slots), so that a tile's sums are taken out once for
// several blocks. Rows are decoded a block ahead, because a tile that is read right after it was
// written waits for it. One token alone, and groups that are not a block, are the VNNI kernels'.
#include "rows.hpp"

#if defined(__x86_64__) && defined(__linux__)
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vnni,amx-tile,amx-int8")
#if defined(__clang__)
#pragma clang attribute push( \
    __attribute__((target("avx512f,avx512bw,avx512vnni,amx-tile,amx-int8"))), apply_to = function)
#endif

#include "avx512_common.hpp"
#include "planes.hpp"

namespace u4moe {
namespace {

constexpr std::int64_t kTileRows = 16;
constexpr std::int64_t kTile = 256;              // 32-bit units of sixteen rows of 64 bytes
constexpr std::int64_t kBlockTiles = 2 * kTile;  // even and odd places
constexpr std::int64_t kTokens = 8;              // of a tile's columns

// Two tokens alone are not worth it where rows are long.
bool uses_tiles(std::int64_t tokens, std::int64_t k, std::int64_t group) {
  return group == kBlockValues && tokens > (k < 1024 ? 1 : 2);
}

// Blocks that a tile's columns are shared by, for all tokens of a call: more than a tile takes need
// the sums taken out before the next of them.
std::int64_t slots_of(std::int64_t tokens) { return tokens <= 2 ? 4 : tokens <= 4 ? 2 : 1; }

// Eight tokens, or the last fewer ones, as `gather` writes them: for each turn of the slots what
// the columns are multiplied by and start from, then the tiles.
struct Columns {
  std::int64_t slots, turns, blocks;
  std::int32_t width_log2;  // of a slot

  Columns(std::int64_t slots, std::int64_t k)
      : slots(slots),
        turns((k / kBlockValues + slots - 1) / slots),
        blocks(k / kBlockValues),
        width_log2(slots == 4 ? 2 : slots == 2 ? 3 : 4) {}

  std::int64_t starts() const { return turns * kLanes; }
  std::int64_t tiles() const { return 2 * starts(); }
  std::int64_t size() const { return tiles() + blocks * kBlockTiles; }
};

std::int64_t gathered_size(std::int64_t tokens, std::int64_t k, std::int64_t group) {
  if (!uses_tiles(tokens, k, group)) return 0;
  return (tokens + kTokens - 1) / kTokens * Columns(slots_of(tokens), k).size();
}

// Four planes' sixteen words as four columns of a tile.
void put_columns(const float* a, const float* b, const float* c, const float* d, float* to) {
  const __m512i va = _mm512_loadu_si512(a), vb = _mm512_loadu_si512(b);
  const __m512i vc = _mm512_loadu_si512(c), vd = _mm512_loadu_si512(d);
  const __m512i ab0 = _mm512_unpacklo_epi32(va, vb), ab1 = _mm512_unpackhi_epi32(va, vb);
  const __m512i cd0 = _mm512_unpacklo_epi32(vc, vd), cd1 = _mm512_unpackhi_epi32(vc, vd);
  const __m512i rows[4] = {  // and each fourth from there
      _mm512_unpacklo_epi64(ab0, cd0), _mm512_unpackhi_epi64(ab0, cd0),
      _mm512_unpacklo_epi64(ab1, cd1), _mm512_unpackhi_epi64(ab1, cd1)};
  for (std::int64_t i = 0; i < 4; ++i) {
    alignas(64) std::int32_t words[kLanes];
    _mm512_store_si512(words, rows[i]);
    for (std::int64_t j = 0; j < 4; ++j) {
      std::memcpy(to + (i + 4 * j) * kLanes, words + 4 * j, 4 * sizeof *words);
    }
  }
}

void gather_columns(const Columns& columns, const float* const* x, std::int64_t tokens,
                    float* to) {
  const Layout layout(columns.blocks, columns.blocks);
  const std::int64_t width = kLanes / columns.slots;
  alignas(64) static const float nothing[kBlock] = {};
  std::memset(to, 0, static_cast<std::size_t>(columns.size()) * sizeof *to);
  for (std::int64_t b = 0; b < columns.blocks; ++b) {
    const std::int64_t first = b % columns.slots * width;
    float* factors = to + b / columns.slots * kLanes + first;
    float* starts = factors + columns.starts();
    float* tiles = to + columns.tiles() + b * kBlockTiles + first;
    for (std::int64_t t = 0; t < tokens; ++t) {
      std::int32_t sums[2];
      std::memcpy(sums, x[t] + layout.sums + 2 * b, sizeof sums);
      const std::int32_t minus[2] = {-8 * sums[0], -8 * sums[1]};
      std::memcpy(starts + 2 * t, minus, sizeof minus);
      factors[2 * t] = 256.0f * x[t][b];
      factors[2 * t + 1] = x[t][b];
    }
    for (std::int64_t t = 0; t < tokens; t += 2) {
      const float* one = x[t] + layout.planes + b * kBlock;
      const float* two = t + 1 < tokens ? x[t + 1] + layout.planes + b * kBlock : nothing;
      put_columns(one, one + 2 * kPlane, two, two + 2 * kPlane, tiles + 2 * t);
      put_columns(one + kPlane, one + 3 * kPlane, two + kPlane, two + 3 * kPlane,
                  tiles + kTile + 2 * t);
    }
  }
}

void gather(const float* const* x, std::int64_t tokens, std::int64_t k, std::int64_t group,
            float* gathered) {
  if (!uses_tiles(tokens, k, group)) return;
  const Columns columns(slots_of(tokens), k);
  for (std::int64_t t = 0; t < tokens; t += kTokens, gathered += columns.size()) {
    gather_columns(columns, x + t, tokens - t < kTokens ? tokens - t : kTokens, gathered);
  }
}

// A block of 32 rows as four tiles: the first sixteen rows' even and odd nibbles, then the others'.
using Nibbles = std::uint8_t[4][1024];

void decode(const DotCall& c, std::int64_t b, Nibbles& to) {
  const __m512i nibble = _mm512_set1_epi32(0x0F0F0F0F);
  const std::int64_t stride = c.k / 2;
  const std::uint8_t* from = c.weights + b * 64;
  // The same places some blocks of rows on: the rows between are read before those.
  const std::int64_t rows = kBlockRows * stride;
  const std::int64_t ahead = rows < kAhead ? (kAhead + rows - 1) / rows * rows : rows;
  for (std::int64_t first = 0; first < c.rows; first += kTileRows) {
    std::uint8_t* even = to[first / kTileRows * 2];
    std::uint8_t* odd = even + sizeof to[0];
    const std::int64_t count = c.rows - first < kTileRows ? c.rows - first : kTileRows;
#pragma GCC unroll 4
    for (std::int64_t r = 0; r < count; ++r, from += stride) {
      _mm_prefetch(from + ahead, _MM_HINT_T1);
      const __m512i both = _mm512_loadu_si512(from);
      _mm512_store_si512(even + 64 * r, _mm512_and_si512(both, nibble));
      _mm512_store_si512(odd + 64 * r, _mm512_and_si512(_mm512_srli_epi32(both, 4), nibble));
    }
  }
}

// 32 rows' sums of sixteen columns.
struct alignas(64) Sums {
  float row[kBlockRows][kLanes];
};

// Starts, continues or ends a turn of the slots for one lot of columns.
void multiply(const DotCall& c, const Columns& columns, const float* gathered, std::int64_t b,
              const Nibbles& nibbles, Sums& sums) {
  __asm__ volatile("" ::: "memory");  // GCC does not know that a tile is read from memory
  const std::int64_t turn = b / columns.slots;
  const float* starts = gathered + columns.starts() + turn * kLanes;
  if (b % columns.slots == 0) {
    _tile_loadd(0, starts, 0);  // every row from the same place
    _tile_loadd(1, starts, 0);
  }
  const float* tiles = gathered + columns.tiles() + b * kBlockTiles;
  _tile_loadd(6, tiles, 64);
  _tile_loadd(7, tiles + kTile, 64);
  _tile_loadd(2, nibbles[0], 64);
  _tile_dpbusd(0, 2, 6);
  _tile_loadd(3, nibbles[2], 64);
  _tile_dpbusd(1, 3, 6);
  _tile_loadd(4, nibbles[1], 64);
  _tile_dpbusd(0, 4, 7);
  _tile_loadd(5, nibbles[3], 64);
  _tile_dpbusd(1, 5, 7);
  if (b % columns.slots + 1 != columns.slots && b + 1 != columns.blocks) return;
  alignas(64) std::int32_t whole[kBlockRows][kLanes];
  _tile_stored(0, whole[0], 64);
  _tile_stored(1, whole[kTileRows], 64);
  const __m512 factors = _mm512_loadu_ps(gathered + turn * kLanes);
  const std::int64_t first = turn * columns.slots;
  const float* scales = c.scale_buffer + first;
  const __mmask16 there = first_lanes(b + 1 - first);
  const __m512i lanes =
      _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i slot = _mm512_srlv_epi32(lanes, _mm512_set1_epi32(columns.width_log2));
  for (std::int64_t r = 0; r < c.rows; ++r) {
    const __m512 s = _mm512_permutexvar_ps(
        slot, _mm512_maskz_loadu_ps(there, scales + r * c.groups));
    const __m512 part = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_load_si512(whole[r])), factors);
    _mm512_store_ps(sums.row[r], _mm512_fmadd_ps(part, s, _mm512_load_ps(sums.row[r])));
  }
}

// Four rows of eight columns as products of up to four tokens.
void put_four(__m256 a, __m256 b, __m256 c, __m256 d, std::int64_t tokens, float* out) {
  const __m256 ab = _mm256_hadd_ps(a, b), cd = _mm256_hadd_ps(c, d);
  const __m256 even = _mm256_shuffle_ps(ab, cd, 0x88), odd = _mm256_shuffle_ps(ab, cd, 0xDD);
  _mm_storeu_ps(out, _mm256_castps256_ps128(even));
  if (tokens > 1) _mm_storeu_ps(out + kBlockRows, _mm256_castps256_ps128(odd));
  if (tokens > 2) _mm_storeu_ps(out + 2 * kBlockRows, _mm256_extractf128_ps(even, 1));
  if (tokens > 3) _mm_storeu_ps(out + 3 * kBlockRows, _mm256_extractf128_ps(odd, 1));
}

// Adds up slots and planes.
void put_sums(const Sums& sums, std::int64_t slots, std::int64_t rows, std::int64_t tokens,
              float* out) {
  for (std::int64_t r = 0; r < rows; r += 4) {
    __m256 first[4], second[4];
    for (std::int64_t i = 0; i < 4; ++i) {
      const __m512 all = _mm512_load_ps(sums.row[r + i]);
      first[i] = _mm512_castps512_ps256(all);
      second[i] = upper(all);
      if (slots > 1) first[i] = _mm256_add_ps(first[i], second[i]);
      if (slots > 2) {
        const __m128 half = _mm256_extractf128_ps(first[i], 1);
        first[i] = _mm256_castps128_ps256(_mm_add_ps(_mm256_castps256_ps128(first[i]), half));
      }
    }
    put_four(first[0], first[1], first[2], first[3], tokens, out + r);
    if (tokens > 4) {
      put_four(second[0], second[1], second[2], second[3], tokens - 4, out + r + 4 * kBlockRows);
    }
  }
}

void dot(const DotCall& c) {
  if (!uses_tiles(c.tokens, c.k, c.group)) return avx512vnni_kernels()->dot(c);
  const std::int64_t count = c.rows * c.groups;
  for (std::int64_t i = 0; i < count; i += kLanes) {
    _mm512_storeu_ps(c.scale_buffer + i, widened(c.scales + i, c.scales_bf16, count - i));
  }
  constexpr std::int64_t kLots = kTokensAtOnce / kTokens;
  Sums sums[kLots];
  const std::int64_t lots = (c.tokens + kTokens - 1) / kTokens;
  std::memset(sums, 0, static_cast<std::size_t>(lots) * sizeof *sums);
  alignas(64) Nibbles nibbles[2];
  decode(c, 0, nibbles[0]);
  const Columns columns(slots_of(c.tokens), c.k);
  for (std::int64_t b = 0; b < columns.blocks; ++b) {
    for (std::int64_t lot = 0; lot < lots; ++lot) {
      multiply(c, columns, c.gathered + lot * columns.size(), b, nibbles[b % 2], sums[lot]);
      if (lot == 0 && b + 1 < columns.blocks) decode(c, b + 1, nibbles[(b + 1) % 2]);
    }
  }
  for (std::int64_t lot = 0; lot < lots; ++lot) {
    const std::int64_t left = c.tokens - lot * kTokens;
    put_sums(sums[lot], columns.slots, c.rows, left < kTokens ? left : kTokens,
             c.out + lot * kTokens * kBlockRows);
  }
}

// All eight tiles whole. Not on the stack: GCC takes only its first word for read.
struct alignas(64) {
  std::uint8_t palette = 1, first = 0, reserved[14] = {};
  std::uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
} const kTiles;

std::int64_t arranged_size(std::int64_t k, std::int64_t group) {
  return avx512vnni_kernels()->arranged_size(k, group);
}

void arrange(const float* x, float* arranged, std::int64_t k, std::int64_t group) {
  avx512vnni_kernels()->arrange(x, arranged, k, group);
}

void begin() { _tile_loadconfig(&kTiles); }

void end() { _tile_release(); }

// What follows runs on every processor.
#if defined(__clang__)
#pragma clang attribute pop
#endif
#pragma GCC pop_options

// The system has to be asked for the tiles' state, once in a process.
bool permitted() {
  constexpr long kAsk = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM
  static const bool given = syscall(SYS_arch_prctl, kAsk, kTileData) == 0;
  return given;
}

bool runs_here() {
  return avx512vnni_kernels()->runs_here() && __builtin_cpu_supports("amx-tile") &&
         __builtin_cpu_supports("amx-int8") && permitted();
}

}  // namespace

const RowKernels* amx_kernels() {
  static const RowKernels kernels{"amx", runs_here, takes_group, arranged_size, arrange,
                                  dot,   gathered_size, gather, begin, end};
  return &kernels;
}

}  // namespace u4moe
#else
namespace u4moe {
const RowKernels* amx_kernels() { return nullptr; }
}  // namespace u4moe
#endif
