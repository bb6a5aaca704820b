// Owns the check that a plan's results are the same bits in every run, in whatever order its blocks, threads
// and copies come.
#pragma once

#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

#include "tests/gpu/device_run.h"

namespace fusor {

inline constexpr int kRunsOfSameBits = 100;

/// A hundred runs more write the bytes that the first one wrote, of every tensor that the graph writes.
inline void expect_same_bits(const Graph& graph, const Plan& plan, const std::string& what = "") {
  std::vector<std::string> written;
  for (size_t i = 0; i < graph.tensors.size(); ++i)
    if (graph.tensors[i].memory == Memory::device && graph.producer(static_cast<int>(i)) >= 0)
      written.push_back(graph.tensors[i].name);
  ASSERT_FALSE(written.empty());
  DeviceRun run(graph, plan);
  run.run();
  std::vector<std::vector<std::byte>> first;
  first.reserve(written.size());
  for (const std::string& name : written) first.push_back(run.host(name));
  for (int i = 0; i < kRunsOfSameBits; ++i) {
    run.run();
    for (size_t j = 0; j < written.size(); ++j)
      ASSERT_TRUE(run.host(written[j]) == first[j]) << written[j] << " in run " << i << " " << what;
  }
}

/// The same for every candidate of these engines.
inline void expect_same_bits_of_every_config(const Graph& graph, std::span<const Engine* const> engines) {
  const DeviceInfo device = DeviceInfo::current();
  const PlannerOptions options{.engine_list = engines};
  for (const Candidate& candidate : candidates(graph, device, options))
    expect_same_bits(graph, build(graph, device, candidate, options),
                     to_string(candidate.fusions.front().config));
}

}  // namespace fusor
