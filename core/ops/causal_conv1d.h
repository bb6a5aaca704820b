// Owns the causal convolution over time, as state-space models use it.
#pragma once

#include "core/api.h"
#include "core/ops/family.h"

namespace fusor {

class Expansion;

enum class CausalActivation : uint8_t { none, silu };
FUSOR_API std::string_view to_string(CausalActivation activation);
constexpr int enum_count(CausalActivation) { return 2; }

/// y[n, c, t] = bias[c] + sum over k of weight[c, k] * x[n, c, t - (width - 1) + k], through the activation:
/// every channel by itself, from the present and what was before. What was before x is initial_states [N, C,
/// width - 1], or zeros; final_states is what the next piece of the sequence needs.
struct CausalConv1d {
  CausalActivation activation = CausalActivation::none;

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& field) {
    field("activation", self.activation);
  }

  static constexpr Nature nature = Nature::composite;
  static constexpr size_t typed_by = 1;
  std::string_view kind() const { return "causal_conv1d"; }
  Roles roles() const;
  std::vector<Inferred> infer(const Call& call) const;
  void expand(Expansion& e) const;
  friend bool operator==(const CausalConv1d&, const CausalConv1d&) = default;
};

/// The gradients of CausalConv1d.
struct CausalConv1dBackward {
  CausalActivation activation = CausalActivation::none;

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& field) {
    field("activation", self.activation);
  }

  static constexpr Nature nature = Nature::composite;
  static constexpr size_t typed_by = 1;
  std::string_view kind() const { return "causal_conv1d_bwd"; }
  Roles roles() const;
  std::vector<Inferred> infer(const Call& call) const;
  void expand(Expansion& e) const;
  friend bool operator==(const CausalConv1dBackward&, const CausalConv1dBackward&) = default;
};

}  // namespace fusor
