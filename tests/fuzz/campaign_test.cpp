// Tests the library by random graphs: a few hundred on the CPU device, and planned for every GPU profile's
// kind.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/device_info.h"
#include "serialization/serialization.h"
#include "tools/fuzz/check.h"
#include "tools/fuzz/random_graph.h"
#include "tools/fuzz/replay.h"

namespace fusor::fuzz {
namespace {

constexpr uint64_t kSeed = 1;

void expect_all_pass(const Job& job, int64_t graphs) {
  const Limits limits{.ops = 6, .elements = 2048};
  for (int64_t index = 0; index < graphs; ++index) {
    const Graph graph = random_graph(kSeed, index, limits);
    const Verdict verdict = check(graph, random_variant(kSeed, index, job.device), job);
    EXPECT_EQ(verdict.kind, Verdict::Kind::passed) << replay_command(job, kSeed, index, limits) << '\n'
                                                   << verdict.text << '\n'
                                                   << to_json(graph);
  }
}

TEST(Campaign, GraphsOnTheCpuDeviceAgreeWithTheOracle) {
  expect_all_pass({.device = DeviceInfo::cpu()}, 300);
}

TEST(Campaign, GraphsArePlannedForEveryGeneration) {
  for (const char* device : {"A100", "L40", "H200", "B200"})
    expect_all_pass({.device = DeviceInfo::named(device), .plans_only = true}, 100);
}

TEST(Campaign, FusionsPlannedForAGpuAreRightOnTheCpuDevice) {
  for (const char* device : {"A100", "H200"})
    expect_all_pass({.device = DeviceInfo::named(device), .on_cpu = true}, 200);
}

TEST(Campaign, AVariantGoesWithItsIndex) {
  const DeviceInfo device = DeviceInfo::named("H200");
  for (int64_t index = 0; index < 20; ++index) {
    const Variant variant = random_variant(1, index, device), again = random_variant(1, index, device);
    EXPECT_EQ(variant.candidate, again.candidate);
    EXPECT_EQ(variant.forbid, again.forbid);
    EXPECT_EQ(variant.input_seed, again.input_seed);
  }
}

TEST(Campaign, AlikeMessagesHaveOneKey) {
  EXPECT_EQ(key_of("add 'a1': axis 3 of 'x' is 7"), key_of("add 'b': axis 14 of 'yy' is 1"));
  EXPECT_NE(key_of("add: is 7"), key_of("add: was 7"));
}

}  // namespace
}  // namespace fusor::fuzz
