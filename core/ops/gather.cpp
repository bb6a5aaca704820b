// Owns the rules of gather.
#include "core/ops/gather.h"

#include "core/ops/rules.h"

namespace fusor {

std::vector<Inferred> Gather::infer(const Call& call) const {
  refuse_scalars(call);
  const Tensor& x = call.input(0);
  const Tensor& index = call.input(1);
  expect_axis(call, axis, x);
  if (index.type != DataType::i32 && index.type != DataType::i64)
    fail("{}: the index '{}' is {}; it must be int32 or int64", call.label, index.name,
         to_string(index.type));
  if (index.dims.rank() != x.dims.rank())
    fail("{}: the index '{}' {} and '{}' {} have different ranks", call.label, index.name,
         to_string(index.dims), x.name, to_string(x.dims));
  const int along = static_cast<int>(axis);
  Dims taken = x.dims, dims;
  taken[along] = index.dims[along];
  if (!broadcast_dims(taken, index.dims, dims))
    fail("{}: the index '{}' {} and '{}' {} do not broadcast in the axes other than {}", call.label,
         index.name, to_string(index.dims), x.name, to_string(x.dims), axis);
  return {in_order_of(call, dims, x.type, x)};
}

}  // namespace fusor
