// Owns the rules of matmul.
#include "core/ops/matmul.h"

#include "core/ops/rules.h"

namespace fusor {

namespace {

Dims batch_of(const Dims& dims) { return Dims({dims.begin(), static_cast<size_t>(dims.rank() - 2)}); }

}  // namespace

std::vector<Inferred> Matmul::infer(const Call& call) const {
  refuse_scalars(call);
  expect_compute(call, compute);
  const Dims& a = call.input(0).dims;
  const Dims& b = call.input(1).dims;
  if (a.rank() < 2) fail("{}: a {} is a vector; reshape it to [1, {}]", call.label, to_string(a), a[0]);
  if (b.rank() < 2) fail("{}: b {} is a vector; reshape it to [{}, 1]", call.label, to_string(b), b[0]);
  const int64_t k = b[b.rank() - 2];
  if (a.back() != k)
    fail("{}: a {} has k={}, b {} has k={}", call.label, to_string(a), a.back(), to_string(b), k);
  Dims dims;
  if (!broadcast_dims(batch_of(a), batch_of(b), dims))
    fail("{}: batch dims {} of a and {} of b do not broadcast", call.label, to_string(batch_of(a)),
         to_string(batch_of(b)));
  dims.push_back(a[a.rank() - 2]);
  dims.push_back(b.back());
  return {in_row_major(call, dims, compute)};
}

}  // namespace fusor
