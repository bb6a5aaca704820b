// Owns the tests of which ragged operands attention reads where they lie, and of what happens to the others.
#include <gtest/gtest.h>

#include "backend/build.h"
#include "backend/executable.h"
#include "core/print.h"
#include "tests/backend/reference/host_buffers.h"
#include "tests/support/ragged_attention.h"

namespace fusor {
namespace {

using test::RaggedCase;

Plan plan_on(const Graph& graph, const char* device) {
  return build(graph, DeviceInfo::named(device), {.compile = false});
}

RaggedCase of_two() {
  return {.queries = {300, 150}, .keys = {300, 150}, .heads = 4, .shared_heads = 2, .is_causal = true};
}

TEST(RaggedAttention, IsOneFusionWithMapsOfItsEntries) {
  const Plan plan = plan_on(test::ragged_attention(of_two()), "H200");
  ASSERT_EQ(plan.fusions.size(), 1U);
  const std::string text = source(plan);
  EXPECT_NE(text.find("attention_ragged_maps"), std::string::npos);
  EXPECT_NE(text.find("limited = true"), std::string::npos);
  EXPECT_NE(text.find("placed = true"), std::string::npos);
  EXPECT_NE(text.find("ordered = true"), std::string::npos);
  // Three operands with two entries each, and the order of tiles.
  EXPECT_EQ(plan.workspace_bytes, (3 * 2 + 2) * 256);
}

TEST(RaggedAttention, OfTheOpIsOneFusionForHeadsThatShareKeys) {
  for (const int64_t shared : {4, 2, 1}) {
    RaggedCase c = of_two();
    c.shared_heads = shared;
    const Plan plan = plan_on(test::ragged_attention_by_op(c), "H200");
    ASSERT_EQ(plan.fusions.size(), 1U) << shared;
    EXPECT_EQ(plan.fusions[0].config.engine, "attention");
    EXPECT_NE(source(plan).find("placed = true"), std::string::npos);
  }
}

// Without lengths, what is behind a sequence's last row counts as zeros.
TEST(RaggedAttention, NeedsNoLengths) {
  RaggedCase c = of_two();
  c.has_lengths = false;
  const Plan plan = plan_on(test::ragged_attention(c), "H200");
  ASSERT_EQ(plan.fusions.size(), 1U);
  EXPECT_NE(source(plan).find("limited = false"), std::string::npos);
}

TEST(RaggedAttention, GradientsAreOneFusion) {
  const Plan plan = plan_on(test::ragged_gradients(of_two()), "H200");
  ASSERT_EQ(plan.fusions.size(), 1U);
  const std::string text = source(plan);
  for (const char* part : {"attention_ragged_maps", "placed_dq = true", "placed_dk = true",
                           "placed_dv = true", "ordered = true"})
    EXPECT_NE(text.find(part), std::string::npos) << part;
}

// One fusion behind the sums of rows; lengths and the diagonal between them are no part of the score.
TEST(RaggedAttention, GradientsOfTheOpAreOneFusionBehindSums) {
  struct Form {
    int64_t shared_heads = 2;
    bool is_causal = true, ends_together = false, has_one_length = false;
    const char* bound = "upper = 1";
  };
  for (const Form& form : {Form{}, Form{.shared_heads = 4}, Form{.is_causal = false, .bound = "upper = 0"},
                           Form{.ends_together = true, .bound = "masks = true"},
                           Form{.ends_together = true, .has_one_length = true}}) {
    RaggedCase c = of_two();
    c.shared_heads = form.shared_heads;
    c.is_causal = form.is_causal;
    c.ends_together = form.ends_together;
    c.has_one_length = form.has_one_length;
    const Plan plan = plan_on(test::ragged_gradients_by_op(c), "H200");
    ASSERT_EQ(plan.fusions.size(), 2U);
    const std::string text = source(plan);
    for (const char* part :
         {"attention_ragged_maps", "placed_dq = true", "placed_dk = true", "placed_dv = true",
          "ordered = true", "plain = true", "limited = true", "rounds = true", form.bound})
      EXPECT_NE(text.find(part), std::string::npos) << part;
  }
}

// Lengths are found among the other conditions of a mask, and bound the blocks that are loaded.
TEST(RaggedAttention, LengthsBesideABlockMaskAndAWindowBoundBlocks) {
  RaggedCase c = of_two();
  c.queries = c.keys = {2000, 1500};
  const Plan plan = plan_on(test::padded_attention_of_blocks(c, 300), "H200");
  const auto& attention = plan.fusions.back();
  EXPECT_EQ(attention.config.engine, "attention");
  const std::string text = source(plan);
  for (const char* part : {"limited = true", "lower = 1", "upper = 1"})
    EXPECT_NE(text.find(part), std::string::npos) << part;
}

// GPUs without a fused backward pass zero the padding of all operands in one pass.
TEST(RaggedAttention, PaddedOperandsOfOtherArchitecturesAreMadeInOnePass) {
  RaggedCase c = of_two();
  c.shared_heads = c.heads;
  c.is_padded = true;
  const Plan plan = plan_on(test::ragged_gradients_by_op(c), "A100");
  const auto makes_operands = [](const PlannedFusion& fusion) { return fusion.ops.size() == 12; };
  EXPECT_EQ(std::ranges::count_if(plan.fusions, makes_operands), 1);
}

TEST(RaggedAttention, GradientsOfScoresLeaveInOneFusion) {
  RaggedCase c = of_two();
  c.leaves_scores = true;
  const Plan plan = plan_on(test::ragged_gradients(c), "H200");
  ASSERT_EQ(plan.fusions.size(), 1U);
  EXPECT_NE(source(plan).find("stores = true"), std::string::npos);
}

// Rows of 12 elements begin at no multiple of 16 bytes: they are copied in front.
TEST(RaggedAttention, CopiesRowsThatNoMapReaches) {
  RaggedCase c = of_two();
  c.heads = c.shared_heads = 1;
  c.head = c.value = 12;
  const Plan plan = plan_on(test::ragged_attention(c), "H200");
  EXPECT_GT(plan.fusions.size(), 1U);
  EXPECT_EQ(source(plan).find("attention_ragged_maps"), std::string::npos);
}

TEST(RaggedAttention, IsCopiedForOtherArchitectures) {
  const Plan plan = plan_on(test::ragged_attention(of_two()), "A100");
  EXPECT_GT(plan.fusions.size(), 1U);
}

// Runs the graph, and holds its results against the oracle.
HostTensors run_on_cpu(const Graph& graph, const auto& fill) {
  HostTensors tensors(graph);
  fill([&](const std::string& name, const auto& write) {
    const auto at = static_cast<size_t>(graph.find(name));
    write(static_cast<std::byte*>(tensors.pointers()[at]));
  });
  const Executable run = load(build(graph, DeviceInfo::cpu()));
  std::vector<Binding> bindings;
  for (size_t i = 0; i < graph.tensors.size(); ++i)
    if (!graph.tensors[i].is_virtual() && graph.tensors[i].memory != Memory::constant)
      bindings.push_back({graph.tensors[i].uid, tensors.pointers()[i]});
  std::vector<std::byte> workspace(static_cast<size_t>(run.workspace_bytes()) + 256);
  void* start = workspace.data();
  size_t space = workspace.size();
  run.run(bindings, std::align(256, space - 256, start, space));
  const VerifyReport report = verify(graph, tensors.pointers());
  EXPECT_TRUE(report.passed()) << to_string(report);
  return tensors;
}

// The CPU device reads nothing of rows that do not exist, wherever sequences begin.
TEST(RaggedAttention, RunsOnTheCpu) {
  const RaggedCase c{.queries = {5, 0, 3}, .keys = {7, 2, 3}, .head = 8, .value = 8, .gap = 1, .shift = 3};
  run_on_cpu(test::ragged_attention(c), [&](const auto& edit) { test::fill_ragged(c, edit); });
}

// Heads in groups, by hand, and heads of one axis, which the op splits.
TEST(RaggedAttention, OfTheOpGivesWhatIsGivenByHand) {
  const RaggedCase c{.queries = {5, 0, 3},
                     .keys = {7, 2, 3},
                     .heads = 6,
                     .shared_heads = 2,
                     .head = 8,
                     .value = 8,
                     .gap = 1};
  const auto run = [&](const Graph& graph) {
    return run_on_cpu(graph, [&](const auto& edit) {
      for (const char* name : {"q", "k", "v"})
        edit(name, [&](std::byte* bytes) {
          const int64_t bytes_of = graph.tensors[static_cast<size_t>(graph.find(name))].bytes();
          for (int64_t i = 0; i < bytes_of / 2; ++i)
            store_real(DataType::bf16, bytes, i, std::sin(static_cast<double>(i) * (name[0] - 'a')));
        });
      test::fill_ragged(c, edit);
    });
  };
  const Graph by_hand = test::ragged_attention(c), by_op = test::ragged_attention_by_op(c);
  const HostTensors wanted = run(by_hand), made = run(by_op);
  for (const char* name : {"o", "stats"}) {
    const auto values = [&](const HostTensors& tensors, const Graph& graph) {
      return tensors.get(graph.tensors[static_cast<size_t>(graph.find(name))]);
    };
    EXPECT_EQ(values(made, by_op), values(wanted, by_hand)) << name;
  }
}

TEST(RaggedAttention, GradientsRunOnTheCpu) {
  const RaggedCase c{
      .queries = {5, 0, 3}, .keys = {7, 2, 3}, .heads = 4, .head = 8, .value = 8, .gap = 1, .shift = 3};
  run_on_cpu(test::ragged_gradients(c), [&](const auto& edit) { test::fill_ragged_gradients(c, edit); });
}

TEST(RaggedAttention, GradientsOfTheOpRunOnTheCpu) {
  RaggedCase c{
      .queries = {5, 0, 3}, .keys = {7, 2, 3}, .heads = 4, .head = 8, .value = 8, .gap = 1, .shift = 3};
  for (const bool is_padded : {false, true}) {
    c.is_padded = is_padded;
    run_on_cpu(test::ragged_gradients_by_op(c),
               [&](const auto& edit) { test::fill_ragged_gradients_by_op(c, edit); });
  }
}

}  // namespace
}  // namespace fusor
