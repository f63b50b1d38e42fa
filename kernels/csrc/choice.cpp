// SPDX-License-Identifier: Apache-2.0
#include "choice.hpp"

#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <vector>

namespace u4moe {
namespace {

bool runs_here(const RowKernels* kernels) { return kernels != nullptr && kernels->runs_here(); }

// The fastest first; the last runs everywhere.
const std::vector<const RowKernels*>& every_kernels() {
  static const std::vector<const RowKernels*> every{
      amx_kernels(), avx512vnni_kernels(), avx512_kernels(), avx2_kernels(), portable_kernels()};
  return every;
}

const RowKernels* best_kernels() {
  return *std::find_if(every_kernels().begin(), every_kernels().end(), runs_here);
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
      if (runs_here(kernels) && name == kernels->name) wanted = kernels;
    }
    TORCH_CHECK(wanted != nullptr, "this processor or build has no kernels named " + name);
    chosen_kernels() = wanted;
  }
  return chosen_kernels().load()->name;
}

}  // namespace u4moe
