// Owns the gather and the scatter.
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

/// y[..., index[..., i, ...], ...] = x[..., i, ...] along x's axis `axis`. The index broadcasts to x; y has
/// x's axes or the last of them, any extent along the axis, and x's extent or 1 along the others. An index
/// outside of y's extent names nothing, and of two that are equal either may be the last. Elements that no
/// index names are not written, nor need there be memory for those behind the last one that is: y is an
/// output that no op reads.
struct Scatter {
  int64_t axis = 0;

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& field) {
    field("axis", self.axis);
  }

  static constexpr Nature nature = Nature::computes;
  std::string_view kind() const { return "scatter"; }
  Roles roles() const { return {{{"x"}, {"index"}}, {{"y"}}}; }
  std::vector<Inferred> infer(const Call& call) const;
  bool leaves_gaps() const { return true; }
  friend bool operator==(const Scatter&, const Scatter&) = default;
};

}  // namespace fusor
