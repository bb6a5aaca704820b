// Owns FusionBuilder: one Fusion while its sites and anchors are put together.
#pragma once

#include <span>
#include <vector>

#include "backend/planner/fusion/site_builder.h"

namespace fusor {

/// Builds one Fusion. Refers to the graphs and the list of ops.
class FusionBuilder {
 public:
  FusionBuilder(const Graph& graph, const FoldedGraph& folded, std::span<const int> ops);
  FusionBuilder(const FusionBuilder&) = delete;
  FusionBuilder& operator=(const FusionBuilder&) = delete;

  /// Is called once.
  Fusion build();

 private:
  Fusion build_around_anchors();
  Site site_after(std::vector<Input> results);

  Fusion build_chain();
  /// Adds the site between the anchors in front and those behind; the tensors that it yields.
  std::vector<int> add_between(std::vector<Input> results, const std::vector<std::vector<bool>>& behind);
  void add_behind(int anchor, const Port& first, const std::vector<bool>& behind);

  /// The anchor's result, for the site that is handed it.
  Input add_anchor(int anchor, std::vector<Port> operands);
  /// The shape of what a chain's anchors behind take: that of the products in front, or of more entries.
  const Dims& dims_between() const;
  Dims repeats_of(int anchor) const;
  /// A site that yields the tensor, each of its entries so often.
  Port port_of(int tensor, const Dims& repeats = {});
  SiteBuilder open(const Domain& domain) { return {fused_, operands_, domain, visible_}; }

  const FusedOps fused_;
  const Graph& graph_;
  Fusion fusion_;
  FusionOperands operands_;
  std::vector<int> visible_;  // the anchors of a chain whose results the site being built is handed
};

}  // namespace fusor
