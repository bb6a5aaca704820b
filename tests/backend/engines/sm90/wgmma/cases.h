// Owns what the tests of the wgmma engine share: graphs, what it says of them, and checks of all that it
// makes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "backend/engines/list.h"
#include "frontend/graph_builder.h"
#include "tests/backend/engines/ask.h"
#include "tests/backend/engines/compiled_kernels.h"
#include "tests/backend/engines/launch_facts.h"
#include "tests/backend/planner/whole_fusion.h"

namespace fusor::wgmma_cases {

using test::config_value;
using test::fusion_of;

inline Graph matmul(int64_t m, int64_t n, int64_t k, DataType type, Strides b_strides = {},
                    Precision precision = Precision::exact) {
  GraphBuilder g("matmul", precision);
  const Tensor a = g.input("a", {m, k}, type);
  TensorOptions options;
  if (!b_strides.empty()) options.strides = b_strides;
  const Tensor b = g.input("b", {k, n}, type, options);
  return g.finish({g.matmul(a, b, {.name = "mm"})});
}

inline std::string rule(const Graph& graph, const char* device = "H200") {
  const Support support = test::supports(wgmma_engine(), fusion_of(graph), DeviceInfo::named(device));
  return support ? "" : support.refusal->rule;
}

inline std::vector<EngineConfig> configs(const Fusion& fusion, const DeviceInfo& device) {
  std::vector<EngineConfig> found;
  for (EngineCandidate& candidate : test::candidates(wgmma_engine(), fusion, device))
    found.push_back(std::move(candidate.config));
  return found;
}

inline std::vector<Lowered> lowerings(const Graph& graph) {
  const Fusion fusion = fusion_of(graph);
  const DeviceInfo device = DeviceInfo::named("H200");
  std::vector<Lowered> all;
  for (const EngineConfig& config : configs(fusion, device))
    all.push_back(test::lower(wgmma_engine(), fusion, config, device));
  return all;
}

/// The launch of the product.
inline const Launch& launch_of(const Lowered& lowered) { return std::get<Launch>(lowered.steps.at(0)); }
inline const KernelSource& source_of(const Lowered& lowered) { return *launch_of(lowered).source; }

// Settings that no candidate has, but a plan file may.
inline void expect_every_setting_lowers(const Graph& graph) {
  SCOPED_TRACE(graph.name);
  const DeviceInfo device = DeviceInfo::named("H200");
  const Fusion fusion = fusion_of(graph);
  for (const int64_t tile_m : {64, 128, 256})
    for (const int64_t tile_n : {16, 32, 64, 96, 128, 160, 192, 224, 256})
      for (const int64_t swap : {0, 1})
        for (const int64_t ping_pong : {0, 1})
          for (const int64_t cluster : {1, 2})
            for (const int64_t split : {1, 2, 16}) {
              EngineConfig config{"wgmma", wgmma_engine().revision(), {}};
              config.set("tile_m", tile_m);
              config.set("tile_n", tile_n);
              config.set("swap", swap);
              config.set("ping_pong", ping_pong);
              config.set("cluster", cluster);
              config.set("split", split);
              const Lowered lowered = test::lower(wgmma_engine(), fusion, config, device);
              const Launch& launch = std::get<Launch>(lowered.steps.at(0));
              EXPECT_LE(launch.shared_bytes, device.shared_per_block) << to_string(config);
              EXPECT_EQ(launch.grid[0] % launch.cluster[0], 0u) << to_string(config);
              EXPECT_LE(launch.arguments.bytes().size(), 4096u) << to_string(config);
            }
}

// The kernels of every tile; copies to a cluster are the same whatever the elements, and 16-bit tests compile
// those.
inline void expect_clean_kernels(const Graph& graph) {
  const Fusion fusion = fusion_of(graph);
  const DeviceInfo device = DeviceInfo::named("H200");
  std::vector<test::KernelCase> kernels;
  for (const EngineConfig& config : configs(fusion, device))
    if (config.knob("cluster", 1) == 1)
      test::add_kernels(to_string(config), test::lower(wgmma_engine(), fusion, config, device), kernels);
  test::expect_all_compiled(kernels);
}

}  // namespace fusor::wgmma_cases
