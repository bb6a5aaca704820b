// Owns the rules with which several engines begin.
#include "backend/engines/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <variant>
#include <vector>

#include "backend/engines/contraction/epilogue.h"
#include "backend/engines/contraction/residue_classes.h"
#include "backend/engines/reach.h"

namespace fusor {

Refusal refusal_at_anchor(const Fusion& fusion, const char* rule, std::string expected, std::string actual,
                          const char* remedy) {
  return {rule, fusion.op_name(fusion.anchors[0].op), "", std::move(expected), std::move(actual), remedy, -1};
}

namespace {

Refusal refuse_total(const Fusion& fusion, const Node& user, const char* expected) {
  return {
      "one-phase", fusion.op_name(user.op),        "",
      expected,    "a total that is needed again", "carry out what needs the total in a fusion of its own",
      user.op};
}

// The first node that needs a total, or null.
const Node* first_use_of_total(const Expr& expr) {
  for (const Node& node : expr.nodes)
    for (const int arg : node.args)
      if (arg >= 0 && expr.node(arg).kind == Node::Kind::reduce) return &node;
  return nullptr;
}

const Node* first_indexed_load(const Expr& expr) {
  const auto is_indexed = [](const Node& node) { return node.access.is_indexed(); };
  const auto found = std::ranges::find_if(expr.nodes, is_indexed);
  return found == expr.nodes.end() ? nullptr : &*found;
}

Refusal refuse_indexed(const Fusion& fusion, const Node& load) {
  return {"loads-in-place",
          load.op < 0 ? "" : fusion.op_name(load.op),
          fusion.name_of(load.access.operand),
          "operands that are read where they lie",
          "elements taken through an index",
          "carry out the gather in a fusion of its own",
          load.op};
}

// The op that takes a load's value: its own where the load is an op.
int reader_of(const Expr& expr, int load) {
  if (expr.node(load).op >= 0) return expr.node(load).op;
  for (const Node& node : expr.nodes)
    if (std::ranges::find(node.args, load) != node.args.end()) return node.op;
  return -1;
}

Refusal refuse_packed_access(const Fusion& fusion, const char* rule, int op, const Access& access,
                             const char* expected) {
  const DataType type = fusion.operands[static_cast<size_t>(access.operand)].type;
  return {rule,
          op < 0 ? "" : fusion.op_name(op),
          fusion.name_of(access.operand),
          expected,
          fmt::format("{}, {} elements a byte", to_string(type), elements_per_byte(type)),
          "a fusion of its own for the op: engine 'packed' stores, 'elementwise' loads packed elements",
          op};
}

const Node* first_reduction(const Expr& expr) {
  const auto found = std::ranges::find(expr.nodes, Node::Kind::reduce, &Node::kind);
  return found == expr.nodes.end() ? nullptr : &*found;
}

}  // namespace

std::optional<Refusal> refuse_phases(const Fusion& fusion) {
  if (form_of(fusion) == Form::chain) {
    const int second = fusion.anchors[1].op;
    return Refusal{
        "one-contraction", fusion.op_name(second),          "",    "one contraction, or two siblings",
        "a chain of them", "give each a fusion of its own", second};
  }
  if (!fusion.anchors.empty())
    for (const Site& site : fusion.sites)
      if (const Node* const load = first_indexed_load(site.expr)) return refuse_indexed(fusion, *load);
  for (const Site& site : operand_sites(fusion))
    if (const Node* const total = first_reduction(site.expr))
      return refuse_total(fusion, *total, "operands without reductions");
  for (const Site& site : fusion.sites)
    if (const Node* const user = first_use_of_total(site.expr))
      return refuse_total(fusion, *user, "totals that are stored only");
  return std::nullopt;
}

namespace {

// The coordinates that the values of a node are computed of, and along which of them no two are equal.
struct Numbering {
  uint32_t axes = 0;      // coordinates that it is computed of
  uint32_t distinct = 0;  // axes along which no two values are equal, all else being the same
  bool loads = false;     // it is computed of elements in memory, too
};

Numbering sum_of(const Numbering& a, const Numbering& b) {
  return {a.axes | b.axes, (a.distinct & ~b.axes) | (b.distinct & ~a.axes), a.loads || b.loads};
}

Numbering numbering_of(const Node& node, std::span<const Numbering> before) {
  const auto argument = [&](int i) {
    const int arg = node.args[static_cast<size_t>(i)];
    return arg < 0 ? Numbering{} : before[static_cast<size_t>(arg)];
  };
  if (node.kind == Node::Kind::index) return {1u << node.axis, 1u << node.axis, false};
  if (node.kind == Node::Kind::load || node.kind == Node::Kind::input) return {0, 0, true};
  if (node.kind != Node::Kind::pointwise) return {};
  switch (node.pointwise.mode) {
    case PointwiseMode::add:
    case PointwiseMode::sub:
      return sum_of(argument(0), argument(1));
    case PointwiseMode::identity:
    case PointwiseMode::neg:
      return argument(0);
    default: {
      Numbering all = sum_of(sum_of(argument(0), argument(1)), argument(2));
      all.distinct = 0;
      return all;
    }
  }
}

// An index that is computed of coordinates alone names each place once where it is a sum with one coordinate,
// the axis of which is the only one that the place does not follow. One that is read from memory besides is
// taken to be a ragged tensor's, whose first axis numbers its entries.
bool may_meet(const Expr& expr, const Store& store) {
  std::vector<Numbering> numberings;
  for (int i = 0; i <= store.index; ++i) numberings.push_back(numbering_of(expr.node(i), numberings));
  const Numbering index = numberings.back();
  int unplaced = 0;
  for (int axis = 0; axis < expr.domain.rank(); ++axis) {
    if (expr.domain[axis] == 1 || store.access.strides[axis] != 0) continue;
    const bool is_counted = ((index.loads ? index.axes : index.distinct) >> axis & 1) != 0;
    if (!is_counted && (!index.loads || axis > 0 || index.axes == 0)) return true;
    ++unplaced;
  }
  return !index.loads && unplaced > 1;
}

}  // namespace

bool scatters_may_meet(const Fusion& fusion) {
  return std::ranges::any_of(fusion.sites, [](const Site& site) {
    return std::ranges::any_of(
        site.expr.stores, [&](const Store& store) { return store.index >= 0 && may_meet(site.expr, store); });
  });
}

std::optional<Refusal> refuse_packed(const Fusion& fusion, PackedAccess access) {
  for (const Site& site : fusion.sites) {
    for (int i = 0; i < std::ssize(site.expr.nodes) && !access.loads; ++i)
      if (const Node& node = site.expr.node(i); node.kind == Node::Kind::load && is_packed(node.type))
        return refuse_packed_access(fusion, "whole-byte-loads", reader_of(site.expr, i), node.access,
                                    "operands whose elements have addresses");
    for (const Store& store : site.expr.stores)
      if (!access.stores && is_packed(store.type))
        return refuse_packed_access(fusion, "whole-byte-stores", store.op, store.access,
                                    "results whose elements have addresses");
  }
  return std::nullopt;
}

std::optional<Refusal> refuse_blocks(const Fusion& fusion, bool takes_blocks) {
  if (takes_blocks) return std::nullopt;
  for (const Anchor& anchor : fusion.anchors)
    for (const Port& port : anchor.operands) {
      if (port.whole.empty()) continue;
      const int op = yielded_node(fusion.sites[static_cast<size_t>(port.site)].expr).op;
      return Refusal{"operands-of-whole-axes",
                     op < 0 ? "" : fusion.op_name(op),
                     "",
                     "operands that are computed over axes of the matmul",
                     "blocks of an axis, of which each has a scale of its own",
                     "a fusion of its own for the op, or mma_weights",
                     op};
    }
  return std::nullopt;
}

std::optional<Refusal> refuse_composites(const Fusion& fusion, const Engine& engine) {
  for (const Anchor& anchor : fusion.anchors)
    if (nature(anchor.attributes) == Nature::composite && !engine.takes_composite(anchor.attributes))
      return refusal_at_anchor(fusion, "no-composite", "ops of one step",
                               std::string(kind_name(anchor.attributes)));
  return std::nullopt;
}

std::optional<Refusal> refuse_cpu(const DeviceInfo& device) {
  if (!device.is_cpu()) return std::nullopt;
  return Refusal{"needs-gpu", "", "", "a CUDA device", device.name, "plan for a GPU", -1};
}

std::optional<Refusal> refuse_other_than_hopper(const DeviceInfo& device) {
  if (!device.is_cpu() && device.compute_capability == 90) return std::nullopt;
  return Refusal{"sm-90", "", "", "a Hopper GPU (sm_90)", device.name, "plan for one", -1};
}

std::optional<Refusal> refuse_other_anchor(const Fusion& fusion) {
  if (fusion.anchors.size() == 1 && std::holds_alternative<Conv>(fusion.anchors[0].attributes))
    return std::nullopt;
  return Refusal{"convolution-anchor",
                 fusion.op_names.empty() ? "" : fusion.op_names.front(),
                 "",
                 "one convolution",
                 "another anchor or none",
                 "",
                 -1};
}

std::optional<Refusal> refuse_other_sums(const Fusion& fusion, const Contraction& view) {
  if (view.compute == DataType::f32) return std::nullopt;
  return refusal_at_anchor(fusion, "fp32-sums", "compute type fp32", std::string(to_string(view.compute)));
}

int64_t sms_of_clusters(const DeviceInfo& device, int64_t cluster) {
  // Clusters of 1 to 8 blocks that an H200 of 132 SMs runs at once, at a block an SM.
  constexpr std::array<int64_t, 8> kAtOnce = {132, 66, 39, 30, 22, 17, 15, 15};
  constexpr int64_t kSms = 132;
  const int64_t size = std::clamp<int64_t>(cluster, 1, std::ssize(kAtOnce));
  return std::max<int64_t>(1, device.sm_count * size * kAtOnce[static_cast<size_t>(size) - 1] / kSms);
}

std::optional<Refusal> refuse_wide_coordinates(const Fusion& fusion, const char* what, int64_t reached) {
  if (reached <= kMaxIndex32) return std::nullopt;
  return refusal_at_anchor(fusion, "32-bit-coordinates",
                           fmt::format("{} numbered up to {}", what, kMaxIndex32), fmt::format("{}", reached),
                           "give the contraction in parts");
}

std::optional<Refusal> refuse_residue_classes(const Fusion& fusion, const Contraction& view) {
  const int64_t classes = residue_class_count(view);
  if (classes <= kMaxResidueClasses) return std::nullopt;
  return refusal_at_anchor(fusion, "dgrad-classes",
                           fmt::format("a dgrad of strides whose product is {} or less", kMaxResidueClasses),
                           fmt::format("{}", classes));
}

std::optional<Refusal> refuse_other_than_hopper_convolution(const Fusion& fusion, const DeviceInfo& device) {
  if (auto refusal = refuse_other_than_hopper(device)) return refusal;
  if (auto refusal = refuse_other_anchor(fusion)) return refusal;
  if (auto refusal = refuse_phases(fusion)) return refusal;
  if (auto refusal = refuse_epilogue_reductions(fusion)) return refusal;
  if (!contraction_of(fusion)) return refuse_other_domain(fusion);
  return std::nullopt;
}

}  // namespace fusor
