// Owns the matmuls of some rows: by experts, and of batch entries with lengths of their own.
#pragma once

#include "core/api.h"
#include "core/ops/family.h"

namespace fusor {

class Expansion;

enum class TokenMode : uint8_t { none, gather, scatter };
FUSOR_API std::string_view to_string(TokenMode mode);
constexpr int enum_count(TokenMode) { return 3; }

/// Row i of [tokens, k] times the weights [experts, k, n] of the expert whose rows begin at or before i:
/// first_token_offset [experts, 1, 1] ascends. Rows before the first are 0. The index [rows] lists, for each
/// row in the order of experts, its place in the users' order, top_k of which belong to one token. gather:
/// row i is token index[i] / top_k; scatter: the result of row i goes to row index[i], and rows that none
/// goes to are 0.
struct MoeGroupedMatmul {
  TokenMode mode = TokenMode::none;
  int64_t top_k = 1;

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& field) {
    field("mode", self.mode);
    field("top_k", self.top_k);
  }

  static constexpr Nature nature = Nature::composite;
  static constexpr size_t typed_by = 2;
  std::string_view kind() const { return "moe_grouped_matmul"; }
  Roles roles() const {
    return {{{"tokens"}, {"weights"}, {"first_token_offset"}, {.name = "token_index", .optional = true}},
            {{"y"}}};
  }
  std::vector<Inferred> infer(const Call& call) const;
  void expand(Expansion& e) const;
  friend bool operator==(const MoeGroupedMatmul&, const MoeGroupedMatmul&) = default;
};

/// c = a b of batch entries that have m rows, n columns and k terms of their own: integers [batch..., 1, 1],
/// each of which may be left out. Elements of c beyond them are `padding`; those of a and b are not read as
/// numbers.
struct MatmulLengths {
  double padding = 0;

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& field) {
    field("padding", self.padding);
  }

  static constexpr Nature nature = Nature::composite;
  static constexpr size_t typed_by = 2;
  std::string_view kind() const { return "matmul_lengths"; }
  Roles roles() const {
    return {{{"a"},
             {"b"},
             {.name = "m_override", .optional = true},
             {.name = "n_override", .optional = true},
             {.name = "k_override", .optional = true}},
            {{"c"}}};
  }
  std::vector<Inferred> infer(const Call& call) const;
  void expand(Expansion& e) const;
  friend bool operator==(const MatmulLengths&, const MatmulLengths&) = default;
};

}  // namespace fusor
