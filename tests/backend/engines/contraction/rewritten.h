// Owns the comparison of a fusion with another form of it: equal bytes of every tensor in memory.
#pragma once

#include <gtest/gtest.h>

#include "core/fusion.h"
#include "core/graph.h"
#include "tests/backend/reference/host_buffers.h"

namespace fusor {

inline void expect_same_bytes(const Graph& graph, const Fusion& fusion, const Fusion& rewritten) {
  const HostTensors whole(graph), other(graph);
  whole.run(fusion, Reading::oracle);
  other.run(rewritten, Reading::oracle);
  for (size_t i = 0; i < graph.tensors.size(); ++i)
    if (!graph.tensors[i].is_virtual()) {
      EXPECT_EQ(other.bytes(static_cast<int>(i)), whole.bytes(static_cast<int>(i)));
    }
}

}  // namespace fusor
