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
  std::int64_t rows;
  std::int64_t k;
  std::int64_t group;
  const float* const* x;         // for each token, activations as `arrange` wrote them
  std::int64_t tokens;
  float* scale_buffer;           // rows * k / group floats
  float* out;                    // out[token * out_stride + row]
  std::int64_t out_stride;
};

struct RowKernels {
  const char* name;
  bool (*takes_group)(std::int64_t group);
  std::int64_t (*arranged_size)(std::int64_t k);  // floats that `arrange` writes for k activations
  void (*arrange)(const float* x, float* arranged, std::int64_t k);
  void (*dot)(const DotCall& call);
};

// Null where the compiler's target has no such instructions; the caller asks the processor.
const RowKernels* avx512vnni_kernels();
const RowKernels* avx512_kernels();
const RowKernels* avx2_kernels();
const RowKernels* portable_kernels();

}  // namespace u4moe
