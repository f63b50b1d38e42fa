// SPDX-License-Identifier: Apache-2.0
#include "choice.hpp"

#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <vector>

namespace u4moe {
namespace {

bool processor_has(const RowKernels* kernels) {
  if (kernels == nullptr) return false;
#if defined(__x86_64__)
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
  const bool vnni = avx512 && __builtin_cpu_supports("avx512vnni");
  if (kernels == amx_kernels()) {
    return vnni && __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-int8") &&
           amx_permitted();
  }
  if (kernels == avx512vnni_kernels()) return vnni;
  if (kernels == avx512_kernels()) return avx512;
  if (kernels == avx2_kernels()) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
  }
#endif
  return true;
}

// The fastest first; the last runs everywhere.
const std::vector<const RowKernels*>& every_kernels() {
  static const std::vector<const RowKernels*> every{
      amx_kernels(), avx512vnni_kernels(), avx512_kernels(), avx2_kernels(), portable_kernels()};
  return every;
}

const RowKernels* best_kernels() {
  return *std::find_if(every_kernels().begin(), every_kernels().end(), processor_has);
}

std::atomic<const RowKernels*>& chosen_kernels() {
  static std::atomic<const RowKernels*> chosen{best_kernels()};
  return chosen;
}

}  // namespace

const RowKernels& kernels_for(std::int64_t group) {
  const RowKernels* chosen = chosen_kernels().load();
  return chosen->takes_group(group) ? *chosen : *portable_kernels();
}

std::string isa(const std::string& name) {
  if (name == "auto") {
    chosen_kernels() = best_kernels();
  } else if (!name.empty()) {
    const RowKernels* wanted = nullptr;
    for (const RowKernels* kernels : every_kernels()) {
      if (processor_has(kernels) && name == kernels->name) wanted = kernels;
    }
    TORCH_CHECK(wanted != nullptr, "this processor or build has no kernels named " + name);
    chosen_kernels() = wanted;
  }
  return chosen_kernels().load()->name;
}

}  // namespace u4moe
