// Owns the matmul.
#pragma once

#include "core/ops/family.h"

namespace fusor {

/// c[..., m, n] = sum over k of a[..., m, k] * b[..., k, n]; leading axes broadcast both ways.
struct Matmul {
  DataType compute = DataType::f32;

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& field) {
    field("compute", self.compute);
  }

  static constexpr Nature nature = Nature::contracts;
  std::string_view kind() const { return "matmul"; }
  Roles roles() const { return {{{"a"}, {"b"}}, {{"c"}}}; }
  std::vector<Inferred> infer(const Call& call) const;
  friend bool operator==(const Matmul&, const Matmul&) = default;
};

}  // namespace fusor
