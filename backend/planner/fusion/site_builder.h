// Owns SiteBuilder: the one site of a fusion that is being built.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "backend/planner/fusion/domain.h"
#include "backend/planner/fusion/fused_ops.h"
#include "backend/planner/fusion/fusion_operands.h"

namespace fusor {

/// Builds the Expr of one site from the values that are asked for and those that leave. Refers to the ops and
/// the operands. Throws Error{bad_input} where a value cannot be had over the site's domain.
class SiteBuilder {
 public:
  /// `visible`: the anchors of a chain whose results the site is handed.
  SiteBuilder(const FusedOps& ops, FusionOperands& operands, const Domain& domain, std::vector<int> visible);

  const Domain& domain() const { return domain_; }
  bool has_stores() const { return !expr_.stores.empty(); }
  /// The finished Expr; nothing is asked of the builder after that.
  Expr take() { return std::move(expr_); }

  /// The node that holds a tensor's value at the domain's coordinate, made at most once per site.
  int value(int tensor);
  /// The site yields the tensor, too.
  void yield(int tensor);
  /// Stores the op's result where that leaves the fusion, or is a total that nobody reads.
  void store_if_left(int op);

 private:
  int make_value(int tensor);
  int computed(int op_index);
  int index_node(int op_index, const Pointwise& pointwise, const Tensor& y);
  int added(int a, int b, int op_index);
  int total(int op_index, const Reduction& reduction);
  int gathered(int op_index);
  int seen_from_view(int view);
  std::vector<DomainAxis> axes_seen_from(const Op& view) const;
  int viewed(int op_index);
  Access access(int tensor);
  int unpacked_value(int node);
  int add_node(const Node& node);

  void add_store(int op, int tensor);
  void add_scatter(int op, int64_t axis);

  const FusedOps& ops_;
  const Graph& graph_;
  const FoldedGraph& folded_;
  FusionOperands& operands_;
  std::vector<int> visible_;
  Domain domain_;
  Expr expr_;
  using Nodes = std::map<int, int>;  // by tensor: its value's node
  // A view shows values with other axes of the domain: each way in which tensor axes stand for these
  // (way_of()) has nodes of its own.
  std::map<std::vector<int64_t>, Nodes> nodes_of_;
  Nodes* nodes_ = nullptr;  // those of domain_
};

}  // namespace fusor
