// Owns the reductions.
#pragma once

#include "core/api.h"
#include "core/ops/family.h"

namespace fusor {

enum class ReductionMode : uint8_t { add, mul, min, max, amax, avg, norm1, norm2, mul_no_zeros };
FUSOR_API std::string_view to_string(ReductionMode mode);
int reduction_mode_count();

/// y = x reduced to y's dims: an axis whose extent in y is 1 is reduced whole; one whose extent d divides x's
/// D is reduced in d groups of D / d neighbours.
struct Reduction {
  ReductionMode mode = ReductionMode::add;
  DataType compute = DataType::f32;

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& field) {
    field("mode", self.mode);
    field("compute", self.compute);
  }

  static constexpr Nature nature = Nature::computes;
  std::string_view kind() const { return "reduction"; }
  Roles roles() const { return {{{"x"}}, {{"y"}}}; }
  std::vector<Inferred> infer(const Call& call) const;
  bool needs_reals() const { return mode == ReductionMode::avg || mode == ReductionMode::norm2; }
  friend bool operator==(const Reduction&, const Reduction&) = default;
};

}  // namespace fusor
