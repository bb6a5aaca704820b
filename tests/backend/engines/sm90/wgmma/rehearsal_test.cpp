// Owns the tests of the wgmma engine's rehearsal: which settings run their epilogue once for nothing while
// the first copies are on their way.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/backend/engines/ask.h"
#include "tests/backend/engines/sm90/wgmma/cases.h"

namespace fusor {
namespace {

using namespace wgmma_cases;

Graph linear_gelu(int64_t m, int64_t n, int64_t k) {
  GraphBuilder g("linear");
  const Tensor y = g.matmul(g.input("x", {m, k}, DataType::bf16),
                            g.input("w", {k, n}, DataType::bf16, {.strides = Strides{1, k}}));
  g.output(g.gelu(g.add(y, g.input("bias", {1, n}, DataType::bf16))), {.type = DataType::bf16});
  return g.finish();
}

Lowered rehearsed(const Graph& graph, int64_t ping_pong = 0, int64_t split = 1) {
  EngineConfig config{"wgmma", wgmma_engine().revision(), {}};
  config.set("tile_m", ping_pong != 0 ? 64 : 128);
  config.set("tile_n", 64);
  config.set("ping_pong", ping_pong);
  config.set("split", split);
  config.set("rehearse", 1);
  return test::lower(wgmma_engine(), fusion_of(graph), config, DeviceInfo::named("H200"));
}

TEST(WgmmaRehearsal, IsForResultsThatLeaveAsTheyAre) {
  EXPECT_EQ(config_value(source_of(rehearsed(linear_gelu(1568, 512, 512))), "rehearses"), 1);
  EXPECT_EQ(config_value(source_of(rehearsed(linear_gelu(1568, 512, 512), 1)), "rehearses"), 1);
  EXPECT_EQ(config_value(source_of(rehearsed(linear_gelu(64, 512, 4096), 0, 4)), "rehearses"), 0)
      << "parts of a split have no epilogue";
}

TEST(WgmmaRehearsal, IsOfferedWhereEveryTileHasAnSmAtOnce) {
  const DeviceInfo device = DeviceInfo::named("H200");
  const auto offered = [&](int64_t m) {
    return std::ranges::any_of(configs(fusion_of(linear_gelu(m, 512, 512)), device),
                               [](const EngineConfig& config) { return config.knob("rehearse", 0) == 1; });
  };
  EXPECT_TRUE(offered(1568));
  EXPECT_FALSE(offered(65536));
}

TEST(WgmmaRehearsal, KernelsCompile) {
  std::vector<test::KernelCase> kernels;
  test::add_kernels("rehearsed", rehearsed(linear_gelu(1568, 512, 512)), kernels);
  test::add_kernels("rehearsed in turns", rehearsed(linear_gelu(1568, 512, 512), 1), kernels);
  test::expect_all_compiled(kernels);
}

}  // namespace
}  // namespace fusor
