// Owns the stores of a site: values that leave the fusion whole, as totals, or for where an index says.
#include "backend/planner/fusion/site_builder.h"

#include "core/fail.h"

namespace fusor {

void SiteBuilder::store_if_left(int op) {
  const int y = graph_.ops[op].outputs[0];
  const bool is_total = std::holds_alternative<Reduction>(graph_.ops[op].attributes);
  if (ops_.leaves(y) || (is_total && folded_.index.consumers(y).empty())) add_store(op, y);
}

void SiteBuilder::add_store(int op, int tensor) {
  if (const auto* const scatter = std::get_if<Scatter>(&graph_.ops[op].attributes))
    return add_scatter(op, scatter->axis);
  const Tensor& described = graph_.tensors[tensor];
  int node = value(tensor);
  const DataType type = operands_.stored_type(tensor);
  const bool is_whole = element_count(described.dims) == element_count(domain_.logical);
  if (!is_whole && phases(expr_)[static_cast<size_t>(node)] == 0)
    ops_.refuse(fmt::format("store '{}' many times over", described.name));
  if (!is_packed(type)) node = unpacked_value(node);
  expr_.stores.push_back({.node = node, .type = type, .access = access(tensor), .op = op});
}

// Elements leave for where the index says: y's extents but the one along the axis are those of the domain.
void SiteBuilder::add_scatter(int op, int64_t axis) {
  const int x = graph_.ops[op].inputs[0], y = graph_.ops[op].outputs[0];
  if (!ops_.anchors().empty() && !ops_.is_chain())
    ops_.refuse(fmt::format("scatter '{}' behind a contraction", graph_.tensors[y].name));
  const Placement& place = folded_.placements[y];
  Dims dims = graph_.tensors[y].dims;
  const int along = static_cast<int>(axis) - (graph_.tensors[x].dims.rank() - dims.rank());
  const IndexedAxis indexed{place.strides[along], dims[along]};
  dims[along] = 1;
  const bool is_whole = graph_.tensors[x].dims == domain_.logical;
  if (!domain_.fits(dims) || !domain_.fits(graph_.tensors[x].dims) || (!is_whole && !ops_.is_chain()))
    ops_.refuse(fmt::format("do not share one domain ('{}' scatters {}, the domain is {})",
                            graph_.ops[op].name, to_string(graph_.tensors[x].dims),
                            to_string(domain_.logical)));
  Store store{.node = unpacked_value(value(x)), .type = operands_.stored_type(y), .op = op};
  if (!is_whole && phases(expr_)[static_cast<size_t>(store.node)] == 0)
    ops_.refuse(fmt::format("store '{}' many times over", graph_.tensors[y].name));
  store.index = value(graph_.ops[op].inputs[1]);
  store.access = {operands_.operand_of(y), place.offset, over_domain(domain_, dims, place.strides)};
  store.access.indexed[0] = indexed;
  expr_.stores.push_back(store);
}

}  // namespace fusor
