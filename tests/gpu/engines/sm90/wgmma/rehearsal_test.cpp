// Owns the GPU tests of the wgmma engine's rehearsal: an epilogue that runs once for nothing first changes no
// result, and stores none.
#include <gtest/gtest.h>

#include "tests/gpu/engines/sm90/wgmma/cases.h"

namespace fusor {
namespace {

using namespace wgmma_cases;

Graph rehearsed_linear(int64_t m, int64_t n, int64_t k) {
  GraphBuilder g("linear");
  const Tensor y = g.matmul(g.input("x", {m, k}, DataType::bf16),
                            g.input("w", {k, n}, DataType::bf16, {.strides = Strides{1, k}}));
  g.output(g.gelu(g.add(y, g.input("bias", {1, n}, DataType::bf16))), {.type = DataType::bf16});
  return g.finish();
}

// Few tiles, more than the device has SMs, rows and columns that end within a tile.
TEST(WgmmaRehearsalGpu, ChangesNoResult) {
  FUSOR_NEEDS_HOPPER();
  for (const auto& [m, n] : {std::pair{96, 520}, {67, 264}, {1568, 2048}})
    for (const int64_t swap : {0, 1})
      for (const int64_t ping_pong : {0, 1}) {
        const Graph graph = rehearsed_linear(m, n, 328);
        std::vector<Candidate> all =
            candidates(graph, DeviceInfo::current(), PlannerOptions{.engine_list = kWgmmaOnly});
        ASSERT_FALSE(all.empty());
        EngineConfig& config = all.front().fusions.front().config;
        for (const auto& [name, value] : {std::pair{"tile_m", int64_t{ping_pong != 0 ? 64 : 128}},
                                          {"tile_n", int64_t{64}},
                                          {"swap", swap},
                                          {"ping_pong", ping_pong},
                                          {"cluster", int64_t{1}},
                                          {"split", int64_t{1}},
                                          {"gather", int64_t{0}},
                                          {"cluster_n", int64_t{1}},
                                          {"rehearse", int64_t{1}}})
          config.set(name, value);
        expect_config_correct(graph, all.front(), kWgmmaOnly, "rehearsed");
      }
}

}  // namespace
}  // namespace fusor
