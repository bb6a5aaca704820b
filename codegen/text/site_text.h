// Owns what the text of a site says of its nodes: names, comments, addresses and values.
#pragma once

#include <string>
#include <vector>

#include "codegen/text/expr_emitter.h"
#include "codegen/text/site_fields.h"

namespace fusor {

/// Facts and expressions of a site that is computed element by element. Its writer derives from it.
class SiteText {
 protected:
  SiteText(const KernelSite& site, const SourceNames* names);

  std::string operand_comment(const SiteField& field) const;
  std::string op_comment(int op) const;

  /// The reduce node whose totals a store is for, or null.
  const Node* total_at(size_t store) const { return reduction_of(expr_, expr_.stores[store]); }
  /// What the text calls a node: totals have names of their own.
  int number(int node) const { return numbers_[static_cast<size_t>(node)]; }

  bool yields() const { return !expr_.yields.empty(); }
  bool yields_two() const { return expr_.yields.size() == 2; }
  int anchor_count() const;
  /// Axes along which an access has a stride, or whose coordinate is a value.
  unsigned walked_axes() const;
  /// A kernel that gets a value back may want it of what does not exist, too, while totals must not.
  bool tells_totals() const { return expr_.has_reduction() && yields(); }
  /// A kernel that gets values of anchors back may load what all lanes share once, for many vectors.
  bool lends_loads() const { return yields() && anchor_count() > 0; }

  bool is_shared_load(const Node& node) const;
  bool is_per_lane_load(const Node& node) const;
  /// A load through an index is one of whole vectors where all lanes have the same index.
  bool has_lanes_own_index(const Node& node) const;
  bool has_lanes_own_index(const Store& store) const;

  /// " + index * stride ..." behind the address, and whether all indices are within their extents.
  struct Indices {
    std::string steps, inside;
  };
  Indices indices_of(int at) const;
  /// The same as indices_of() in the loop over lanes.
  Indices lane_indices(int at) const;

  /// pointer + sum of coordinate * stride.
  std::string address(const std::string& name, const Node& load) const;
  std::string address(const std::string& name, const Access& access) const;
  /// Packed elements leave this text where they are scattered: whole bytes of them, or any.
  std::string address(const std::string& name, const Store& store) const;
  std::string address(const std::string& name, const Access& access, const std::string& pointer) const;
  /// " + ..." from the first lane's element to lane i's.
  std::string lane_offset(const std::string& name, const Access& access) const;
  /// Terms that begin with " + ", without the first sign.
  static std::string place_of(const std::string& offset, const std::string& steps);

  std::string shared_load(int at) const;
  /// The name of a node's value in the lane loop.
  std::string lane(int at) const;
  static std::string rounded(const Node& node, const std::string& value);
  /// `value` as node `at` holds it. Rounding is left to a store where nothing else sees the node and the
  /// value comes in the carrier of the node's type.
  std::string result_of(int at, const std::string& value, bool in_carrier) const;
  /// The value of a pointwise node; `in_order`: lanes are computed one after another, and what one leaves the
  /// next may use.
  std::string computed(int at, bool in_order) const;
  /// Marks the nodes that each lane computes for node `at`.
  void need(int at, std::vector<bool>& needed) const;

  const KernelSite& site_;
  const Expr& expr_;

 private:
  // A node that only leaves through stores of its own type is rounded by the store.
  void find_rounded_uses();

  const SourceNames* names_;
  std::vector<int> numbers_;
  std::vector<bool> used_rounded_;
};

}  // namespace fusor
