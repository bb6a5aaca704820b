// Owns the concatenation.
#pragma once

#include "core/ops/family.h"

namespace fusor {

/// The inputs one behind the other along `axis`.
struct Concatenate {
  int64_t axis = 0;

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& field) {
    field("axis", self.axis);
  }

  static constexpr Nature nature = Nature::joins;
  std::string_view kind() const { return "concatenate"; }
  Roles roles() const { return {{{.name = "x", .repeats = true}}, {{"y"}}}; }
  std::vector<Inferred> infer(const Call& call) const;
  friend bool operator==(const Concatenate&, const Concatenate&) = default;
};

}  // namespace fusor
