// Owns the local response normalization across channels.
#pragma once

#include "core/ops/family.h"

namespace fusor {

class Expansion;

/// y = x / (k + alpha / window * sum of x^2)^beta over `window` neighbouring channels (axis 1): window / 2
/// before the element's own, the rest from it on; channels that are not there count as zeros (Krizhevsky et
/// al. 2012).
struct LrnAttributes {
  int64_t window = 5;
  double alpha = 1e-4;
  double beta = 0.75;
  double k = 1;

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& field) {
    field("window", self.window);
    field("alpha", self.alpha);
    field("beta", self.beta);
    field("k", self.k);
  }
  friend bool operator==(const LrnAttributes&, const LrnAttributes&) = default;
};

struct LrnForward : LrnAttributes {
  static constexpr Nature nature = Nature::composite;
  std::string_view kind() const { return "lrn"; }
  Roles roles() const { return {{{"x"}}, {{"y"}}}; }
  std::vector<Inferred> infer(const Call& call) const;
  void expand(Expansion& e) const;
  friend bool operator==(const LrnForward&, const LrnForward&) = default;
};

struct LrnBackward : LrnAttributes {
  static constexpr Nature nature = Nature::composite;
  static constexpr size_t typed_by = 1;
  std::string_view kind() const { return "lrn_bwd"; }
  Roles roles() const { return {{{"dy"}, {"x"}}, {{"dx"}}}; }
  std::vector<Inferred> infer(const Call& call) const;
  void expand(Expansion& e) const;
  friend bool operator==(const LrnBackward&, const LrnBackward&) = default;
};

}  // namespace fusor
