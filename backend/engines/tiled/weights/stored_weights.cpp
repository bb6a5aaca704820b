// Owns the taking apart of a prologue of stored weights.
#include "backend/engines/tiled/weights/stored_weights.h"

#include <algorithm>
#include <array>

#include "backend/engines/contraction/product.h"
#include "backend/engines/rules.h"

namespace fusor {

namespace {

constexpr std::array kStoredTypes{DataType::i8,      DataType::u8, DataType::f8_e4m3,
                                  DataType::f8_e5m2, DataType::i4, DataType::f4_e2m1};

Refusal refuse_weights(const Fusion& fusion, std::string expected, std::string actual) {
  return refusal_at_anchor(fusion, "stored-weights", std::move(expected), std::move(actual));
}

// The axes of k: one, or two where blocks of it are an axis.
uint32_t axes_of_steps(const Expr& site, bool blocked) {
  const int last = site.domain.rank() - 1;
  return 1u << (last - 1) | (blocked ? 1u << (last - 2) : 0u);
}

bool varies(const Expr& site, const Access& access, uint32_t axes) {
  for (int axis = 0; axis < site.domain.rank(); ++axis)
    if ((axes >> axis & 1) != 0 && site.domain[axis] > 1 && access.strides[axis] != 0) return true;
  return false;
}

// The one load that differs from step to step; -1: there is none, or are several.
int load_of_weights(const Expr& site) {
  const uint32_t steps = 1u << (site.domain.rank() - 2);
  int found = -1;
  for (int i = 0; i < std::ssize(site.nodes); ++i) {
    const Node& node = site.node(i);
    if (node.kind != Node::Kind::load || !varies(site, node.access, steps)) continue;
    if (found >= 0) return -1;
    found = i;
  }
  return found;
}

// Whether all that reads the node computes in fp32.
bool is_read_in_floats(const Expr& site, int at) {
  return std::ranges::all_of(site.nodes, [&](const Node& node) {
    return std::ranges::find(node.args, at) == node.args.end() ||
           (node.kind == Node::Kind::pointwise && node.pointwise.compute == DataType::f32);
  });
}

// A load, which the kernel makes, becomes what the site is handed.
Expr hand_over(Expr& ops, int at, int input, DataType type) {
  Expr load;
  load.domain = ops.domain;
  load.nodes = {ops.node(at)};
  load.yields = {0};
  Node& node = ops.node(at);
  node.kind = Node::Kind::input;
  node.input = input;
  node.type = type;
  node.access = {};
  return load;
}

// What is left of a node behind conversions that keep its value.
int unconverted(const Expr& ops, int at, DataType element) {
  for (;;) {
    const Node& node = ops.node(at);
    const bool keeps = node.kind == Node::Kind::pointwise && node.pointwise.mode == PointwiseMode::identity &&
                       node.pointwise.compute == DataType::f32 && has_default_parameters(node.pointwise) &&
                       (node.type == DataType::f32 || node.type == element);
    if (!keeps) return at;
    at = node.args[0];
  }
}

// The place in `held` of a node that is handed over; -1: it is computed, or the weights.
int held_at(const Expr& ops, int at, DataType element) {
  const Node& node = ops.node(unconverted(ops, at, element));
  return node.kind == Node::Kind::input ? node.input - 1 : -1;
}

bool is_op(const Node& node, PointwiseMode mode, DataType element) {
  return node.kind == Node::Kind::pointwise && node.pointwise.mode == mode &&
         node.pointwise.compute == DataType::f32 && has_default_parameters(node.pointwise) &&
         (node.type == DataType::f32 || node.type == element);
}

bool are_exact_weights(DataType stored, DataType element, bool converts_fp8) {
  if (stored == DataType::f8_e5m2) return element == DataType::f16;
  if (stored == DataType::f8_e4m3) return element == DataType::f16 && converts_fp8;
  return element == DataType::f16 || stored != DataType::u8;
}

// Differences of whole numbers: 11 bits in fp16, 8 in bf16.
bool is_exact_zero(DataType zero, DataType stored, DataType element) {
  const bool whole = stored == DataType::i8 || stored == DataType::u8 || stored == DataType::i4;
  if (!whole) return false;
  if (element == DataType::f16) return zero == DataType::i8 || zero == DataType::u8 || zero == DataType::i4;
  return zero == DataType::i4 && stored == DataType::i4;
}

bool is_exact_scale(DataType scale, DataType element) {
  return scale == element || scale == DataType::f8_e4m3 || scale == DataType::f8_e5m2 ||
         (scale == DataType::f8_e8m0 && element == DataType::bf16);
}

}  // namespace

std::optional<PairedOps> paired_ops(const StoredWeights& weights, int compute_capability) {
  constexpr int kConvertsFp8 = 89;
  const DataType element = weights.element;
  const Expr& ops = weights.ops;
  if (!are_exact_weights(weights.type, element, compute_capability >= kConvertsFp8)) return std::nullopt;
  const auto type_of = [&](int held) { return weights.held[static_cast<size_t>(held)].nodes.front().type; };
  PairedOps found;
  int at = unconverted(ops, yielded(ops), element);
  if (const Node& node = ops.node(at); is_op(node, PointwiseMode::mul, element)) {
    const int first = held_at(ops, node.args[0], element), second = held_at(ops, node.args[1], element);
    found.scale = std::max(first, second);
    if (found.scale < 0 || !is_exact_scale(type_of(found.scale), element)) return std::nullopt;
    at = unconverted(ops, node.args[first < 0 ? 0 : 1], element);
  }
  if (const Node& node = ops.node(at); is_op(node, PointwiseMode::sub, element)) {
    found.zero = held_at(ops, node.args[1], element);
    if (found.zero < 0 || !is_exact_zero(type_of(found.zero), weights.type, element)) return std::nullopt;
    at = unconverted(ops, node.args[0], element);
  }
  const bool is_weights = ops.node(at).kind == Node::Kind::input && ops.node(at).input == 0;
  const bool uses_all = std::ssize(weights.held) == (found.zero >= 0) + (found.scale >= 0);
  return is_weights && uses_all ? std::optional(found) : std::nullopt;
}

bool varies_along(const Expr& held, int axis) {
  return held.domain[axis] > 1 && held.nodes.front().access.strides[axis] != 0;
}

std::variant<StoredWeights, Refusal> stored_weights_of(const Fusion& fusion, const Dims& batch) {
  const Dims& whole = fusion.anchors[0].operands[1].whole;
  const bool blocked = !whole.empty();
  StoredWeights weights;
  const Expr& site = operand_site(fusion, 0, 1);
  if (!fusion.anchors[0].operands[0].whole.empty() ||
      (blocked && (whole.rank() != 2 || !batch.empty() || site.domain.rank() != 3 ||
                   site.domain[0] * site.domain[1] != whole[0])))
    return refuse_weights(fusion, "blocks along k of one matrix of weights", "other blocks");
  weights.ops = blocked ? site : over_batch(site, batch);
  Expr& ops = weights.ops;
  const int last = ops.domain.rank() - 1;
  const int at = load_of_weights(ops);
  if (at < 0)
    return refuse_weights(fusion, "a second operand computed of one tensor of weights", "none or several");
  const Node load = ops.node(at);
  const Operand& operand = fusion.operands[static_cast<size_t>(load.access.operand)];
  weights.type = load.type;
  weights.element = yielded_node(ops).type;
  if (load.type != operand.type || std::ranges::find(kStoredTypes, load.type) == kStoredTypes.end())
    return refuse_weights(fusion, "weights stored in 8 or 4 bits", std::string(to_string(operand.type)));
  if (yielded(ops) == at || (weights.element != DataType::f16 && weights.element != DataType::bf16))
    return refuse_weights(fusion, "weights computed to fp16 or bf16",
                          std::string(to_string(weights.element)));
  if (!is_read_in_floats(ops, at))
    return refuse_weights(fusion, "weights that ops read in fp32", "ops of another compute type");
  weights.stride = load.access.strides[last - 1];
  if (blocked) {
    weights.block = ops.domain[last - 1];
    if (load.access.strides[last - 2] != weights.stride * weights.block)
      return refuse_weights(fusion, "steps of k at one distance in memory", "another one between blocks");
  }
  const uint32_t steps = axes_of_steps(ops, blocked);
  weights.stored = hand_over(ops, at, 0, DataType::f32);
  for (int i = 0; i < std::ssize(ops.nodes); ++i) {
    const Node& node = ops.node(i);
    if (node.kind == Node::Kind::reduce || (node.kind == Node::Kind::index && (steps >> node.axis & 1) != 0))
      return refuse_weights(fusion, "weights of elementwise ops", "reductions or numbers of elements");
    if (node.kind != Node::Kind::load) continue;
    if (node.access.is_indexed() || weights.held.size() == kMostHeld)
      return refuse_weights(fusion, "up to 3 tensors of scales and zero points", "more or gathered ones");
    const DataType carried = carrier(node.type);
    weights.held.push_back(hand_over(ops, i, static_cast<int>(weights.held.size()) + 1, carried));
  }
  return weights;
}

Fusion with_plain_weights(const Fusion& fusion, const StoredWeights& weights) {
  Fusion plain = fusion;
  Expr stored = weights.stored;
  if (weights.block > 0) {
    Access& access = stored.nodes.front().access;
    const int last = stored.domain.rank() - 1;
    stored.domain = {stored.domain[last - 2] * weights.block, stored.domain[last]};
    access.strides = {weights.stride, access.strides[last]};
  } else {
    stored = operand_site(fusion, 0, 1);
    const auto load = std::ranges::find_if(stored.nodes, [&](const Node& node) {
      return node.kind == Node::Kind::load &&
             node.access.operand == weights.stored.nodes.front().access.operand;
    });
    stored.nodes = {Node(*load)};
    stored.yields = {0};
  }
  operand_site(plain, 0, 1) = std::move(stored);
  plain.anchors[0].operands[1].whole = {};
  return plain;
}

}  // namespace fusor
