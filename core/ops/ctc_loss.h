// Owns the loss of connectionist temporal classification (Graves et al. 2006).
#pragma once

#include "core/ops/family.h"

namespace fusor {

class Expansion;

/// loss [batch] of x [time, batch, classes], logarithms of probabilities, and labels [batch, most labels], of
/// which label_lengths [batch] count, in input_lengths [batch] steps of time (all where they are left out):
/// minus the logarithm of the probability of all paths that spell the labels. dx is the gradient of the
/// losses' sum. With zero_infinity labels that no path is long enough for have neither loss nor gradient.
struct CtcLoss {
  int64_t blank = 0;
  bool zero_infinity = false;

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& field) {
    field("blank", self.blank);
    field("zero_infinity", self.zero_infinity);
  }

  static constexpr Nature nature = Nature::composite;
  static constexpr size_t typed_by = 1;
  std::string_view kind() const { return "ctc_loss"; }
  Roles roles() const {
    return {{{"x"},
             {"labels"},
             {.name = "input_lengths", .optional = true},
             {.name = "label_lengths", .optional = true}},
            {{.name = "loss", .optional = true, .own_type = true}, {.name = "dx", .optional = true}}};
  }
  std::vector<Inferred> infer(const Call& call) const;
  void expand(Expansion& e) const;
  friend bool operator==(const CtcLoss&, const CtcLoss&) = default;
};

}  // namespace fusor
