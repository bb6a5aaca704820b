// Owns the vectors, costs, refusals and guards of a contraction's sites.
#include "backend/engines/contraction/epilogue.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "backend/engines/contraction/product.h"

namespace fusor {

bool moves_whole_vectors(const Access& access, const Operand& operand, DataType type, int axis,
                         int64_t width) {
  const int64_t bytes = std::min<int64_t>(width * byte_size(type), 16);
  if (width == 1 || access.strides[axis] != 1) return false;
  if (operand.alignment % bytes != 0 || access.offset * byte_size(type) % bytes != 0) return false;
  for (int i = 0; i < access.strides.rank(); ++i)
    if (i != axis && access.strides[i] % width != 0) return false;
  for (const IndexedAxis& indexed : access.indexed)
    if (indexed.stride % width != 0) return false;
  return true;
}

void mark_whole_vectors(const Fusion& fusion, Expr& site, int axis, int64_t width) {
  const auto mark = [&](Access& access) {
    const Operand& operand = fusion.operands[static_cast<size_t>(access.operand)];
    access.whole_vectors = moves_whole_vectors(access, operand, operand.type, axis, width);
  };
  for (Node& node : site.nodes)
    if (node.kind == Node::Kind::load) mark(node.access);
  for (Store& result : site.stores) mark(result.access);
}

std::vector<Guard> guards_of(const Fusion& fusion, std::initializer_list<VectorSite> sites) {
  std::vector<Guard> guards;
  for (size_t i = 0; i < fusion.operands.size(); ++i) {
    const Operand& operand = fusion.operands[i];
    if (operand.memory == Memory::host || operand.memory == Memory::constant) continue;
    guards.push_back({static_cast<int>(i), byte_size(operand.type)});
  }
  const auto raise = [&](const Access& access, int64_t width) {
    if (!access.whole_vectors) return;
    const int64_t size = byte_size(fusion.operands[static_cast<size_t>(access.operand)].type);
    for (Guard& guard : guards)
      if (guard.operand == access.operand)
        guard.alignment = std::max(guard.alignment, std::min<int64_t>(width * size, 16));
  };
  for (const VectorSite& vectors : sites) {
    for (const Node& node : vectors.site.nodes) raise(node.access, vectors.width);
    for (const Store& result : vectors.site.stores) raise(result.access, vectors.width);
  }
  return guards;
}

SiteCost cost_of(const Expr& site, const Fusion& fusion) {
  SiteCost cost;
  for (const Node& node : site.nodes) {
    if (node.kind == Node::Kind::load)
      cost.bytes +=
          static_cast<double>(byte_size(fusion.operands[static_cast<size_t>(node.access.operand)].type));
    if (node.kind != Node::Kind::pointwise) continue;
    cost.instructions += info(node.pointwise.mode).alu;
    cost.special += info(node.pointwise.mode).sfu;
  }
  for (const Store& result : site.stores) cost.bytes += static_cast<double>(byte_size(result.type));
  return cost;
}

namespace {

constexpr int64_t kSectorBytes = 32;  // what DRAM is read in

// Positions along the axis that some tap of a convolution reads, where the others' bytes stay in DRAM.
int64_t positions_read(const Contraction& view, int axis, int64_t extent, int64_t neighbour_bytes) {
  if (axis < 2 || neighbour_bytes < kSectorBytes) return extent;
  const WindowAxis& window = view.axes[static_cast<size_t>(axis - 2)];
  return std::min(extent, window.output * window.window);
}

// The site that a convolution walks in strides, or null.
const Expr* walked_in_strides(const Fusion& fusion, const std::optional<Contraction>& view) {
  if (!view || (view->op != ContractionOp::fprop && view->op != ContractionOp::wgrad)) return nullptr;
  return &operand_site(fusion, 0, view->op == ContractionOp::fprop ? 0 : 1);
}

}  // namespace

// Every operand is read or written once; an access reaches no more than its domain. Accesses that begin at
// several places of a buffer are parts of it (queries and keys of one product): together they reach no more
// than the buffer.
double dram_bytes(const Fusion& fusion) {
  const auto view = contraction_of(fusion);
  const Expr* const strided = walked_in_strides(fusion, view);
  std::vector<std::map<int64_t, int64_t>> parts(fusion.operands.size());  // elements by offset
  const auto reach = [&](const Access& access, int64_t elements) {
    int64_t& reached = parts[static_cast<size_t>(access.operand)][access.offset];
    reached = std::max(reached, elements);
  };
  const auto count = [&](const Expr& expr, const Access& access) {
    if (access.strides.rank() != expr.domain.rank()) return;
    const int64_t size = byte_size(fusion.operands[static_cast<size_t>(access.operand)].type);
    int64_t elements = 1;
    for (int i = 0; i < expr.domain.rank(); ++i) {
      if (access.strides[i] == 0) continue;
      const int64_t bytes = std::abs(access.strides[i]) * size;
      elements *= &expr == strided ? positions_read(*view, i, expr.domain[i], bytes) : expr.domain[i];
    }
    reach(access, elements);
  };
  // Each index may name another element.
  const auto count_indexed = [&](const Expr& expr, const Node& load) {
    const uint32_t axes = varying_axes(expr)[static_cast<size_t>(&load - expr.nodes.data())];
    int64_t elements = 1;
    for (int i = 0; i < expr.domain.rank(); ++i)
      if (axes >> i & 1) elements *= expr.domain[i];
    reach(load.access, elements);
  };
  for (const Site& site : fusion.sites) {
    for (const Node& node : site.expr.nodes) {
      if (node.kind != Node::Kind::load) continue;
      if (node.access.is_indexed())
        count_indexed(site.expr, node);
      else
        count(site.expr, node.access);
    }
    for (const Store& store : site.expr.stores) count(site.expr, store.access);
  }
  double bytes = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    int64_t reached = 0;
    for (const auto& [offset, elements] : parts[i])
      reached = std::min(reached + elements, fusion.operands[i].elements);
    bytes += static_cast<double>(bytes_of(fusion.operands[i].type, reached));
  }
  return bytes;
}

std::optional<Refusal> refuse_epilogue_reductions(const Fusion& fusion) {
  for (const Store& result : result_site(fusion).stores) {
    const Node* const total = reduction_of(result_site(fusion), result);
    if (total == nullptr) continue;
    return Refusal{"no-epilogue-reduction",
                   fusion.op_name(result.op),
                   fusion.name_of(result.access.operand),
                   "elementwise results",
                   fmt::format("a reduction ({})", to_string(total->reduction.mode)),
                   "give the reduction a fusion of its own",
                   result.op};
  }
  return std::nullopt;
}

std::optional<Refusal> refuse_pair(const Fusion& fusion) {
  if (form_of(fusion) != Form::siblings) return std::nullopt;
  const int second = fusion.anchors[1].op;
  return Refusal{"one-contraction",
                 fusion.op_name(second),
                 "",
                 "one contraction",
                 fmt::format("two, with '{}'", fusion.op_name(fusion.anchors[0].op)),
                 "give each a fusion of its own",
                 second};
}

Refusal refuse_other_domain(const Fusion& fusion) {
  const int anchor = fusion.anchors[0].op;
  int at = -1;
  for (const Node& node : result_site(fusion).nodes)
    if (node.op > anchor && (at < 0 || node.op < at)) at = node.op;
  return {"epilogue-over-result",
          fusion.op_name(anchor),
          "",
          "an epilogue over the shape of the anchor's result",
          to_string(result_site(fusion).domain),
          "give the ops that broadcast the result a fusion of their own",
          at};
}

}  // namespace fusor
