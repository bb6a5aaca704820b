// Owns the rules of reductions.
#include "core/ops/reduction.h"

#include <array>

#include "core/ops/rules.h"

namespace fusor {

namespace {

constexpr std::array<std::string_view, 9> kModes = {"add", "mul",   "min",   "max",         "amax",
                                                    "avg", "norm1", "norm2", "mul_no_zeros"};

}  // namespace

std::string_view to_string(ReductionMode mode) { return kModes[static_cast<size_t>(mode)]; }
int reduction_mode_count() { return static_cast<int>(kModes.size()); }

std::vector<Inferred> Reduction::infer(const Call& call) const {
  refuse_scalars(call);
  expect_compute(call, compute);
  if (needs_reals()) expect_real_compute(call, compute);
  const Tensor& x = call.input(0);
  const Dims& dims = call.given();
  if (dims.rank() != x.dims.rank())
    fail("{}: result dims {} and '{}' {} have different ranks", call.label, to_string(dims), x.name,
         to_string(x.dims));
  for (int i = 0; i < dims.rank(); ++i)
    if (dims[i] < 1 || x.dims[i] % dims[i] != 0)
      fail("{}: axis {}: the result's extent {} does not divide {} of '{}'", call.label, i, dims[i],
           x.dims[i], x.name);
  return {in_order_of(call, dims, compute, x)};
}

}  // namespace fusor
