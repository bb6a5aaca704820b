// Owns the random ops of every family. A family without a Proposer does not compile.
#include "tools/fuzz/op_families.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/infer.h"

namespace fusor::fuzz {

namespace {

template <class Family>
struct Proposer;  // specialise it below for a new family

/// Dims that broadcast against `dims`, some axes of one element, some leading axes left out.
Dims broadcast_of(Random& random, const Dims& dims) {
  Dims some = dims;
  if (random.once_in(2)) return some;
  for (int64_t& extent : some)
    if (random.once_in(2)) extent = 1;
  while (some.rank() > 1 && random.once_in(3)) some.erase(0);
  return some;
}

template <>
struct Proposer<Pointwise> {
  static constexpr int kShare = 10;

  static void set_parameters(Random& random, Pointwise& op) {
    if (random.once_in(2)) return;
    if (op.mode == PointwiseMode::relu || op.mode == PointwiseMode::relu_bwd) {
      op.lower_clip = random.pick({0.0, -0.5, 0.25});
      op.upper_clip = random.pick({op.upper_clip, 1.0, 6.0});
      op.lower_clip_slope = random.pick({0.0, 0.25, 1.0});
    }
    if (op.has("elu_alpha")) op.elu_alpha = random.pick({1.0, 0.5, 1.1});
    if (op.has("softplus_beta")) op.softplus_beta = random.pick({1.0, 2.0, 0.5});
    if (op.has("swish_beta")) op.swish_beta = random.pick({1.0, 1.5, 0.5});
  }

  static int other_operand(Draft& draft, const Dims& dims) {
    if (draft.random.once_in(6)) return draft.new_scalar(draft.type());
    return draft.operand_of(broadcast_of(draft.random, dims));
  }

  static std::optional<Proposal> propose(Draft& draft) {
    Random& random = draft.random;
    Pointwise op;
    op.mode = static_cast<PointwiseMode>(random.below(pointwise_mode_count()));
    set_parameters(random, op);
    std::vector<int> inputs{draft.operand()};
    const Dims dims = draft.tensor(inputs[0]).dims;
    for (int i = 1; i < info(op.mode).inputs; ++i) inputs.push_back(other_operand(draft, dims));
    std::swap(inputs[0], inputs[static_cast<size_t>(random.below(info(op.mode).inputs))]);
    if (op.mode == PointwiseMode::gen_index) op.axis = random.below(dims.rank());
    op.compute = draft.compute_for(op, inputs);
    return Proposal{op, inputs, {}};
  }
};

template <>
struct Proposer<Reduction> {
  static constexpr int kShare = 4;

  static std::optional<Proposal> propose(Draft& draft) {
    Random& random = draft.random;
    Reduction op;
    op.mode = static_cast<ReductionMode>(random.below(reduction_mode_count()));
    const int x = draft.operand();
    Dims dims = draft.tensor(x).dims;
    for (int64_t& extent : dims) {
      if (random.once_in(2)) extent = 1;
      if (random.once_in(4) && extent > 1) {
        std::vector<int64_t> divisors;
        for (int64_t d = 1; d < extent; ++d)
          if (extent % d == 0) divisors.push_back(d);
        extent = random.pick(divisors);
      }
    }
    op.compute = draft.compute_for(op, {x});
    return Proposal{op, {x}, dims};
  }
};

template <>
struct Proposer<Matmul> {
  static constexpr int kShare = 4;

  static std::optional<Proposal> propose(Draft& draft) {
    Random& random = draft.random;
    const int known = draft.operand(2);
    const Dims& dims = draft.tensor(known).dims;
    const bool is_a = random.once_in(2);
    const int64_t rows = dims[dims.rank() - 2], columns = dims.back();
    const int64_t k = is_a ? columns : rows;
    int64_t free = draft.extent();
    if (element_count(dims) / k * k * free > draft.limits().multiply_adds()) free = random.between(1, 8);
    Dims batch({dims.begin(), static_cast<size_t>(dims.rank() - 2)});
    Dims other = batch.empty() ? batch : broadcast_of(random, batch);
    if (!batch.empty() && random.once_in(3)) other = Dims{};
    if (other.rank() > kMaxRank - 2) return std::nullopt;
    other.push_back(is_a ? k : free);
    other.push_back(is_a ? free : k);
    if (element_count(other) > draft.limits().elements) return std::nullopt;
    std::optional<DataType> type;
    if (random.percent(70)) type = draft.tensor(known).type;
    const int found = draft.operand_of(other, type);
    const std::vector<int> inputs = is_a ? std::vector{known, found} : std::vector{found, known};
    return Proposal{Matmul{draft.compute_for(Matmul{}, inputs)}, inputs, {}};
  }
};

template <>
struct Proposer<Conv> {
  static constexpr int kShare = 4;

  /// The window, and what x has behind `dy` where that is known; nothing where no x is.
  struct Spatial {
    Dims window, x;
  };

  static Spatial windows(Draft& draft, Conv& op, const Dims& known) {
    Random& random = draft.random;
    Spatial spatial;
    for (int i = 2; i < known.rank(); ++i) {
      const int64_t pre = random.once_in(2) ? random.between(0, 3) : 0;
      const int64_t post = random.once_in(3) ? random.between(0, 3) : pre;
      const int64_t dilation = random.once_in(4) ? random.between(2, 3) : 1;
      const int64_t stride = random.once_in(3) ? random.between(2, 4) : 1;
      int64_t window = random.pick<int64_t>({1, 1, 3, 3, 2, 4, 5, 7});
      int64_t x = known[i];
      if (op.pass == ConvPass::fprop) {
        window = std::min(window, (x + pre + post - 1) / dilation + 1);
      } else {
        x = (known[i] - 1) * stride + dilation * (window - 1) + 1 - pre - post + random.below(stride);
      }
      op.pre_padding.push_back(pre);
      op.post_padding.push_back(post);
      op.stride.push_back(stride);
      op.dilation.push_back(dilation);
      spatial.window.push_back(window);
      spatial.x.push_back(x);
    }
    return spatial;
  }

  static Dims joined(int64_t n, int64_t c, const Dims& spatial) {
    Dims dims{n, c};
    for (const int64_t extent : spatial) dims.push_back(extent);
    return dims;
  }

  static std::optional<Proposal> propose(Draft& draft) {
    Random& random = draft.random;
    Conv op;
    op.pass = random.pick({ConvPass::fprop, ConvPass::dgrad, ConvPass::wgrad});
    op.mode = random.once_in(4) ? ConvMode::convolution : ConvMode::cross_correlation;
    const int first = draft.operand(3, 5);
    const Dims known = draft.tensor(first).dims;
    const Spatial spatial = windows(draft, op, known);
    if (std::ranges::any_of(spatial.x, [](int64_t extent) { return extent < 1; })) return std::nullopt;
    // The channels that are known are C of fprop, K of the others.
    std::vector<int64_t> divisors{1, 1, 1, known[1]};
    for (int64_t d = 2; d < known[1]; ++d)
      if (known[1] % d == 0) divisors.push_back(d);
    const int64_t groups = random.pick(divisors);
    const int64_t each = groups > 1 && random.once_in(2) ? 1 : std::min<int64_t>(draft.extent(), 64);
    const int64_t other = groups * each;
    const int64_t c = op.pass == ConvPass::fprop ? known[1] : other;
    const int64_t k = op.pass == ConvPass::fprop ? other : known[1];
    const Dims w = joined(k, c / groups, spatial.window), x = joined(known[0], c, spatial.x);
    if (element_count(w) > draft.limits().elements || element_count(x) > draft.limits().elements)
      return std::nullopt;
    if (static_cast<double>(element_count(op.pass == ConvPass::fprop ? x : known)) *
            static_cast<double>(element_count(w)) / static_cast<double>(op.pass == ConvPass::fprop ? c : k) >
        static_cast<double>(draft.limits().multiply_adds()))
      return std::nullopt;
    std::optional<DataType> type;
    if (random.percent(70)) type = draft.tensor(first).type;
    const int second = draft.operand_of(op.pass == ConvPass::wgrad ? x : w, type);
    op.compute = draft.compute_for(op, {first, second});
    const Dims given = op.pass == ConvPass::dgrad ? x : op.pass == ConvPass::wgrad ? w : Dims{};
    return Proposal{op, {first, second}, given};
  }
};

template <>
struct Proposer<Reshape> {
  static constexpr int kShare = 2;

  static std::optional<Proposal> propose(Draft& draft) {
    Random& random = draft.random;
    const int x = draft.operand();
    Dims dims = draft.tensor(x).dims;
    for (int64_t changes = random.between(1, 4); changes > 0; --changes) {
      const int axis = static_cast<int>(random.below(dims.rank()));
      if (random.once_in(2) && axis + 1 < dims.rank()) {
        dims[axis] *= dims[axis + 1];
        dims.erase(axis + 1);
      } else if (dims.rank() < kMaxRank) {
        std::vector<int64_t> divisors;
        for (int64_t d = 1; d <= dims[axis]; ++d)
          if (dims[axis] % d == 0) divisors.push_back(d);
        const int64_t inner = random.pick(divisors);
        dims[axis] /= inner;
        dims.insert(axis + 1, inner);
      }
    }
    return Proposal{Reshape{}, {x}, dims};
  }
};

template <>
struct Proposer<Transpose> {
  static constexpr int kShare = 2;

  static std::optional<Proposal> propose(Draft& draft) {
    const int x = draft.operand();
    Transpose op;
    op.permutation = draft.tensor(x).dims;
    std::iota(op.permutation.begin(), op.permutation.end(), 0);
    for (int i = op.permutation.rank(); i > 1; --i)
      std::swap(op.permutation[i - 1], op.permutation[static_cast<int>(draft.random.below(i))]);
    return Proposal{op, {x}, {}};
  }
};

template <>
struct Proposer<Slice> {
  static constexpr int kShare = 2;

  static std::optional<Proposal> propose(Draft& draft) {
    Random& random = draft.random;
    const int x = draft.operand();
    Slice op;
    for (const int64_t extent : draft.tensor(x).dims) {
      const bool whole = random.once_in(2);
      op.start.push_back(whole ? 0 : random.below(extent));
      op.limit.push_back(whole ? extent : random.between(op.start.back() + 1, extent));
      op.step.push_back(random.once_in(4) ? random.between(1, 3) : 1);
    }
    return Proposal{op, {x}, {}};
  }
};

template <>
struct Proposer<Concatenate> {
  static constexpr int kShare = 2;

  static std::optional<Proposal> propose(Draft& draft) {
    Random& random = draft.random;
    std::vector<int> inputs{draft.operand()};
    const DataType type = draft.tensor(inputs[0]).type;
    const Dims dims = draft.tensor(inputs[0]).dims;
    const int64_t axis = random.below(dims.rank());
    for (int64_t more = random.below(4); more > 0; --more) {
      Dims next = dims;
      if (random.once_in(2)) next[static_cast<int>(axis)] = random.between(1, 9);
      if (element_count(next) > draft.limits().elements) return std::nullopt;
      inputs.push_back(draft.operand_of(next, type));
    }
    std::swap(inputs[0], inputs.back());
    return Proposal{Concatenate{axis}, inputs, {}};
  }
};

template <>
struct Proposer<Gather> {
  static constexpr int kShare = 2;

  static std::optional<Proposal> propose(Draft& draft) {
    Random& random = draft.random;
    const int x = draft.operand();
    Dims dims = draft.tensor(x).dims, index = dims;
    const int axis = static_cast<int>(random.below(dims.rank()));
    for (int64_t& extent : index)
      if (random.once_in(2)) extent = 1;
    index[axis] = random.between(1, 9);
    for (int i = 0; i < dims.rank(); ++i)
      if (i != axis && dims[i] == 1 && random.once_in(4)) index[i] = random.between(1, 4);
    for (int i = 0; i < dims.rank(); ++i) dims[i] = std::max(i == axis ? 1 : dims[i], index[i]);
    if (element_count(dims) > draft.limits().elements) return std::nullopt;
    const DataType type = random.once_in(4) ? DataType::i64 : DataType::i32;
    return Proposal{Gather{axis}, {x, draft.operand_of(index, type)}, {}};
  }
};

/// x's dims with 1 along the axis.
Dims reduced(Dims dims, int64_t axis) {
  dims[static_cast<int>(axis)] = 1;
  return dims;
}

DataType label_type(Random& random) { return random.pick({DataType::i32, DataType::i64, DataType::i8}); }

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

CrossEntropyAttributes cross_entropy_of(Random& random, const Dims& x) {
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
void choose_norm(Random& random, Op& op, const Dims& x) {
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
Dims statistics_of(const Op& op, Dims x) {
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

Dims channels_of(Dims dims) {
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

/// The operands from x on.
std::vector<int> causal_operands(Draft& draft, int x) {
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

Dims pooled_dims(Random& random, ResampleAttributes& op, const Dims& x) {
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

Dims resampled_dims(Random& random, ResampleAttributes& op, const Dims& x) {
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
    const int64_t rows = op.gates() * op.hidden_size;
    for (int64_t stack = 0; stack < stacks; ++stack) {
      const bool first = stack < op.directions();
      inputs.push_back(draft.operand_of({rows, first ? x[2] : op.directions() * op.output_size()}));
      inputs.push_back(draft.operand_of({rows, op.output_size()}));
      if (op.bias) inputs.insert(inputs.end(), {draft.operand_of({rows}), draft.operand_of({rows})});
      if (op.projection_size > 0) inputs.push_back(draft.operand_of({op.projection_size, op.hidden_size}));
    }
    return Proposal{op, inputs, {}};
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

/// Families whose results are too steep for random graphs.
struct NotProposed {
  static constexpr int kShare = 0;

  static std::optional<Proposal> propose(Draft&) { return std::nullopt; }
};
template <>
struct Proposer<RnnBackward> : NotProposed {};
template <>
struct Proposer<GridSampleBackward> : NotProposed {};
template <>
struct Proposer<CtcLoss> : NotProposed {};

/// An integer of one element.
int seed_of(Draft& draft) {
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

/// Scales differ by a rounding where a run does, and all of their block with them: unit tests have these.
template <>
struct Proposer<BlockScaleQuantize> {
  static constexpr int kShare = 0;

  static std::optional<Proposal> propose(Draft&) { return std::nullopt; }
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

/// Masks under which every query has a key.
SdpaAttributes attention_of(Random& random, int64_t depth) {
  SdpaAttributes op;
  op.attn_scale = random.pick({1.0, 0.25, 1 / std::sqrt(static_cast<double>(depth))});
  if (random.once_in(2)) op.right_bound = random.between(0, 3);
  if (random.once_in(4)) op.alibi_mask = true;
  return op;
}

/// q, k and v of one attention; nothing where they would be too large.
std::optional<std::vector<int>> attention_operands(Draft& draft, const SdpaAttributes& op, int q) {
  Random& random = draft.random;
  const Dims dims = draft.tensor(q).dims;
  const int64_t heads = random.pick<int64_t>({dims[1], 1}), keys = random.between(1, 40);
  Dims k{dims[0], heads, keys, dims[3]}, v = k;
  v[3] = random.between(1, 16);
  Dims scores{dims[0], dims[1], dims[2], keys};
  const bool is_far = op.alibi_mask && std::max(dims[2], keys) > 8;
  if (is_far || element_count(scores) > draft.limits().elements ||
      element_count(k) > draft.limits().elements || element_count(v) > draft.limits().elements)
    return std::nullopt;
  return std::vector{q, draft.operand_of(k, draft.tensor(q).type), draft.operand_of(v, draft.tensor(q).type)};
}

template <>
struct Proposer<SdpaForward> {
  static constexpr int kShare = 2;

  static std::optional<Proposal> propose(Draft& draft) {
    Random& random = draft.random;
    const int q = draft.operand(4, 4);
    const SdpaForward op{attention_of(random, draft.tensor(q).dims[3])};
    auto inputs = attention_operands(draft, op, q);
    if (!inputs) return std::nullopt;
    const Dims dims = draft.tensor(q).dims;
    const Dims scores{dims[0], dims[1], dims[2], draft.tensor((*inputs)[1]).dims[2]};
    inputs->push_back(random.once_in(3) ? draft.operand_of(broadcast_of(random, scores)) : -1);
    return Proposal{op, *inputs, {}};
  }
};

template <>
struct Proposer<SdpaBackward> {
  static constexpr int kShare = 1;

  static std::optional<Proposal> propose(Draft& draft) {
    const int q = draft.operand(4, 4);
    const Dims dims = draft.tensor(q).dims;
    const SdpaBackward op{attention_of(draft.random, dims[3])};
    auto inputs = attention_operands(draft, op, q);
    if (!inputs) return std::nullopt;
    const Dims o{dims[0], dims[1], dims[2], draft.tensor((*inputs)[2]).dims[3]};
    for (int i = 0; i < 2; ++i) inputs->push_back(draft.operand_of(o));
    inputs->push_back(draft.operand_of({dims[0], dims[1], dims[2], 1}));
    return Proposal{op, *inputs, {}};
  }
};

/// Families of programs that use the library: there are none to propose.
template <>
struct Proposer<Composite> {
  static constexpr int kShare = 0;

  static std::optional<Proposal> propose(Draft&) { return std::nullopt; }
};

template <size_t... I>
constexpr auto rows(std::index_sequence<I...>) {
  return std::array{OpFamily{Proposer<std::variant_alternative_t<I, Attributes>>::kShare,
                             &Proposer<std::variant_alternative_t<I, Attributes>>::propose}...};
}

constexpr auto kFamilies = rows(std::make_index_sequence<std::variant_size_v<Attributes>>());

}  // namespace

std::span<const OpFamily> op_families() { return kFamilies; }

}  // namespace fusor::fuzz
