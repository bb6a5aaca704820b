// Owns the recurrence: the steps of one layer of rnn_fwd or rnn_bwd in one direction, without the products
// that need no earlier step.
#pragma once

#include <vector>

#include "core/api.h"
#include "core/ops/family.h"
#include "core/ops/rnn.h"

namespace fusor {

class Expansion;

/// The steps of one recurrent layer in one direction, as one op: rnn_fwd and rnn_bwd are written in it where
/// all steps are one launch.
///
/// Forward: states [planes, time + 1, batch, hidden] of given [time, batch, gates * hidden], the inputs'
/// share of the sums. Planes: h, lstm's c; with keeps_sums also the gates before their activations: lstm's i,
/// f, g, o; gru's r, z, n and the recurrent share of n; tanh's one. Row time + 1 holds what step `time` ends
/// with and row 0 the first states; in reverse rows 0 to time - 1 and row `time`. Rows of the sums beside the
/// first states are 0. Steps behind a sequence's length leave the states as they are.
///
/// Backward: gradients [time + 1, batch, blocks * hidden] of dy [time, batch, hidden] and the states that
/// keep sums. Blocks: the gates' sums; of gru those of the inputs, then the recurrent ones. The last row
/// holds the gradient of h0, then that of lstm's c0, then zeros.
///
/// Weights [gates * hidden, hidden] and bias [gates * hidden] are the recurrent ones; the result has the type
/// of the weights, and so have h and the gradients from step to step; lstm's c is fp32 on the way.
struct Recurrence {
  RnnCell cell = RnnCell::lstm;
  int64_t hidden_size = 0;
  bool backward = false;
  bool reverse = false;
  bool keeps_sums = false;  ///< forward only
  bool has_bias = false;    ///< forward only; so are has_h0 and has_c0
  bool has_h0 = false;
  bool has_c0 = false;
  bool has_dhn = false;  ///< backward only; so is has_dcn
  bool has_dcn = false;
  bool has_lengths = false;

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& field) {
    field("cell", self.cell);
    field("hidden_size", self.hidden_size);
    field("backward", self.backward);
    field("reverse", self.reverse);
    field("keeps_sums", self.keeps_sums);
    field("has_bias", self.has_bias);
    field("has_h0", self.has_h0);
    field("has_c0", self.has_c0);
    field("has_dhn", self.has_dhn);
    field("has_dcn", self.has_dcn);
    field("has_lengths", self.has_lengths);
  }
  static constexpr Nature nature = Nature::composite;
  std::string_view kind() const { return "recurrence"; }
  Roles roles() const;
  std::vector<Inferred> infer(const Call& call) const;
  void expand(Expansion& e) const;
  friend bool operator==(const Recurrence&, const Recurrence&) = default;

  int64_t gates() const { return cell == RnnCell::lstm ? 4 : cell == RnnCell::gru ? 3 : 1; }
  int64_t kept_sums() const { return cell == RnnCell::rnn_relu ? 0 : cell == RnnCell::rnn_tanh ? 1 : 4; }
  /// Planes of the states, as the forward pass makes them, or as the backward pass reads them.
  int64_t planes() const {
    return (cell == RnnCell::lstm ? 2 : 1) + (keeps_sums || backward ? kept_sums() : 0);
  }
  /// Blocks of the gradients.
  int64_t blocks() const { return cell == RnnCell::gru ? 6 : gates(); }
};

}  // namespace fusor
