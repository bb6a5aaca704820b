// Owns Expr: the fused pointwise computation at one site of a fusion, in SSA form over a named domain.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <vector>

#include "core/attributes.h"
#include "core/dims.h"

namespace fusor {

/// How a domain's coordinates reach the elements of an operand: offset + sum of coordinate * stride
/// (elements), stride 0 where the operand is broadcast. Views fold into it.
struct Access {
  int operand = -1;  ///< index into Fusion::operands
  int64_t offset = 0;
  Strides strides = {};  ///< one per domain axis
  /// Set by lower(): elements along the vector axis are adjacent and every vector starts on a multiple of its
  /// size.
  bool whole_vectors = false;
  friend bool operator==(const Access&, const Access&) = default;
};

/// One SSA value. Its `type` is its rounding: the value is rounded to it right after it is computed or
/// loaded, and held in carrier(type).
struct Node {
  enum class Kind : uint8_t {
    anchor,     ///< the value that the anchor delivers at this coordinate (`axis` says which: sibling 0, 1)
    load,       ///< an element of a tensor
    scalar,     ///< a by-value or constant operand: an argument of the kernel
    index,      ///< the coordinate along `axis` (plus access.offset, times access.strides[axis])
    pointwise,  ///< formula over args
  };
  Kind kind = Kind::load;
  DataType type = DataType::f32;
  Access access = {};                   // load, scalar (operand only), index
  int axis = 0;                         // anchor, index
  Pointwise pointwise = {};             // pointwise
  std::array<int, 3> args{-1, -1, -1};  // pointwise: earlier nodes
  int op = -1;  ///< graph op it stems from, for names in comments; not part of the structure
};

/// What leaves an Expr: a node stored elementwise, or reduced over the axes in the mask `reduced` first (its
/// access has stride 0 there). Reductions of one Expr share one mask.
struct Result {
  int node = -1;
  DataType type = DataType::f32;  ///< of the stored elements
  Access access = {};
  std::optional<Reduction> reduction = {};
  uint32_t reduced = 0;  ///< bit i: domain axis i
  int op = -1;
};

/// Values over `domain`. A site before an operand yields `value` to the anchor; a site after a result has
/// `results`. An engine whose kernel stores results itself has them as `value` and `second_value` instead.
struct Expr {
  Dims domain;
  std::vector<Node> nodes;
  std::vector<Result> results;
  int value = -1;         ///< node that the site yields, or -1
  int second_value = -1;  ///< node that it yields beside that, or -1

  bool has_reduction() const {
    for (const Result& result : results)
      if (result.reduction) return true;
    return false;
  }
};

/// Whether a pointwise attribute's parameters are all the defaults (then they are constants of the kernel
/// text).
bool has_default_parameters(const Pointwise& pointwise);

/// The Expr over the axes in `order`: new axis i is the old axis order[i]. Axes that are left out have
/// extent 1.
Expr select_axes(const Expr& expr, const Dims& order);

/// The Expr over groups of its axes, outer ones first in each: new axis i walks group i as one. Nothing where
/// an access needs more than one stride for a group, an index node names an axis of several, or a result is
/// reduced over a part of one. Every axis is in a group.
std::optional<Expr> group_axes(const Expr& expr, std::span<const Dims> groups);

/// The same Expr over fewer axes, at least one: extent-1 axes dropped, axes put in the memory order of the
/// first elementwise store (without one: of the load that walks most axes), neighbours that every access
/// walks as one and that are reduced by the same results merged. Axes named by an index node, and axes in
/// `keep` (a mask), stay. The map from old axes to new is not kept: callers use it where only the set of
/// visited coordinates matters.
Expr merge_axes(const Expr& expr, uint32_t keep = 0);

}  // namespace fusor
