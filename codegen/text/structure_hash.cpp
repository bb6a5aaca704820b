// Owns the hash of a kernel's structure: all that the text of its header depends on.
#include <cstdint>
#include <string>

#include "codegen/text/expr_emitter.h"
#include "codegen/text/site_fields.h"
#include "codegen/text/word_facts.h"
#include "core/hash.h"

namespace fusor {

namespace {

void hash_access(Hasher& hasher, const KernelSite& site, const Access& access) {
  for (int axis = 0; axis < site.expr.domain.rank(); ++axis)
    hasher.add(access.strides[axis] == 0 ? 0 : has_stride_field(site, access, axis) ? 1 : 2);
  hasher.add(access.whole_vectors);
}

// An index node has three forms in the text: the coordinate as it is; scaled, with scale and offset as
// arguments; and, in sites of rows where the scale is 0, the offset as a number.
void hash_number(Hasher& hasher, const Node& node) {
  const int64_t scale = node.access.strides[node.axis];
  hasher.add(scale == 0 ? 0 : scale == 1 && node.access.offset == 0 ? 1 : 2);
  if (scale == 0) hasher.add(node.access.offset);
}

void hash_node(Hasher& hasher, const KernelSite& site, const Node& node) {
  hasher.add(node.kind).add(node.type);
  switch (node.kind) {
    case Node::Kind::load:
      for (const int arg : node.args) hasher.add(arg);
      return hash_access(hasher, site, node.access);
    case Node::Kind::scalar:
      return;
    case Node::Kind::input:
      hasher.add(node.input);
      return;
    case Node::Kind::index:
      hasher.add(node.axis);
      hash_number(hasher, node);
      return;
    case Node::Kind::reduce:
      hasher.add(node.reduction.mode).add(node.reduction.compute).add(node.args[0]);
      return;
    case Node::Kind::pointwise:
      hasher.add(node.pointwise.mode).add(node.pointwise.compute).add(has_default_parameters(node.pointwise));
      hasher.add(counts_up(site.expr, node));
      if (const auto [step, first] = word_steps(site, node); step > 0) hasher.add(step).add(first);
      for (const int arg : node.args) hasher.add(arg);
  }
}

// Tells values of a row from values of an element.
void hash_rows(Hasher& hasher, const KernelSite& site) {
  if (site.kept < 0) return;
  hasher.add(site.kept).add(site.tails).add(site.joins);
  for (const int64_t extent : site.expr.domain) hasher.add(extent == 1);
  for (const Node& node : site.expr.nodes) hasher.add(static_cast<int64_t>(node.over));
}

void hash_site(Hasher& hasher, const KernelSite& site) {
  hasher.add(site.name).add(site.expr.domain.rank()).add(site.vector_axis);
  hasher.add(site.short_forms).add(site.rounds_value).add(site.addressed);
  hash_rows(hasher, site);
  hasher.add(site.expr.nodes.size());
  for (const Node& node : site.expr.nodes) hash_node(hasher, site, node);
  hasher.add(site.expr.stores.size());
  for (const Store& result : site.expr.stores) {
    hasher.add(result.node).add(result.type).add(result.index).add(result.stays_in_l2);
    hash_access(hasher, site, result.access);
  }
  hasher.add(site.expr.yields.size());
  for (const int node : site.expr.yields) hasher.add(node);
}

}  // namespace

std::string structure_hash(const KernelSource& source) {
  Hasher hasher;
  hasher.add(source.root).add(source.target).add(source.config.size());
  for (const ConfigValue& value : source.config)
    hasher.add(value.name).add(value.value.index()).add(value.number());
  hasher.add(source.sites.size());
  for (const KernelSite& site : source.sites) hash_site(hasher, site);
  hasher.add(source.types.size());
  for (const std::string& file : source.types) hasher.add(file);
  hasher.add(source.parameters.size());
  for (const ParameterField& field : source.parameters)
    hasher.add(field.path).add(field.type).add(field.count).add(field.at);
  return hasher.hex();
}

}  // namespace fusor
