// Attention, written out by hand: scores, a causal mask, softmax and the product with v. fusor finds the form
// whatever the ops are called; `sdpa_fwd` is the same as one op.
#include <fusor.h>

#include <cmath>
#include <iostream>

#include "sample_support.h"

namespace {

bool attention() {
  using namespace fusor;
  GraphBuilder g("attention by hand");
  const Dims dims{2, 4, 128, 64};  // batch, heads, sequence, features
  const Tensor q = g.input("q", dims, DataType::f16), k = g.input("k", dims, DataType::f16);
  const Tensor v = g.input("v", dims, DataType::f16);
  const Tensor scale = g.constant(1 / std::sqrt(64.0));
  const Tensor scores = g.mul(g.matmul(q, g.transpose(k, {0, 1, 3, 2})), scale);
  const Tensor is_past = g.cmp_ge(g.gen_index(scores, 2), g.gen_index(scores, 3));
  const Tensor masked = g.binary_select(scores, g.constant(-INFINITY), is_past);
  const Tensor e = g.exp(g.sub(masked, g.reduce(masked, ReductionMode::max, {-1})));
  const Tensor p = g.div(e, g.reduce(e, ReductionMode::add, {-1}));
  g.output(g.matmul(p, v), {.name = "o"});
  const Graph graph = g.finish();

  std::cout << explain(graph, DeviceInfo::named("H200"));  // one fusion there, and no score in memory
  const Plan plan = build(graph, DeviceInfo::current());
  sample::GraphMemory memory(graph, plan.device);
  memory.run(load(plan));
  return verify(graph, memory.host(), 1, plan.notes).passed();
}

}  // namespace

int main() { return sample::guarded(attention); }
