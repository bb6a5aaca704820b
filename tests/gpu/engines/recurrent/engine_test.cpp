// Owns the tests of the recurrent engine on the GPU: every cell in both directions of time, of odd sizes,
// against the steps that it replaces, and equal bits from run to run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/convert.h"
#include "tests/backend/engines/recurrent/cases.h"
#include "tests/gpu/device_run.h"

namespace fusor {
namespace {

using namespace recurrent_cases;

// Weights of the size that layers begin with: states stay apart, and gradients near one.
void set_numbers(DeviceRun& run, const Graph& graph, const Layer& layer) {
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    const Tensor& tensor = graph.tensors[i];
    if (tensor.is_virtual() || tensor.is_scalar() || graph.producer(static_cast<int>(i)) >= 0) continue;
    const bool is_weight = tensor.name.starts_with("weight") || tensor.name.starts_with("bias");
    const double scale = is_weight ? 1 / std::sqrt(static_cast<double>(layer.hidden)) : 1;
    run.edit(tensor.name, [&](std::byte* bytes) {
      for (int64_t k = 0; k < element_count(tensor.dims); ++k) {
        if (is_real(tensor.type))
          store_real(tensor.type, bytes, k,
                     scale * std::sin(12.9898 * static_cast<double>(k + 3) + static_cast<double>(i)));
        else
          store_int(tensor.type, bytes, k, (k * 5) % (layer.time + 2));
      }
    });
  }
}

void expect_like_steps(const Layer& layer) {
  for (const bool backward : {false, true}) {
    const Graph graph = graph_of(layer, backward);
    BuildOptions in_steps;
    in_steps.forbid = {"recurrent"};
    const Plan whole = build(graph, DeviceInfo::current());
    ASSERT_TRUE(std::ranges::any_of(
        whole.fusions, [](const PlannedFusion& fusion) { return fusion.config.engine == "recurrent"; }));
    DeviceRun got(graph, whole), again(graph, whole),
        want(graph, build(graph, DeviceInfo::current(), in_steps));
    for (DeviceRun* run : {&got, &again, &want}) {
      set_numbers(*run, graph, layer);
      run->run();
      EXPECT_TRUE(run->gaps_are_untouched());
    }
    for (size_t i = 0; i < graph.tensors.size(); ++i) {
      const Tensor& tensor = graph.tensors[i];
      if (tensor.is_virtual() || graph.producer(static_cast<int>(i)) < 0) continue;
      EXPECT_EQ(got.host(tensor.name), again.host(tensor.name)) << tensor.name << " differs from run to run";
      double largest = 0, error = 0;
      for (int64_t k = 0; k < element_count(tensor.dims); ++k) {
        const double right = load_real(tensor.type, want.host(tensor.name).data(), k);
        largest = std::max(largest, std::abs(right));
        error = std::max(error, std::abs(load_real(tensor.type, got.host(tensor.name).data(), k) - right));
      }
      EXPECT_LE(error, 8 * epsilon(tensor.type) * std::max(largest, 0.1))
          << graph.name << ' ' << tensor.name << ", largest " << largest;
    }
  }
}

TEST(RecurrentGpu, IsRightForEveryCell) {
  FUSOR_NEEDS_GPU();
  for (const RnnCell cell : {RnnCell::lstm, RnnCell::gru, RnnCell::rnn_relu, RnnCell::rnn_tanh})
    for (const bool lengths : {false, true})
      expect_like_steps({.cell = cell, .time = 6, .layers = 2, .bidirectional = true, .lengths = lengths});
}

TEST(RecurrentGpu, IsRightForOddSizes) {
  FUSOR_NEEDS_GPU();
  expect_like_steps({.batch = 1, .inputs = 7, .hidden = 3, .states = false});
  expect_like_steps({.cell = RnnCell::gru, .batch = 33, .inputs = 65, .hidden = 257, .bias = false});
  expect_like_steps({.time = 4, .batch = 70, .inputs = 16, .hidden = 777, .lengths = true});
  expect_like_steps({.time = 4, .batch = 64, .inputs = 16, .hidden = 1024, .type = DataType::bf16});
  expect_like_steps({.cell = RnnCell::gru, .time = 4, .batch = 200, .inputs = 16, .hidden = 300});
}

}  // namespace
}  // namespace fusor
