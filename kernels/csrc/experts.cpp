// SPDX-License-Identifier: Apache-2.0
//
// Routed experts on a CPU: pairs of token and slot are sorted by expert, then threads take blocks
// of rows, first of gate and up, then of down, where a block's sum over all experts stays with
// one thread. Tensors are checked in Python before they come here.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "choice.hpp"
#include "rows.hpp"
#include "u4moe_core.hpp"

namespace {

using at::Tensor;
using u4moe::DotCall;
using u4moe::RowKernels;

using u4moe::kBlockRows;
using u4moe::kTokensAtOnce;

// Asks once for each weight that its memory be made of 2 MiB pages: decode reads all of it once,
// and with 4 KiB pages a sixth of the time goes into finding them. Where the kernel says no, all
// stays as it is. U4MOE_HUGE_PAGES=0 leaves them alone.
void use_huge_pages(const Tensor& weights) {
#if defined(__linux__)
  static std::mutex guard;
  static std::unordered_set<const void*> seen;
  const std::lock_guard<std::mutex> held(guard);
  if (!seen.insert(weights.const_data_ptr()).second) return;
  const char* wanted = std::getenv("U4MOE_HUGE_PAGES");
  if (wanted != nullptr && std::string(wanted) == "0") return;
  constexpr std::uintptr_t kPage = 2u << 20;
  constexpr int kCollapse = 25;  // MADV_COLLAPSE: now, not when the kernel gets to it (Linux 6.1)
  const auto first = reinterpret_cast<std::uintptr_t>(weights.const_data_ptr());
  const std::uintptr_t begin = (first + kPage - 1) / kPage * kPage;
  const std::uintptr_t end = (first + weights.nbytes()) / kPage * kPage;
  if (begin >= end) return;
  void* at = reinterpret_cast<void*>(begin);
  if (madvise(at, end - begin, MADV_HUGEPAGE) == 0) madvise(at, end - begin, kCollapse);
#endif
}

// The pairs (token * topk + slot) of one expert.
struct Chosen {
  std::int64_t expert;
  std::vector<std::int64_t> pairs;
};

std::vector<Chosen> by_expert(const Tensor& ids, std::int64_t experts) {
  const Tensor wide = ids.to(at::kLong);
  const std::int64_t* id = wide.const_data_ptr<std::int64_t>();
  std::vector<std::int64_t> place(experts, -1);
  std::vector<Chosen> chosen;
  for (std::int64_t pair = 0; pair < wide.numel(); ++pair) {
    if (id[pair] < 0) continue;
    // The text in one piece: a stream would need the same C++ library as torch has, and some
    // compilers link their own into an extension.
    TORCH_CHECK_INDEX(id[pair] < experts, "topk_ids names expert " + std::to_string(id[pair]) +
                                              " of " + std::to_string(experts));
    if (place[id[pair]] < 0) {
      place[id[pair]] = static_cast<std::int64_t>(chosen.size());
      chosen.push_back({id[pair], {}});
    }
    chosen[place[id[pair]]].pairs.push_back(pair);
  }
  return chosen;
}

// Activations in the order that the row kernels want, one row of the result each.
Tensor arrange(const Tensor& x, std::int64_t group, const RowKernels& kernels) {
  const std::int64_t k = x.size(1);
  Tensor out = at::empty({x.size(0), kernels.arranged_size(k, group)}, x.options());
  const float* from = x.const_data_ptr<float>();
  float* to = out.data_ptr<float>();
  at::parallel_for(0, x.size(0), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      kernels.arrange(from + row * k, to + row * out.size(1), k, group);
    }
  });
  return out;
}

// One projection's weights and what its row kernels need.
struct Projection {
  const RowKernels& kernels;
  const std::uint8_t* weights;
  const std::uint16_t* scales;
  bool scales_bf16;
  std::int64_t rows, k, group, groups;

  Projection(const RowKernels& kernels, const Tensor& w, const Tensor& s, std::int64_t group)
      : kernels(kernels),
        weights(w.const_data_ptr<std::uint8_t>()),
        scales(static_cast<const std::uint16_t*>(s.const_data_ptr())),
        scales_bf16(s.scalar_type() == at::kBFloat16),
        rows(w.size(1)),
        k(w.size(2) * 2),
        group(group),
        groups(k / group) {}
};

// What a thread works in.
struct Room {
  const Projection& projection;
  std::vector<const float*> x;
  std::vector<float> scales, first, second, gathered;

  explicit Room(const Projection& projection)
      : projection(projection),
        scales(u4moe::kScaleCopies * u4moe::padded_groups(projection.groups)),
        first(kTokensAtOnce * kBlockRows),
        second(kTokensAtOnce * kBlockRows) {
    if (projection.kernels.begin != nullptr) projection.kernels.begin();
  }
  ~Room() {
    if (projection.kernels.end != nullptr) projection.kernels.end();
  }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

  float* aligned() {
    const auto at = reinterpret_cast<std::uintptr_t>(gathered.data());
    return reinterpret_cast<float*>((at + 63) / 64 * 64);
  }

  // The tokens of the next products: where each pair's activations stand.
  template <typename At>
  void bring(const std::int64_t* pairs, std::int64_t count, const At& at) {
    x.clear();
    for (std::int64_t t = 0; t < count; ++t) x.push_back(at(pairs[t]));
    const RowKernels& kernels = projection.kernels;
    if (kernels.gather == nullptr) return;
    gathered.resize(kernels.gathered_size(count, projection.k, projection.group) + 16);
    kernels.gather(x.data(), count, projection.k, projection.group, aligned());
  }

  // Products of `count` rows of an expert with those tokens.
  void dot(std::int64_t expert, std::int64_t from, std::int64_t count, std::vector<float>& out) {
    const Projection& p = projection;
    const std::int64_t row = expert * p.rows + from;
    p.kernels.dot(DotCall{p.weights + row * p.k / 2, p.scales + row * p.groups, p.scales_bf16,
                          count, p.k, p.group, p.groups, x.data(),
                          static_cast<std::int64_t>(x.size()), aligned(), scales.data(),
                          out.data()});
  }
};

// Calls work(pairs, count) for runs of at most kTokensAtOnce pairs.
template <typename Work>
void in_runs(const Chosen& chosen, const Work& work) {
  const std::int64_t total = static_cast<std::int64_t>(chosen.pairs.size());
  for (std::int64_t at = 0; at < total; at += kTokensAtOnce) {
    work(chosen.pairs.data() + at, std::min(kTokensAtOnce, total - at));
  }
}

void gate_up(const Projection& w13, const std::vector<Chosen>& chosen, const Tensor& x,
             std::int64_t topk, Tensor& act) {
  const std::int64_t inter = act.size(1);
  const std::int64_t blocks = (inter + kBlockRows - 1) / kBlockRows;
  const std::int64_t x_stride = x.size(1);
  const float* x_at = x.const_data_ptr<float>();
  float* act_at = act.data_ptr<float>();
  const std::int64_t tasks = static_cast<std::int64_t>(chosen.size()) * blocks;
  at::parallel_for(0, tasks, 1, [&](std::int64_t begin, std::int64_t end) {
    Room room(w13);
    while (begin < end) {
      const Chosen& mine = chosen[begin / blocks];
      const std::int64_t block = begin % blocks;
      const std::int64_t last = std::min(block + end - begin, blocks);
      in_runs(mine, [&](const std::int64_t* pairs, std::int64_t run) {
        room.bring(pairs, run, [&](std::int64_t pair) { return x_at + pair / topk * x_stride; });
        for (std::int64_t b = block; b < last; ++b) {
          const std::int64_t first = b * kBlockRows;
          const std::int64_t count = std::min(kBlockRows, inter - first);
          room.dot(mine.expert, first, count, room.first);
          room.dot(mine.expert, inter + first, count, room.second);
          for (std::int64_t t = 0; t < run; ++t) {
            for (std::int64_t r = 0; r < count; ++r) {
              const std::int64_t at = t * kBlockRows + r;
              act_at[pairs[t] * inter + first + r] = u4moe::silu_mul(
                  room.first[at], room.second[at], [](float v) { return std::exp(v); });
            }
          }
        }
      });
      begin += last - block;
    }
  });
}

void down(const Projection& w2, const std::vector<Chosen>& chosen, const Tensor& act,
          const Tensor& route, std::int64_t topk, Tensor& sum) {
  const std::int64_t hidden = sum.size(1);
  const std::int64_t blocks = (hidden + kBlockRows - 1) / kBlockRows;
  const std::int64_t act_stride = act.size(1);
  const float* act_at = act.const_data_ptr<float>();
  const float* route_at = route.const_data_ptr<float>();
  float* sum_at = sum.data_ptr<float>();
  at::parallel_for(0, blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    Room room(w2);
    for (const Chosen& mine : chosen) {
      in_runs(mine, [&](const std::int64_t* pairs, std::int64_t run) {
        room.bring(pairs, run, [&](std::int64_t pair) { return act_at + pair * act_stride; });
        for (std::int64_t block = begin; block < end; ++block) {
          const std::int64_t first = block * kBlockRows;
          const std::int64_t count = std::min(kBlockRows, hidden - first);
          room.dot(mine.expert, first, count, room.first);
          for (std::int64_t t = 0; t < run; ++t) {
            float* to = sum_at + pairs[t] / topk * hidden + first;
            for (std::int64_t r = 0; r < count; ++r) {
              to[r] += route_at[pairs[t]] * room.first[t * kBlockRows + r];
            }
          }
        }
      });
    }
  });
}

void fused_experts(Tensor out, const Tensor& hidden_states, const Tensor& w13, const Tensor& s13,
                   const Tensor& w2, const Tensor& s2, const Tensor& topk_weights,
                   const Tensor& topk_ids, std::int64_t group) {
  const RowKernels& kernels = u4moe::kernels_for(group);
  use_huge_pages(w13);
  use_huge_pages(w2);
  const std::int64_t topk = topk_ids.size(1);
  const std::vector<Chosen> chosen = by_expert(topk_ids, w13.size(0));
  const Tensor x = arrange(hidden_states.to(at::kFloat), group, kernels);
  // Skipped pairs keep what stands here; zeros keep them harmless.
  Tensor act = at::zeros({topk_ids.numel(), w13.size(1) / 2}, x.options());
  gate_up(Projection(kernels, w13, s13, group), chosen, x, topk, act);
  act = arrange(act, group, kernels);
  Tensor sum = at::zeros({out.size(0), out.size(1)}, x.options());
  down(Projection(kernels, w2, s2, group), chosen, act, topk_weights.to(at::kFloat), topk, sum);
  out.copy_(sum);
}

}  // namespace

TORCH_LIBRARY(u4moe_cpu, m) {
  m.def(
      "fused_experts(Tensor(a!) out, Tensor hidden_states, Tensor w13, Tensor s13, Tensor w2, "
      "Tensor s2, Tensor topk_weights, Tensor topk_ids, int group) -> ()");
  m.def("isa(str name) -> str");
}

TORCH_LIBRARY_IMPL(u4moe_cpu, CPU, m) { m.impl("fused_experts", &fused_experts); }

TORCH_LIBRARY_IMPL(u4moe_cpu, CompositeExplicitAutograd, m) { m.impl("isa", &u4moe::isa); }
