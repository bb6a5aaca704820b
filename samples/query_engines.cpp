// Owns the query sample: which engines could carry out a graph on a GPU that need not be here, with which
// settings, and a plan whose choice is the caller's.
#include <fusor.h>

#include <algorithm>
#include <iostream>

#include "sample_support.h"

namespace {

fusor::Graph matmul_bias_relu() {
  using namespace fusor;
  GraphBuilder g("matmul_bias_relu");
  const Tensor a = g.input("a", {512, 1024}, DataType::f16);
  const Tensor b = g.input("b", {1024, 2048}, DataType::f16);
  const Tensor bias = g.input("bias", {1, 2048}, DataType::f16);
  const Tensor sum = g.add(g.matmul(a, b, {.name = "matmul"}), bias, {.name = "add_bias"});
  g.output(g.relu(sum, {.name = "relu"}), {.name = "y"});
  return g.finish();
}

void print(const fusor::EngineOffer& offer) {
  std::cout << "  " << offer.answer.engine << ": ";
  if (!offer.answer.support) {
    std::cout << "no, " << to_string(*offer.answer.support.refusal) << '\n';
    return;
  }
  std::cout << "yes, " << offer.settings.size() << " settings, the best " << offer.answer.seconds * 1e6
            << " us with " << offer.answer.config << '\n';
  for (const fusor::Knob& knob : offer.knobs) {
    std::cout << "    " << knob.name << " is one of";
    for (const int64_t value : knob.values) std::cout << ' ' << value;
    std::cout << '\n';
  }
}

bool query(const std::string& device_name) {
  using namespace fusor;
  const DeviceInfo device = DeviceInfo::named(device_name);
  const Graph graph = matmul_bias_relu();

  for (const FusionEngines& fusion : engines_for(graph, device)) {
    std::cout << "fusion of";
    for (const std::string& op : fusion.ops) std::cout << ' ' << op;
    std::cout << '\n';
    std::ranges::for_each(fusion.engines, print);
  }

  // Candidates hold the graph that they speak of: they can be printed, compared, and chosen from.
  const std::vector<Candidate> ways = candidates(graph, device);
  std::cout << "the candidate that needs the least workspace:\n"
            << to_string(*std::ranges::min_element(ways, {}, &Candidate::workspace_bytes));
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string device = argc > 1 ? argv[1] : "H200";
  return sample::guarded([&] { return query(device); });
}
