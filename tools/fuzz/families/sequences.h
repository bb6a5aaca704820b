// Owns the random ops over sequences, and those of random numbers, blocks with scales, pages and ragged
// tensors.
#pragma once

#include <algorithm>

#include "tools/fuzz/families/proposer.h"

namespace fusor::fuzz {

/// Appends the weights of every layer and direction, for inputs of so many features: none is above 1, so that
/// slopes stay small.
inline void append_weights(Draft& draft, const RnnAttributes& op, int64_t features,
                           std::vector<int>& inputs) {
  const DataType type = draft.tensor(inputs[0]).type;
  const auto append = [&](const Dims& dims) { inputs.push_back(draft.new_input(dims, type, Filling::unit)); };
  const int64_t rows = op.gates() * op.hidden_size;
  for (int64_t stack = 0; stack < op.layers * op.directions(); ++stack) {
    const bool first = stack < op.directions();
    append({rows, first ? features : op.directions() * op.output_size()});
    append({rows, op.output_size()});
    if (op.bias)
      for (int i = 0; i < 2; ++i) append({rows});
    if (op.projection_size > 0) append({op.projection_size, op.hidden_size});
  }
}

template <>
struct Proposer<RnnForward> {
  static constexpr int kShare = 1;

  static std::optional<Proposal> propose(Draft& draft) {
    Random& random = draft.random;
    RnnForward op;
    op.cell = static_cast<RnnCell>(random.below(enum_count(op.cell)));
    op.hidden_size = random.between(2, 9);
    op.layers = random.between(1, 2);
    op.bidirectional = random.once_in(3);
    op.bias = random.once_in(2);
    if (op.cell == RnnCell::lstm && random.once_in(3))
      op.projection_size = random.between(1, op.hidden_size - 1);
    const Dims x{random.between(1, 4), random.between(1, 5), random.between(1, 9)};
    const int64_t stacks = op.layers * op.directions();
    std::vector<int> inputs{draft.operand_of(x), draft.optional_operand_of({stacks, x[1], op.output_size()})};
    if (op.cell == RnnCell::lstm) inputs.push_back(draft.optional_operand_of({stacks, x[1], op.hidden_size}));
    inputs.push_back(random.once_in(2) ? draft.operand_of({x[1]}, DataType::i32) : -1);
    append_weights(draft, op, x[2], inputs);
    return Proposal{op, inputs, {}};
  }
};

/// Short and narrow: its slopes grow with every step.
template <>
struct Proposer<RnnBackward> {
  static constexpr int kShare = 1;

  static std::optional<Proposal> propose(Draft& draft) {
    Random& random = draft.random;
    RnnBackward op;
    op.cell = static_cast<RnnCell>(random.below(enum_count(op.cell)));
    op.hidden_size = random.between(2, 3);
    op.bidirectional = random.once_in(3);
    op.bias = random.once_in(2);
    if (op.cell == RnnCell::lstm && random.once_in(3)) op.projection_size = 1;
    const bool has_c = op.cell == RnnCell::lstm;
    const Dims x{random.between(1, 2), random.between(1, 4), random.between(1, 4)};
    const Dims h{op.directions(), x[1], op.output_size()}, c{op.directions(), x[1], op.hidden_size};
    std::vector<int> inputs{draft.operand_of({x[0], x[1], op.directions() * op.output_size()}),
                            draft.operand_of(x), draft.optional_operand_of(h)};
    if (has_c) inputs.push_back(draft.optional_operand_of(c));
    inputs.push_back(random.once_in(2) ? draft.operand_of({x[1]}, DataType::i32) : -1);
    inputs.push_back(draft.optional_operand_of(h));
    if (has_c) inputs.push_back(draft.optional_operand_of(c));
    append_weights(draft, op, x[2], inputs);
    return Proposal{op, inputs, {}};
  }
};

/// A part of the recurrent layers, whose graphs have it.
template <>
struct Proposer<Recurrence> {
  static constexpr int kShare = 0;

  static std::optional<Proposal> propose(Draft&) { return std::nullopt; }
};

/// Labels of a random graph may name no class: unit tests have this one.
template <>
struct Proposer<CtcLoss> {
  static constexpr int kShare = 0;

  static std::optional<Proposal> propose(Draft&) { return std::nullopt; }
};

/// An integer of one element.
inline int seed_of(Draft& draft) {
  return draft.random.once_in(2) ? draft.new_scalar(DataType::i64) : draft.operand_of({1}, DataType::i32);
}

template <>
struct Proposer<Rng> {
  static constexpr int kShare = 1;

  static std::optional<Proposal> propose(Draft& draft) {
    Random& random = draft.random;
    Rng op = random.pick(Rng::kinds());
    if (op.distribution == Distribution::bernoulli) op.probability = random.pick({0.0, 0.125, 0.5, 1.0});
    if (op.distribution == Distribution::uniform) op.low = random.pick({0.0, -1.0});
    if (op.distribution == Distribution::normal) op.deviation = random.pick({1.0, 0.25});
    const Dims dims = draft.tensor(draft.operand()).dims;
    return Proposal{op, {seed_of(draft), seed_of(draft)}, dims};
  }
};

template <>
struct Proposer<Dropout> {
  static constexpr int kShare = 1;

  static std::optional<Proposal> propose(Draft& draft) {
    const Dropout op{draft.random.pick({0.0, 0.1, 0.5})};
    return Proposal{op, {draft.operand(), seed_of(draft), seed_of(draft)}, {}};
  }
};

/// To powers of two: other scales differ by a rounding where a run does, and all of their block with them.
template <>
struct Proposer<BlockScaleQuantize> {
  static constexpr int kShare = 1;

  static std::optional<Proposal> propose(Draft& draft) {
    const int x = draft.operand();
    BlockScaleQuantize op;
    op.axis = draft.random.below(draft.tensor(x).dims.rank());
    op.block_size = draft.random.between(1, 9);
    op.y_type = draft.random.pick({DataType::f8_e4m3, DataType::f8_e5m2, DataType::f4_e2m1});
    return Proposal{op, {x}, {}};
  }
};

template <>
struct Proposer<BlockScaleDequantize> {
  static constexpr int kShare = 1;

  static std::optional<Proposal> propose(Draft& draft) {
    const int x = draft.operand();
    Dims dims = draft.tensor(x).dims;
    BlockScaleDequantize op;
    op.axis = draft.random.below(dims.rank());
    op.block_size = draft.random.between(1, 9);
    int64_t& extent = dims[static_cast<int>(op.axis)];
    extent = (extent + op.block_size - 1) / op.block_size;
    return Proposal{op, {x, draft.operand_of(dims)}, {}};
  }
};

template <>
struct Proposer<PagedCacheLoad> {
  static constexpr int kShare = 1;

  static std::optional<Proposal> propose(Draft& draft) {
    Random& random = draft.random;
    const int container = draft.operand(4, 4);
    const Dims dims = draft.tensor(container).dims;
    const int64_t batch = random.between(1, 3), pages = random.between(1, 4);
    const int table = draft.operand_of({batch, 1, pages, 1}, DataType::i32);
    const int lengths = random.once_in(2) ? draft.operand_of({batch, 1, 1, 1}, DataType::i32) : -1;
    const PagedCacheLoad op{random.once_in(2) ? 0 : random.between(1, pages * dims[2])};
    return Proposal{op, {container, table, lengths}, {}};
  }
};

template <>
struct Proposer<RaggedLoad> {
  static constexpr int kShare = 1;

  static std::optional<Proposal> propose(Draft& draft) {
    Random& random = draft.random;
    const int x = draft.operand(1, 1);
    const Dims dims = draft.dims(static_cast<int>(random.between(2, 4)), draft.limits().elements);
    Dims strides = packed_strides(dims);
    strides.erase(0);
    return Proposal{RaggedLoad{strides}, {x, draft.operand_of({dims[0] + 1}, DataType::i32)}, dims};
  }
};

template <>
struct Proposer<RaggedStore> {
  static constexpr int kShare = 1;

  static std::optional<Proposal> propose(Draft& draft) {
    const int x = draft.operand(2);
    const Dims dims = draft.tensor(x).dims;
    Dims strides = packed_strides(dims);
    strides.erase(0);
    const int offset = draft.operand_of({dims[0] + 1}, draft.random.pick({DataType::i32, DataType::i64}));
    return Proposal{RaggedStore{strides}, {x, offset}, {draft.random.between(1, 200)}};
  }
};

template <>
struct Proposer<MatmulLengths> {
  static constexpr int kShare = 1;

  static std::optional<Proposal> propose(Draft& draft) {
    Random& random = draft.random;
    const int a = draft.operand(2);
    const Dims dims = draft.tensor(a).dims;
    Dims b = dims, lengths = dims;
    b[b.rank() - 2] = dims.back();
    b[b.rank() - 1] = random.between(1, 16);
    lengths[dims.rank() - 2] = lengths[dims.rank() - 1] = 1;
    if (element_count(b) > draft.limits().elements) return std::nullopt;
    std::vector<int> inputs{a, draft.operand_of(b, draft.tensor(a).type)};
    for (int i = 0; i < 3; ++i)
      inputs.push_back(random.once_in(2) ? draft.operand_of(lengths, DataType::i32) : -1);
    return Proposal{MatmulLengths{random.pick({0.0, -1.0})}, inputs, {}};
  }
};

template <>
struct Proposer<MoeGroupedMatmul> {
  static constexpr int kShare = 1;

  static std::optional<Proposal> propose(Draft& draft) {
    Random& random = draft.random;
    const int tokens = draft.operand(2, 2);
    const Dims dims = draft.tensor(tokens).dims;
    const int64_t experts = random.between(1, 4), n = random.between(1, 9);
    MoeGroupedMatmul op{random.pick({TokenMode::none, TokenMode::gather, TokenMode::scatter}),
                        random.between(1, 3)};
    if (dims[0] * std::max(dims[0], experts * n) > draft.limits().elements) return std::nullopt;
    std::vector<int> inputs{tokens, draft.operand_of({experts, dims[1], n}, draft.tensor(tokens).type),
                            draft.operand_of({experts, 1, 1}, DataType::i32)};
    const int64_t rows = op.mode == TokenMode::scatter ? dims[0] : random.between(1, 20);
    if (op.mode != TokenMode::none) inputs.push_back(draft.operand_of({rows}, DataType::i32));
    return Proposal{op, inputs, {}};
  }
};

}  // namespace fusor::fuzz
