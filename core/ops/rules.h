// Owns the checks that the rules of several families share.
#pragma once

#include <string_view>

#include "core/fail.h"
#include "core/ops/family.h"

namespace fusor {

/// Dims under the name of their role in the op: "x", "dw".
struct NamedDims {
  std::string_view name;
  const Dims& dims;
};

void refuse_scalars(const Call& call);
void expect_compute(const Call& call, DataType compute);
void expect_real_compute(const Call& call, DataType compute);
void expect_extents(const Call& call, const NamedDims& named);
/// A list attribute has one entry for each of `count` axes.
void expect_entries(const Call& call, std::string_view list_name, const Dims& list, int count,
                    std::string_view axes);
void expect_axis(const Call& call, int64_t axis, const Tensor& x);
/// Refuses results whose span no pointer arithmetic could hold, whatever their type.
void expect_addressable(const Call& call, const Dims& dims);

/// The result with these dims, in the memory order of `like`, or row-major.
Inferred in_order_of(const Call& call, const Dims& dims, DataType type, const Tensor& like);
Inferred in_row_major(const Call& call, const Dims& dims, DataType type);

}  // namespace fusor
