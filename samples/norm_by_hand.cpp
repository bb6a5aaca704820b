// Layer norm, written out by hand: totals of a row that are needed again are one fusion, whatever they are
// called.
#include <fusor.h>

#include <iostream>

#include "sample_support.h"

namespace {

bool norm_by_hand() {
  using namespace fusor;
  GraphBuilder g("layer norm by hand");
  const Tensor x = g.input("x", {64, 512}, DataType::f32);
  const Tensor gamma = g.input("gamma", {1, 512}, DataType::f32);
  const Tensor beta = g.input("beta", {1, 512}, DataType::f32);
  const Tensor centred = g.sub(x, g.reduce(x, ReductionMode::avg, {1}));
  const Tensor variance = g.reduce(g.mul(centred, centred), ReductionMode::avg, {1});
  const Tensor inverse = g.rsqrt(g.add(variance, g.constant(1e-5)));
  g.output(g.add(g.mul(g.mul(centred, inverse), gamma), beta), {.name = "y"});
  const Graph graph = g.finish();

  std::cout << explain(graph, DeviceInfo::named("H200"));  // one kernel of the rows engine there
  const Plan plan = build(graph, DeviceInfo::current());
  sample::GraphMemory memory(graph, plan.device);
  memory.run(load(plan));
  return verify(graph, memory.host()).passed();
}

}  // namespace

int main() { return sample::guarded(norm_by_hand); }
