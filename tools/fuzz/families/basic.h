// Owns the random ops that are no composites: pointwise, reduction, contractions, views, gather.
#pragma once

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/infer.h"
#include "tools/fuzz/families/proposer.h"

namespace fusor::fuzz {

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
    if (random.once_in(2))
      if (auto window = of_concatenation(draft)) return window;
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

  // A window over what was joined, as long as one of its parts: tokens that are shifted, a cache that slides.
  static std::optional<Proposal> of_concatenation(Draft& draft) {
    Random& random = draft.random;
    std::vector<const Op*> joined;
    for (const Op& op : draft.graph().ops)
      if (std::holds_alternative<Concatenate>(op.attributes)) joined.push_back(&op);
    if (joined.empty()) return std::nullopt;
    const Op& op = *random.pick(joined);
    const int axis = static_cast<int>(std::get<Concatenate>(op.attributes).axis);
    const Dims whole = draft.tensor(op.outputs[0]).dims, part = draft.tensor(random.pick(op.inputs)).dims;
    Slice window{Dims::filled(whole.rank(), 0), whole, Dims::filled(whole.rank(), 1)};
    window.start[axis] = random.between(0, whole[axis] - part[axis]);
    window.limit[axis] = window.start[axis] + part[axis];
    return Proposal{window, {op.outputs[0]}, {}};
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
    // Parts that nobody computes are copied.
    if (random.once_in(3)) inputs[0] = draft.new_input(dims, type);
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

/// By an index whose elements are all different, some of them outside of the extent.
template <>
struct Proposer<Scatter> {
  static constexpr int kShare = 2;

  static std::optional<Proposal> propose(Draft& draft) {
    Random& random = draft.random;
    const int x = draft.operand();
    const Dims dims = draft.tensor(x).dims;
    const int axis = static_cast<int>(random.below(dims.rank()));
    Dims index = dims, y = dims;
    for (int i = 0; i < dims.rank(); ++i) {
      if (i == axis) continue;
      if (random.once_in(2))
        index[i] = 1;
      else if (random.once_in(3))
        y[i] = 1;
    }
    y[axis] = random.between(1, 2 * element_count(index));
    const DataType type = random.once_in(4) ? DataType::i64 : DataType::i32;
    return Proposal{Scatter{axis}, {x, draft.new_input(index, type, Filling::distinct)}, {y}};
  }
};

}  // namespace fusor::fuzz
