// SPDX-License-Identifier: Apache-2.0
//
// What one instruction set offers: dot products of packed rows with activations. The files that
// implement it are compiled for their set alone, so they share no inline function with others.
#pragma once

#include <cstdint>

namespace u4moe {

struct DotCall {
  const std::uint8_t* weights;   // first row, k / 2 bytes a row
  const std::uint16_t* scales;   // its scales, k / group a row, as raw FP16 or BF16
  bool scales_bf16;
  std::int64_t rows;             // at most kBlockRows
  std::int64_t k;
  std::int64_t group;
  std::int64_t groups;           // k / group
  const float* const* x;         // for each token, activations as `arrange` wrote them
  std::int64_t tokens;           // at most kTokensAtOnce
  const float* gathered;         // the tokens as `gather` wrote them, where there is one
  float* scale_buffer;           // kScaleCopies * padded_groups(k / group) floats
  float* out;                    // out[token * kBlockRows + row]
};

constexpr std::int64_t kBlockRows = 32;
constexpr std::int64_t kTokensAtOnce = 64;
constexpr std::int64_t kScaleCopies = 8;  // two for each of four tokens

// Room for the scales of a block of rows, and for a vector read from the last of them on.
constexpr std::int64_t padded_groups(std::int64_t groups) { return kBlockRows * groups + 16; }

struct RowKernels {
  const char* name;
  bool (*runs_here)();  // on this processor, and the system allows it
  bool (*takes_group)(std::int64_t group);
  std::int64_t (*arranged_size)(std::int64_t k, std::int64_t group);  // floats for `arrange`
  void (*arrange)(const float* x, float* arranged, std::int64_t k, std::int64_t group);
  void (*dot)(const DotCall& call);
  // What some need besides: the tokens of one expert brought together once for all of its rows, and
  // a state of the thread from the first call to the last.
  std::int64_t (*gathered_size)(std::int64_t tokens, std::int64_t k, std::int64_t group) = nullptr;
  void (*gather)(const float* const* x, std::int64_t tokens, std::int64_t k, std::int64_t group,
                 float* gathered) = nullptr;  // so many floats, on a boundary of 64 bytes
  void (*begin)() = nullptr;
  void (*end)() = nullptr;
};

// Null where the compiler's target has no such instructions.
const RowKernels* amx_kernels();
const RowKernels* avx512vnni_kernels();
const RowKernels* avx512_kernels();
const RowKernels* avx2_kernels();
const RowKernels* portable_kernels();

}  // namespace u4moe
