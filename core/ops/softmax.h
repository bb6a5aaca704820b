// Owns softmax and cross-entropy, each with its gradient.
#pragma once

#include "core/ops/family.h"

namespace fusor {

class Expansion;

/// y = exp(x - max) / sum of exp(x - max) along `axis`, or its logarithm. A sink is one more logit of each
/// row, which takes its share and is not in y.
struct Softmax {
  int64_t axis = -1;  ///< the last one: fill_omitted() makes it 0 or more, which infer() wants
  bool log = false;

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& field) {
    field("axis", self.axis);
    field("log", self.log);
  }

  static constexpr Nature nature = Nature::composite;
  static constexpr size_t typed_by = 1;
  std::string_view kind() const { return "softmax"; }
  Roles roles() const;
  std::vector<Inferred> infer(const Call& call) const;
  void expand(Expansion& e) const;
  friend bool operator==(const Softmax&, const Softmax&) = default;
};

/// dx = y * (dy - sum of dy * y) along `axis`; of the log form dy - exp(y) * sum of dy. y is the forward
/// result. dsink needs the sink and the forward's logsumexp.
struct SoftmaxBackward {
  int64_t axis = -1;  ///< the last one: fill_omitted() makes it 0 or more, which infer() wants
  bool log = false;

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& field) {
    field("axis", self.axis);
    field("log", self.log);
  }

  static constexpr Nature nature = Nature::composite;
  static constexpr size_t typed_by = 1;
  std::string_view kind() const { return "softmax_bwd"; }
  Roles roles() const;
  std::vector<Inferred> infer(const Call& call) const;
  void expand(Expansion& e) const;
  friend bool operator==(const SoftmaxBackward&, const SoftmaxBackward&) = default;
};

/// The attributes of both directions of cross-entropy. The target of a row is 1 - label_smoothing at its
/// label, and label_smoothing spread evenly over all classes. Rows whose label is ignore_index count for
/// nothing.
struct CrossEntropyAttributes {
  int64_t axis = -1;  ///< the last one: fill_omitted() makes it 0 or more, which infer() wants
  double label_smoothing = 0;
  int64_t ignore_index = -100;

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& field) {
    field("axis", self.axis);
    field("label_smoothing", self.label_smoothing);
    field("ignore_index", self.ignore_index);
  }
  friend bool operator==(const CrossEntropyAttributes&, const CrossEntropyAttributes&) = default;
};

/// loss = logsumexp(x) - sum of target * x along `axis`, for each row.
struct CrossEntropy : CrossEntropyAttributes {
  static constexpr Nature nature = Nature::composite;
  static constexpr size_t typed_by = 1;
  std::string_view kind() const { return "cross_entropy"; }
  Roles roles() const;
  std::vector<Inferred> infer(const Call& call) const;
  void expand(Expansion& e) const;
  friend bool operator==(const CrossEntropy&, const CrossEntropy&) = default;
};

/// dx = dloss * (softmax(x) - target). Without the forward's logsumexp it is computed again.
struct CrossEntropyBackward : CrossEntropyAttributes {
  static constexpr Nature nature = Nature::composite;
  static constexpr size_t typed_by = 1;
  std::string_view kind() const { return "cross_entropy_bwd"; }
  Roles roles() const;
  std::vector<Inferred> infer(const Call& call) const;
  void expand(Expansion& e) const;
  friend bool operator==(const CrossEntropyBackward&, const CrossEntropyBackward&) = default;
};

}  // namespace fusor
