// Owns Expr: the fused pointwise ops and reductions at one site of a fusion, in SSA form over a named domain.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <vector>

#include "core/attributes.h"
#include "core/dims.h"

namespace fusor {

/// A step of an access whose length is a value times `stride`. Where the value is not in 0 ... extent - 1, a
/// load gives 0 and a store writes nothing.
struct IndexedAxis {
  int64_t stride = 0;
  int64_t extent = 0;  ///< 0: there is none
  friend bool operator==(const IndexedAxis&, const IndexedAxis&) = default;
};

/// How a domain's coordinates reach the elements of an operand: offset + sum of coordinate * stride
/// (elements), stride 0 where the operand is broadcast. Views fold into it.
struct Access {
  int operand = -1;  ///< index into Fusion::operands
  int64_t offset = 0;
  Strides strides = {};  ///< one per domain axis
  /// Set by lower(): elements along the vector axis are adjacent and every vector starts on a multiple of its
  /// size.
  bool whole_vectors = false;
  /// A load has one for each of the node's arguments, in order; a store has one at most, of Store::index.
  std::array<IndexedAxis, 3> indexed = {};
  bool is_indexed() const { return indexed[0].extent != 0; }
  friend bool operator==(const Access&, const Access&) = default;
};

/// One SSA value. Its `type` is its rounding: the value is rounded to it right after it is computed or
/// loaded, and held in carrier(type).
struct Node {
  enum class Kind : uint8_t {
    input,      ///< what the site is handed: `input` counts Site::inputs
    load,       ///< an element of a tensor; args are the values of its indexed axes
    scalar,     ///< a by-value or constant operand: an argument of the kernel
    index,      ///< the coordinate along `axis` (plus access.offset, times access.strides[axis])
    pointwise,  ///< formula over args
    reduce,     ///< args[0] reduced over the axes in `over`; visible everywhere along them again
  };
  Kind kind = Kind::load;
  DataType type = DataType::f32;
  int input = 0;                        // input
  Access access = {};                   // load, scalar (operand only), index
  int axis = 0;                         // index
  Pointwise pointwise = {};             // pointwise
  Reduction reduction = {};             // reduce
  uint32_t over = 0;                    // reduce: bit i is domain axis i
  std::array<int, 3> args{-1, -1, -1};  // pointwise, reduce (the first), load (indices): earlier nodes
  int op = -1;  ///< graph op it stems from, for names in comments; not part of the structure
};

/// A node's value on its way to memory. The access walks every axis along which the value varies; a total
/// that is stored has stride 0 along the axes that it was reduced over.
struct Store {
  int node = -1;
  DataType type = DataType::f32;  ///< of the stored elements
  /// Set by lower(): L2 keeps the lines that are written longest, so that memory is written in longer bursts.
  bool stays_in_l2 = false;
  Access access = {};
  int op = -1;
  int index =
      -1;  ///< the node whose values say where along its indexed axis the access goes; -1: there is none
};

/// Values over `domain`: those that are stored, and those that the site yields to an anchor, to another site
/// or to a kernel that stores them itself.
struct Expr {
  Dims domain;
  std::vector<Node> nodes;
  std::vector<Store> stores;
  std::vector<int> yields;  ///< nodes

  bool has_reduction() const {
    for (const Node& node : nodes)
      if (node.kind == Node::Kind::reduce) return true;
    return false;
  }
  Node& node(int at) { return nodes[static_cast<size_t>(at)]; }
  const Node& node(int at) const { return nodes[static_cast<size_t>(at)]; }
};

/// Calls visit(access, type) for every load and every store.
template <class E, class Visitor>
void for_each_access(E& expr, Visitor&& visit) {
  for (auto& node : expr.nodes)
    if (node.kind == Node::Kind::load) visit(node.access, node.type);
  for (auto& store : expr.stores) visit(store.access, store.type);
}
/// The node that the Expr yields in place `i`, or -1; and that node, where there is one.
inline int yielded(const Expr& expr, size_t i = 0) { return i < expr.yields.size() ? expr.yields[i] : -1; }
inline const Node& yielded_node(const Expr& expr, size_t i = 0) { return expr.node(expr.yields[i]); }
/// The reduce node whose totals are stored, or null where the value of another node is.
const Node* reduction_of(const Expr& expr, const Store& store);
/// The axes of more than one element that a reduction runs over.
uint32_t reduced_axes(const Expr& expr, const Node& reduction);

/// The domain axes along which each node's value varies: a mask a node, extents of 1 left out.
std::vector<uint32_t> varying_axes(const Expr& expr);
/// The phase in which each node's value is known: a reduction's is one later than its argument's. What phase
/// p computes needs totals of earlier phases only.
std::vector<int> phases(const Expr& expr);
/// Whether a total is needed again: as an argument, or by whom the Expr yields it to. Without that, one pass
/// over the domain does everything.
bool feeds_back(const Expr& expr);
/// The Expr without nodes that reach no store and no yield.
Expr without_dead_nodes(const Expr& expr);
/// Throws an internal Error where the Expr is not what it promises: nodes before their users, axes within the
/// domain, stores that walk all that varies.
void validate(const Expr& expr);

/// Whether a pointwise attribute's parameters are all the defaults (then they are constants of the kernel
/// text).
bool has_default_parameters(const Pointwise& pointwise);

/// The Expr over the axes in `order`: new axis i is the old axis order[i]. Axes that are left out have
/// extent 1.
Expr select_axes(const Expr& expr, const Dims& order);

/// The Expr over groups of its axes, outer ones first in each: new axis i walks group i as one. Nothing where
/// an access needs more than one stride for a group, an index node names an axis of several, or a reduction
/// runs over a part of one. Every axis is in a group.
std::optional<Expr> group_axes(const Expr& expr, std::span<const Dims> groups);

/// The Expr with two axes in the place of one: blocks of `inner` neighbours, and the place in a block.
/// Nothing where they do not divide the axis, or an index node or a reduction names it.
std::optional<Expr> split_axis(const Expr& expr, int axis, int64_t inner);

/// The same Expr over fewer axes, at least one: extent-1 axes dropped, axes put in the memory order of the
/// first elementwise store (without one: of the load that walks most axes), neighbours that every access
/// walks as one and that the same nodes reduce merged. Axes named by an index node, and axes in
/// `keep` (a mask), stay. The map from old axes to new is not kept: callers use it where only the set of
/// visited coordinates matters.
Expr merge_axes(const Expr& expr, uint32_t keep = 0);

}  // namespace fusor
