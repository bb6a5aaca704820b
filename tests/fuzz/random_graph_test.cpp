// Tests the random graphs: made from seed and index alone, valid, and of every family.
#include "tools/fuzz/random_graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "core/infer.h"
#include "serialization/serialization.h"
#include "tools/fuzz/op_families.h"

namespace fusor::fuzz {
namespace {

TEST(RandomGraph, SameSeedAndIndexGiveTheSameGraph) {
  for (int64_t index = 0; index < 20; ++index) {
    EXPECT_EQ(random_graph(3, index), random_graph(3, index));
    EXPECT_NE(random_graph(3, index).ops, random_graph(4, index).ops);
    EXPECT_NE(random_graph(3, index).ops, random_graph(3, index + 1).ops);
  }
}

TEST(RandomGraph, KeepsItsLimits) {
  const Limits limits{.ops = 3, .elements = 100};
  for (int64_t index = 0; index < 100; ++index) {
    const Graph graph = random_graph(1, index, limits);
    EXPECT_LE(graph.ops.size(), 3u);
    for (const Tensor& tensor : graph.tensors) EXPECT_LE(element_count(tensor.dims), 100) << index;
  }
}

TEST(RandomGraph, IsReadBackFromItsFile) {
  for (int64_t index = 0; index < 100; ++index) {
    const Graph graph = random_graph(1, index);
    EXPECT_EQ(graph_from_json(to_json(graph)), graph) << index;
  }
}

TEST(RandomGraph, EveryFamilyThatIsProposedAppearsWithin800) {
  std::set<size_t> families;
  std::set<std::string_view> kinds;
  for (int64_t index = 0; index < 800; ++index)
    for (const Op& op : random_graph(1, index).ops) {
      families.insert(op.attributes.index());
      kinds.insert(kind_name(op.attributes));
    }
  const auto is_proposed = [](const OpFamily& family) { return family.share > 0; };
  EXPECT_EQ(static_cast<int64_t>(families.size()), std::ranges::count_if(op_families(), is_proposed));
  EXPECT_EQ(kinds.size(), families.size() + 4);  // three passes of convolution, three distributions
}

TEST(RandomGraph, EveryModeTypeAndMemoryAppearsWithin2000) {
  std::set<PointwiseMode> pointwise;
  std::set<ReductionMode> reductions;
  std::set<DataType> inputs, results;
  std::set<Memory> memories;
  std::set<Precision> precisions;
  for (int64_t index = 0; index < 2000; ++index) {
    const Graph graph = random_graph(1, index);
    precisions.insert(graph.precision);
    for (size_t i = 0; i < graph.tensors.size(); ++i) {
      memories.insert(graph.tensors[i].memory);
      (graph.producer(static_cast<int>(i)) < 0 ? inputs : results).insert(graph.tensors[i].type);
    }
    for (const Op& op : graph.ops) {
      if (const auto* each = std::get_if<Pointwise>(&op.attributes)) pointwise.insert(each->mode);
      if (const auto* each = std::get_if<Reduction>(&op.attributes)) reductions.insert(each->mode);
    }
  }
  // Random words are too large for what comes after; those of rng become smaller numbers.
  EXPECT_EQ(static_cast<int>(pointwise.size()), pointwise_mode_count() - 1);
  EXPECT_EQ(static_cast<int>(reductions.size()), reduction_mode_count());
  EXPECT_EQ(inputs.size(), 15u);
  EXPECT_EQ(results.size(), 15u);
  EXPECT_EQ(memories.size(), 4u);
  EXPECT_EQ(precisions.size(), 3u);
}

}  // namespace
}  // namespace fusor::fuzz
