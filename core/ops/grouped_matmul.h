// Owns the matmuls of some rows: by experts, and of batch entries with lengths of their own.
#pragma once

#include "core/api.h"
#include "core/ops/family.h"

namespace fusor {

class Expansion;

enum class TokenMode : uint8_t { none, gather, scatter };
FUSOR_API std::string_view to_string(TokenMode mode);
constexpr int enum_count(TokenMode) { return 3; }

/// y[i] = tokens[i] weights[e], where e is the last expert with first_token_offset[e] <= i; rows in front of
/// the first offset are 0. tokens [rows, k] or [1, rows, k], weights [experts, k, n]; first_token_offset has
/// an integer for each expert, ascending. token_index, an integer for each row of tokens by experts, belongs
/// to the other two modes. gather: row i is token token_index[i] / top_k. scatter: the result of row i goes
/// to row token_index[i]; rows that none goes to are 0.
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
  static constexpr std::array<Product, 1> products{{{0, 1}}};
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
  static constexpr std::array<Product, 1> products{{{0, 1}}};
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
