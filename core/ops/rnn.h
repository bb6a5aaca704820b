// Owns the recurrent layers, forward and backward.
#pragma once

#include <vector>

#include "core/api.h"
#include "core/ops/family.h"

namespace fusor {

class Expansion;

enum class RnnCell : uint8_t { lstm, gru, rnn_relu, rnn_tanh };
FUSOR_API std::string_view to_string(RnnCell cell);
constexpr int enum_count(RnnCell) { return 4; }

/// The attributes of both directions. The cells, their weights and the order of their gates (lstm: i, f, g,
/// o; gru: r, z, n) are PyTorch's. Weights of each layer and direction, in the order of their roles:
/// weight_ih [gates * hidden, inputs], weight_hh [gates * hidden, outputs], with biases bias_ih and bias_hh,
/// with a projection (lstm) weight_hr [projection_size, hidden]; "_l0", "_l0_reverse", "_l1" ... end their
/// names.
struct RnnAttributes {
  RnnCell cell = RnnCell::lstm;
  int64_t hidden_size = 0;
  int64_t layers = 1;
  int64_t projection_size = 0;  ///< 0: outputs are the hidden state itself
  bool bidirectional = false;
  bool bias = true;

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& field) {
    field("cell", self.cell);
    field("hidden_size", self.hidden_size);
    field("layers", self.layers);
    field("projection_size", self.projection_size);
    field("bidirectional", self.bidirectional);
    field("bias", self.bias);
  }
  int64_t directions() const { return bidirectional ? 2 : 1; }
  int64_t output_size() const { return projection_size > 0 ? projection_size : hidden_size; }
  int64_t gates() const { return cell == RnnCell::lstm ? 4 : cell == RnnCell::gru ? 3 : 1; }
  /// The weights of one layer and direction.
  int64_t weights() const { return 2 + (bias ? 2 : 0) + (projection_size > 0 ? 1 : 0); }
  /// "weight_ih_l0", ...
  std::vector<std::string_view> weight_names() const;
  friend bool operator==(const RnnAttributes&, const RnnAttributes&) = default;
};

/// y [time, batch, directions * outputs] of x [time, batch, inputs], and the last states
/// [layers * directions, batch, outputs or hidden_size]. States that are left out are zero. Of a sequence of
/// `lengths` [batch] steps the later ones are padding: y is zero there, and the states stay; the reverse
/// direction begins at the last step.
struct RnnForward : RnnAttributes {
  static constexpr Nature nature = Nature::composite;
  static constexpr size_t typed_by = 1;
  std::string_view kind() const { return "rnn_fwd"; }
  Roles roles() const;
  std::vector<Inferred> infer(const Call& call) const;
  void expand(Expansion& e) const;
  friend bool operator==(const RnnForward&, const RnnForward&) = default;
};

/// The gradients of RnnForward: of x, the first states and every weight. The forward pass is computed again.
struct RnnBackward : RnnAttributes {
  static constexpr Nature nature = Nature::composite;
  static constexpr size_t typed_by = 1;
  std::string_view kind() const { return "rnn_bwd"; }
  Roles roles() const;
  std::vector<Inferred> infer(const Call& call) const;
  void expand(Expansion& e) const;
  friend bool operator==(const RnnBackward&, const RnnBackward&) = default;
};

}  // namespace fusor
