// Owns the tests of the recurrent engine: which layers become recurrences, that these mean what the steps do,
// and what is launched.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "backend/build.h"
#include "backend/choose.h"
#include "backend/engines/list.h"
#include "backend/engines/recurrent/stays_whole.h"
#include "backend/reference/reference.h"
#include "core/convert.h"
#include "tests/backend/engines/ask.h"
#include "tests/backend/engines/compiled_kernels.h"
#include "tests/backend/engines/recurrent/cases.h"

namespace fusor {
namespace {

using namespace recurrent_cases;

bool is_recurrence(const Graph&, const Op& op) { return std::holds_alternative<Recurrence>(op.attributes); }

DeviceInfo hopper() { return DeviceInfo::named("H200"); }

Plan planned(const Layer& layer, bool backward, BuildOptions options = {}) {
  options.compile = false;
  return build(graph_of(layer, backward), hopper(), options);
}

int recurrences_in(const Plan& plan) {
  int count = 0;
  for (const PlannedFusion& fusion : plan.fusions) count += fusion.config.engine == "recurrent" ? 1 : 0;
  return count;
}

TEST(RecurrentEngine, CarriesOutEachLayerAndDirection) {
  EXPECT_EQ(recurrences_in(planned({.layers = 2, .bidirectional = true}, false)), 4);
  EXPECT_EQ(recurrences_in(planned({.cell = RnnCell::gru, .layers = 2}, true)), 4);
  EXPECT_EQ(recurrences_in(planned({.cell = RnnCell::rnn_tanh, .batch = 300, .hidden = 333}, false)), 1);
  EXPECT_EQ(
      recurrences_in(planned({.cell = RnnCell::rnn_relu, .lengths = true, .type = DataType::bf16}, true)), 2);
}

TEST(RecurrentEngine, LeavesStepsWhereItDoesNotFit) {
  EXPECT_EQ(recurrences_in(planned({.type = DataType::f32}, false)), 0);
  EXPECT_EQ(recurrences_in(planned({.projection = 8}, false)), 0);
  EXPECT_EQ(recurrences_in(planned({.time = 3}, false)), 0);
  EXPECT_EQ(recurrences_in(planned({.time = 4, .batch = 2, .inputs = 8, .hidden = 1040}, false)), 0);
  EXPECT_EQ(recurrences_in(planned({.time = 4, .batch = 400, .inputs = 8, .hidden = 1024}, false)), 0);
  BuildOptions forbidden;
  forbidden.forbid = {"recurrent"};
  EXPECT_EQ(recurrences_in(planned({}, true, forbidden)), 0);
}

// The buffers of a graph's own tensors, filled with numbers, and what the oracle makes of them.
std::vector<std::vector<std::byte>> results_of(const Graph& graph) {
  std::vector<std::vector<std::byte>> bytes;
  std::vector<void*> pointers;
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    const Tensor& tensor = graph.tensors[i];
    bytes.emplace_back(tensor.is_virtual() || tensor.is_scalar() ? 0 : static_cast<size_t>(tensor.bytes()));
    if (!bytes.back().empty() && graph.producer(static_cast<int>(i)) < 0)
      for (int64_t k = 0; k < element_count(tensor.dims); ++k) {
        if (is_real(tensor.type))
          store_real(tensor.type, bytes.back().data(), k,
                     0.6 * std::sin(12.9898 * static_cast<double>(k + 3)));
        else
          store_int(tensor.type, bytes.back().data(), k, k % 7);
      }
    pointers.push_back(bytes.back().empty() ? nullptr : bytes.back().data());
  }
  evaluate_graph(graph, pointers);
  return bytes;
}

// A layer in recurrences, which are then written in steps, gives what a layer in steps gives. In fp64, which
// only rounds h less.
TEST(Recurrence, MeansWhatTheStepsDo) {
  for (const RnnCell cell : {RnnCell::lstm, RnnCell::gru, RnnCell::rnn_relu, RnnCell::rnn_tanh})
    for (const bool backward : {false, true})
      for (const bool lengths : {false, true}) {
        const Layer layer{.cell = cell,
                          .time = 5,
                          .batch = 3,
                          .inputs = 4,
                          .hidden = 5,
                          .layers = 2,
                          .bidirectional = true,
                          .lengths = lengths,
                          .type = DataType::f64};
        const Graph steps = graph_of(layer, backward), whole = expand_composites(steps, is_recurrence);
        ASSERT_TRUE(std::ranges::any_of(whole.ops, [&](const Op& op) { return is_recurrence(whole, op); }));
        const auto want = results_of(steps), got = results_of(whole);
        for (size_t i = 0; i < want.size(); ++i) {
          const Tensor& tensor = steps.tensors[i];
          if (want[i].empty() || !is_real(tensor.type)) continue;
          for (int64_t k = 0; k < element_count(tensor.dims); ++k)
            ASSERT_NEAR(load_real(tensor.type, got[i].data(), k), load_real(tensor.type, want[i].data(), k),
                        1e-5)
                << to_string(cell) << ' ' << tensor.name << ' ' << k;
        }
      }
}

TEST(RecurrentEngine, LaunchesAllBlocksAtOnce) {
  const DeviceInfo device = hopper();
  PlannerOptions options;
  options.build.compile = false;
  const Layer layer{.batch = 64, .inputs = 512, .hidden = 512};
  const Choices choices = choose(graph_of(layer, false), device, options);
  int found = 0;
  for (const Choice& choice : choices.fusions) {
    const EngineOption& option = choice.options.front();
    if (option.engine != &recurrent_engine()) continue;
    ++found;
    const Lowered lowered = choice.by(option).lower(option.config);
    ASSERT_EQ(lowered.steps.size(), 2U);
    EXPECT_TRUE(std::holds_alternative<Fill>(lowered.steps[0])) << "the flags";
    const auto& launch = std::get<Launch>(lowered.steps[1]);
    EXPECT_TRUE(launch.cooperative);
    EXPECT_LE(launch.grid[0] * launch.grid[1], static_cast<uint32_t>(device.sm_count));
    EXPECT_LE(launch.shared_bytes, device.shared_per_block);
  }
  EXPECT_EQ(found, 1);
}

}  // namespace
}  // namespace fusor
