// Owns the gather.
#pragma once

#include "core/ops/family.h"

namespace fusor {

/// y[..., i, ...] = x[..., index[..., i, ...], ...] along `axis`. The index has x's rank and any extent along
/// the axis; in the other axes the two broadcast against each other. An index outside of x's extent reads 0.
struct Gather {
  int64_t axis = 0;

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& field) {
    field("axis", self.axis);
  }

  static constexpr Nature nature = Nature::computes;
  std::string_view kind() const { return "gather"; }
  Roles roles() const { return {{{"x"}, {"index"}}, {{"y"}}}; }
  std::vector<Inferred> infer(const Call& call) const;
  friend bool operator==(const Gather&, const Gather&) = default;
};

}  // namespace fusor
