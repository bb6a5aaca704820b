// Owns small kernel sources for the tests of compilation and caching.
#pragma once

#include <cstdint>
#include <string>

#include "codegen/text/parameters.h"
#include "core/lowered.h"

namespace fusor::test {

/// out = relu(... relu(a + b)) over [rows, columns], with `relus` of them: another structure for each number,
/// and the same one for any extents and strides.
inline KernelSource sample_source(int relus = 1, int64_t rows = 64, int64_t columns = 128,
                                  const std::string& target = "sm_90a") {
  KernelSite site;
  site.name = "Y";
  site.vector_axis = 1;
  Expr& expr = site.expr;
  expr.domain = {rows, columns};
  const auto access = [&](int operand) {
    Access found;
    found.operand = operand;
    found.offset = rows;
    found.strides = {columns, 1};
    return found;
  };
  for (int operand = 0; operand < 2; ++operand) {
    Node load;
    load.kind = Node::Kind::load;
    load.access = access(operand);
    expr.nodes.push_back(load);
  }
  Node step;
  step.kind = Node::Kind::pointwise;
  step.pointwise.mode = PointwiseMode::add;
  step.args = {0, 1, -1};
  expr.nodes.push_back(step);
  step.pointwise.mode = PointwiseMode::relu;
  for (int i = 0; i < relus; ++i) {
    step.args = {2 + i, -1, -1};
    expr.nodes.push_back(step);
  }
  Store result;
  result.node = 2 + relus;
  result.access = access(2);
  expr.stores.push_back(result);
  KernelSource source{.root = "elementwise/elementwise.cuh",
                      .sites = {site},
                      .config = {{"index_bits", 32},
                                 {"vector", 4},
                                 {"threads", 256},
                                 {"unroll", 1},
                                 {"unroll_axis", -1},
                                 {"unroll_tails", false},
                                 {"row_tails", true}},
                      .target = target};
  Parameters p(32);
  p.wide("turn", 0);
  p.index("vectors", rows * columns / 4);
  p.index("row_extent", columns);
  p.index("unroll_extent", 1);
  p.divisors("extents", Dims{rows, columns / 4});
  source.parameters = p.fields();
  source.parameters.push_back({"y", "Y::Args"});
  return source;
}

}  // namespace fusor::test
