// Every instruction set that this processor has, against the portable kernels on random problems.
// What is read stands right before a page that may not be touched, so that a byte too many ends the
// program; what is written first holds NaNs. Takes the number of problems.
#include <sys/mman.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <vector>

#include "rows.hpp"

using namespace u4moe;

namespace {

// Memory that ends where a forbidden page begins, or `align` bytes' remainder before.
class Guarded {
 public:
  explicit Guarded(std::size_t size, std::size_t align = 1) {
    constexpr std::size_t kPage = 4096;
    const std::size_t usable = (size + kPage - 1) / kPage * kPage;
    length_ = usable + kPage;
    start_ = static_cast<char*>(
        mmap(nullptr, length_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(start_ + usable, kPage, PROT_NONE);
    at_ = start_ + (usable - size) / align * align;
    std::memset(at_, 0xFF, size);  // NaNs
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  ~Guarded() { munmap(start_, length_); }

  template <typename T>
  T* as() const { return reinterpret_cast<T*>(at_); }

 private:
  char* start_;
  char* at_;
  std::size_t length_;
};

std::int64_t up_to(std::int64_t most) { return 1 + std::rand() % most; }

struct Problem {
  std::int64_t group, groups, k, rows, tokens;
  bool bf16;
  Guarded weights, scales;
  std::list<Guarded> x;

  explicit Problem(std::int64_t number)
      : group(number % 3 == 0 ? 128 : 8 * up_to(48)),
        groups(up_to(number % 3 == 0 ? 26 : 12)),
        k(group * groups),
        rows(up_to(kBlockRows)),
        tokens(up_to(number % 5 == 0 ? kTokensAtOnce : 12)),
        bf16(std::rand() % 2 == 0),
        weights(rows * k / 2),
        scales(rows * groups * sizeof(std::uint16_t)) {
    for (std::int64_t i = 0; i < rows * k / 2; ++i) weights.as<std::uint8_t>()[i] = std::rand();
    for (std::int64_t i = 0; i < rows * groups; ++i) {
      scales.as<std::uint16_t>()[i] = (bf16 ? 0x3C00 : 0x2000) + std::rand() % 256;
    }
    for (std::int64_t t = 0; t < tokens; ++t) {
      x.emplace_back(k * sizeof(float));
      for (std::int64_t i = 0; i < k; ++i) {
        const float value = static_cast<float>(std::rand()) / static_cast<float>(RAND_MAX) - 0.5f;
        x.back().as<float>()[i] = std::rand() % 50 == 0 ? 100.0f * value : value;
      }
    }
  }

  std::vector<float> products(const RowKernels& kernels) const {
    std::list<Guarded> arranged;
    std::vector<const float*> at;
    for (const Guarded& token : x) {
      arranged.emplace_back(kernels.arranged_size(k, group) * sizeof(float));
      kernels.arrange(token.as<float>(), arranged.back().as<float>(), k, group);
      at.push_back(arranged.back().as<float>());
    }
    const Guarded buffer(kScaleCopies * padded_groups(groups) * sizeof(float));
    const Guarded out(kTokensAtOnce * kBlockRows * sizeof(float));
    const bool gathers = kernels.gather != nullptr;
    const Guarded gathered(
        gathers ? kernels.gathered_size(tokens, k, group) * sizeof(float) : 0, 64);
    if (gathers) kernels.gather(at.data(), tokens, k, group, gathered.as<float>());
    if (kernels.begin != nullptr) kernels.begin();
    kernels.dot(DotCall{weights.as<std::uint8_t>(), scales.as<std::uint16_t>(), bf16, rows, k,
                        group, groups, at.data(), tokens, gathered.as<float>(),
                        buffer.as<float>(), out.as<float>()});
    if (kernels.end != nullptr) kernels.end();
    std::vector<float> all;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const float* from = out.as<float>() + t * kBlockRows;
      all.insert(all.end(), from, from + rows);
    }
    return all;
  }
};

double relative_error(const std::vector<float>& found, const std::vector<float>& expected) {
  double difference = 0, norm = 1e-30;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference += std::pow(double(found[i]) - double(expected[i]), 2);
    norm += std::pow(double(expected[i]), 2);
  }
  return std::sqrt(difference / norm);
}

}  // namespace

int main(int, char** arguments) {
  for (long number = 0; number < std::atol(arguments[1]); ++number) {
    const Problem problem(number);
    const std::vector<float> expected = problem.products(*portable_kernels());
    for (const RowKernels* kernels :
         {amx_kernels(), avx512vnni_kernels(), avx512_kernels(), avx2_kernels()}) {
      if (kernels == nullptr || !kernels->runs_here()) continue;
      if (!kernels->takes_group(problem.group)) continue;
      const double error = relative_error(problem.products(*kernels), expected);
      if (error <= 2e-3) continue;
      std::printf("%s: k %ld in groups of %ld, %ld rows, %ld tokens: error %g\n", kernels->name,
                  long(problem.k), long(problem.group), long(problem.rows), long(problem.tokens),
                  error);
      return 1;
    }
  }
  std::puts("ok");
}
