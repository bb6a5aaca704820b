// Owns the random ops over windows and places: causal convolution, resampling, lrn, grid_sample.
#pragma once

#include "tools/fuzz/families/proposer.h"

namespace fusor::fuzz {

/// The operands from x on.
inline std::vector<int> causal_operands(Draft& draft, int x) {
  Random& random = draft.random;
  const Dims dims = draft.tensor(x).dims;
  const int64_t width = random.between(1, 5);
  std::vector<int> inputs{x, draft.operand_of({dims[1], width}), draft.optional_operand_of({dims[1]})};
  if (width > 1 && random.once_in(3))
    inputs.push_back(draft.operand_of({dims[0], dims[1], width - 1}, draft.tensor(x).type));
  return inputs;
}

template <>
struct Proposer<CausalConv1d> {
  static constexpr int kShare = 1;

  static std::optional<Proposal> propose(Draft& draft) {
    const auto activation = draft.random.pick({CausalActivation::none, CausalActivation::silu});
    return Proposal{CausalConv1d{activation}, causal_operands(draft, draft.operand(3, 3)), {}};
  }
};

template <>
struct Proposer<CausalConv1dBackward> {
  static constexpr int kShare = 1;

  static std::optional<Proposal> propose(Draft& draft) {
    const auto activation = draft.random.pick({CausalActivation::none, CausalActivation::silu});
    std::vector<int> inputs = causal_operands(draft, draft.operand(3, 3));
    inputs.insert(inputs.begin(), draft.operand_of(draft.tensor(inputs[0]).dims));
    return Proposal{CausalConv1dBackward{activation}, inputs, {}};
  }
};

inline Dims pooled_dims(Random& random, ResampleAttributes& op, const Dims& x) {
  Dims y{x[0], x[1]};
  for (int i = 2; i < x.rank(); ++i) {
    const int64_t window = random.between(1, 4), pre = random.below(window), post = random.below(window);
    op.window.push_back(window);
    op.stride.push_back(random.between(1, 3));
    op.pre_padding.push_back(pre);
    op.post_padding.push_back(post);
    const int64_t rest = x[i] + pre + post - window;
    y.push_back(rest < 0 ? 0 : rest / op.stride.back() + 1);
  }
  return y;
}

inline Dims resampled_dims(Random& random, ResampleAttributes& op, const Dims& x) {
  op.mode = static_cast<ResampleMode>(random.below(enum_count(op.mode)));
  if (op.pools()) return pooled_dims(random, op, x);
  Dims y{x[0], x[1]};
  for (int i = 2; i < x.rank(); ++i) {
    const int64_t size = random.between(1, 2 * x[i]);
    y.push_back(size);
    op.output_size.push_back(size);
    op.step.push_back(2 * x[i]);
    op.shift.push_back(random.pick<int64_t>({0, x[i] - size}));
    op.denominator.push_back(2 * size);
  }
  return y;
}

template <>
struct Proposer<ResampleForward> {
  static constexpr int kShare = 3;

  static std::optional<Proposal> propose(Draft& draft) {
    const int x = draft.operand(3, 5);
    ResampleForward op;
    resampled_dims(draft.random, op, draft.tensor(x).dims);
    return Proposal{op, {x}, {}};
  }
};

template <>
struct Proposer<ResampleBackward> {
  static constexpr int kShare = 2;

  static std::optional<Proposal> propose(Draft& draft) {
    const int x = draft.operand(3, 5);
    const Dims dims = draft.tensor(x).dims;
    ResampleBackward op;
    const Dims y = resampled_dims(draft.random, op, dims);
    if (std::ranges::find(y, 0) != y.end() || element_count(y) > draft.limits().elements) return std::nullopt;
    const int dy = draft.operand_of(y);
    if (op.mode == ResampleMode::maxpool && draft.random.once_in(3))
      return Proposal{op, {dy, -1, draft.operand_of(y, DataType::i32)}, dims};
    if (op.mode != ResampleMode::maxpool && draft.random.once_in(2)) return Proposal{op, {dy}, dims};
    return Proposal{op, {dy, x}, dims};
  }
};

template <>
struct Proposer<LrnForward> {
  static constexpr int kShare = 1;

  static std::optional<Proposal> propose(Draft& draft) {
    const LrnForward op{{.window = draft.random.between(1, 6), .alpha = draft.random.pick({1e-4, 0.5})}};
    return Proposal{op, {draft.operand(2, 7)}, {}};
  }
};

template <>
struct Proposer<LrnBackward> {
  static constexpr int kShare = 1;

  static std::optional<Proposal> propose(Draft& draft) {
    const LrnBackward op{{.window = draft.random.between(1, 6), .alpha = draft.random.pick({1e-4, 0.5})}};
    const int x = draft.operand(2, 7);
    return Proposal{op, {draft.operand_of(draft.tensor(x).dims), x}, {}};
  }
};

template <>
struct Proposer<GridSample> {
  static constexpr int kShare = 1;

  static std::optional<Proposal> propose(Draft& draft) {
    Random& random = draft.random;
    const int x = draft.operand(4, 4);
    GridSample op;
    op.padding = random.pick({GridPadding::zeros, GridPadding::border});
    op.align_corners = random.once_in(2);
    const Dims grid{draft.tensor(x).dims[0], random.between(1, 9), random.between(1, 9), 2};
    return Proposal{op, {x, draft.operand_of(grid)}, {}};
  }
};

template <>
struct Proposer<GridSampleBackward> {
  static constexpr int kShare = 1;

  static std::optional<Proposal> propose(Draft& draft) {
    Random& random = draft.random;
    const int x = draft.operand(4, 4);
    const Dims dims = draft.tensor(x).dims;
    GridSampleBackward op;
    op.padding = random.pick({GridPadding::zeros, GridPadding::border});
    op.align_corners = random.once_in(2);
    const int64_t rows = random.between(1, 9), columns = random.between(1, 9);
    const int dy = draft.operand_of({dims[0], dims[1], rows, columns});
    return Proposal{op, {dy, x, draft.operand_of({dims[0], rows, columns, 2})}, {}};
  }
};

}  // namespace fusor::fuzz
