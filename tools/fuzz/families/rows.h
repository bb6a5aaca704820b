// Owns the random ops over rows: softmax, cross-entropy, norms and their statistics.
#pragma once

#include <algorithm>

#include "tools/fuzz/families/proposer.h"

namespace fusor::fuzz {

/// x's dims with 1 along the axis.
inline Dims reduced(Dims dims, int64_t axis) {
  dims[static_cast<int>(axis)] = 1;
  return dims;
}

inline DataType label_type(Random& random) {
  return random.pick({DataType::i32, DataType::i64, DataType::i8});
}

template <>
struct Proposer<Softmax> {
  static constexpr int kShare = 2;

  static std::optional<Proposal> propose(Draft& draft) {
    Random& random = draft.random;
    const int x = draft.operand();
    const Dims dims = draft.tensor(x).dims;
    const Softmax op{.axis = random.below(dims.rank()), .log = random.once_in(3)};
    const int sink = random.once_in(4) ? draft.operand_of(broadcast_of(random, reduced(dims, op.axis))) : -1;
    return Proposal{op, {x, sink}, {}};
  }
};

template <>
struct Proposer<SoftmaxBackward> {
  static constexpr int kShare = 1;

  static std::optional<Proposal> propose(Draft& draft) {
    Random& random = draft.random;
    const int y = draft.operand();
    const Dims dims = draft.tensor(y).dims;
    const SoftmaxBackward op{.axis = random.below(dims.rank()), .log = random.once_in(3)};
    const Dims rows = reduced(dims, op.axis);
    std::vector<int> inputs{draft.operand_of(dims), y};
    if (random.once_in(3))
      inputs.insert(inputs.end(), {draft.operand_of(broadcast_of(random, rows)), draft.operand_of(rows)});
    return Proposal{op, inputs, {}};
  }
};

inline CrossEntropyAttributes cross_entropy_of(Random& random, const Dims& x) {
  return {.axis = random.below(x.rank()),
          .label_smoothing = random.pick({0.0, 0.0, 0.125}),
          .ignore_index = random.pick<int64_t>({-100, 0, 1})};
}

template <>
struct Proposer<CrossEntropy> {
  static constexpr int kShare = 1;

  static std::optional<Proposal> propose(Draft& draft) {
    const int x = draft.operand();
    const CrossEntropy op{cross_entropy_of(draft.random, draft.tensor(x).dims)};
    const Dims rows = reduced(draft.tensor(x).dims, op.axis);
    return Proposal{op, {x, draft.operand_of(rows, label_type(draft.random))}, {}};
  }
};

template <>
struct Proposer<CrossEntropyBackward> {
  static constexpr int kShare = 1;

  static std::optional<Proposal> propose(Draft& draft) {
    const int x = draft.operand();
    const CrossEntropyBackward op{cross_entropy_of(draft.random, draft.tensor(x).dims)};
    const Dims rows = reduced(draft.tensor(x).dims, op.axis);
    const int labels = draft.operand_of(rows, label_type(draft.random));
    return Proposal{op, {x, labels, draft.operand_of(rows), draft.optional_operand_of(rows)}, {}};
  }
};

/// The attributes of both directions of a norm.
template <class Op>
inline void choose_norm(Random& random, Op& op, const Dims& x) {
  op.norm = static_cast<NormMode>(random.below(enum_count(op.norm)));
  if (random.once_in(3)) op.phase = NormPhase::inference;
  op.epsilon = random.pick({1e-3, 1e-2, 0.125});
  if (op.norm == NormMode::layer_norm || op.norm == NormMode::rms_norm ||
      op.norm == NormMode::adaptive_layer_norm) {
    for (int64_t axis = 0; axis < x.rank(); ++axis)
      if (random.once_in(2)) op.axes.push_back(axis);
    op.fill_omitted(x.rank());
  } else if (op.norm == NormMode::group_norm && x.rank() > 2) {
    std::vector<int64_t> divisors;
    for (int64_t d = 1; d <= x[1]; ++d)
      if (x[1] % d == 0) divisors.push_back(d);
    op.groups = random.pick(divisors);
  }
}

/// Dims of the statistics.
template <class Op>
inline Dims statistics_of(const Op& op, Dims x) {
  for (int i = 0; i < x.rank(); ++i) {
    const bool over = !op.axes.empty()                  ? std::ranges::find(op.axes, i) != op.axes.end()
                      : op.norm == NormMode::batch_norm ? i != 1
                                                        : i >= 2;
    if (over) x[i] = 1;
  }
  if (op.norm == NormMode::group_norm && x.rank() > 2) x[1] = op.groups;
  return x;
}

template <>
struct Proposer<NormForward> {
  static constexpr int kShare = 3;

  static std::optional<Proposal> propose(Draft& draft) {
    Random& random = draft.random;
    const int x = draft.operand(2);
    const Dims dims = draft.tensor(x).dims;
    NormForward op;
    choose_norm(random, op, dims);
    const bool is_rms = op.norm == NormMode::rms_norm;
    const Dims statistics = statistics_of(op, dims);
    std::vector<int> inputs(is_rms ? 6 : 9, -1);
    inputs[0] = x;
    if (random.percent(70)) inputs[1] = draft.operand_of(broadcast_of(random, dims));
    if (random.percent(50)) inputs[2] = draft.operand_of(broadcast_of(random, dims));
    if (op.phase == NormPhase::inference && random.once_in(2)) {
      if (!is_rms) inputs[3] = draft.operand_of(statistics);
      inputs[is_rms ? 3 : 4] = draft.operand_of(statistics);
    } else if (!is_rms && random.once_in(2)) {
      inputs[5] = draft.operand_of(statistics);
      inputs[6] = draft.operand_of(statistics);
    }
    return Proposal{op, inputs, {}};
  }
};

template <>
struct Proposer<NormBackward> {
  static constexpr int kShare = 2;

  static std::optional<Proposal> propose(Draft& draft) {
    Random& random = draft.random;
    const int x = draft.operand(2);
    const Dims dims = draft.tensor(x).dims;
    NormBackward op;
    choose_norm(random, op, dims);
    std::vector<int> inputs{draft.operand_of(dims), x};
    inputs.push_back(random.percent(70) ? draft.operand_of(broadcast_of(random, dims)) : -1);
    const bool given = random.once_in(2) || op.phase == NormPhase::inference;
    if (op.norm != NormMode::rms_norm)
      inputs.push_back(given ? draft.operand_of(statistics_of(op, dims)) : -1);
    inputs.push_back(given ? draft.operand_of(statistics_of(op, dims)) : -1);
    return Proposal{op, inputs, {}};
  }
};

inline Dims channels_of(Dims dims) {
  for (int i = 0; i < dims.rank(); ++i)
    if (i != 1) dims[i] = 1;
  return dims;
}

template <>
struct Proposer<GenStats> {
  static constexpr int kShare = 1;

  static std::optional<Proposal> propose(Draft& draft) {
    return Proposal{GenStats{}, {draft.operand(2)}, {}};
  }
};

template <>
struct Proposer<BnFinalize> {
  static constexpr int kShare = 1;

  static std::optional<Proposal> propose(Draft& draft) {
    Random& random = draft.random;
    const int sum = draft.operand();
    const Dims dims = draft.tensor(sum).dims;
    std::vector<int> inputs{sum};
    for (int i = 0; i < 3; ++i) inputs.push_back(draft.operand_of(dims));
    for (int i = 0; i < 2; ++i) inputs.push_back(draft.optional_operand_of(dims));
    return Proposal{BnFinalize{.epsilon = 0.125, .accumulation_count = random.between(1, 100)}, inputs, {}};
  }
};

template <>
struct Proposer<BnBackwardWeights> {
  static constexpr int kShare = 1;

  static std::optional<Proposal> propose(Draft& draft) {
    const int x = draft.operand(2);
    const Dims dims = draft.tensor(x).dims, channels = channels_of(dims);
    std::vector<int> inputs{draft.operand_of(dims), x};
    for (int i = 0; i < 3; ++i) inputs.push_back(draft.operand_of(channels));
    return Proposal{BnBackwardWeights{}, inputs, {}};
  }
};

}  // namespace fusor::fuzz
