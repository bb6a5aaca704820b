// Owns the views: ops that only rename coordinates.
#pragma once

#include "core/ops/family.h"

namespace fusor {

/// The same elements in row-major order under other dims (those of y).
struct Reshape {
  template <class Self, class Visitor>
  static void visit(Self&, Visitor&&) {}

  static constexpr Nature nature = Nature::views;
  std::string_view kind() const { return "reshape"; }
  Roles roles() const { return {{{"x"}}, {{"y"}}}; }
  std::vector<Inferred> infer(const Call& call) const;
  friend bool operator==(const Reshape&, const Reshape&) = default;
};

/// y's axis i is x's axis permutation[i].
struct Transpose {
  Dims permutation;

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& field) {
    field("permutation", self.permutation);
  }

  static constexpr Nature nature = Nature::views;
  std::string_view kind() const { return "transpose"; }
  Roles roles() const { return {{{"x"}}, {{"y"}}}; }
  std::vector<Inferred> infer(const Call& call) const;
  friend bool operator==(const Transpose&, const Transpose&) = default;
};

/// y[i] = x[start + i * step] for start + i * step < limit, per axis; steps of 1 or more.
struct Slice {
  Dims start, limit, step;

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& field) {
    field("start", self.start);
    field("limit", self.limit);
    field("step", self.step);
  }

  static constexpr Nature nature = Nature::views;
  std::string_view kind() const { return "slice"; }
  Roles roles() const { return {{{"x"}}, {{"y"}}}; }
  std::vector<Inferred> infer(const Call& call) const;
  /// Files may leave out the steps.
  void fill_omitted(int rank);
  friend bool operator==(const Slice&, const Slice&) = default;
};

}  // namespace fusor
