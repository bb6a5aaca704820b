// Owns what clients on the stub driver have in common: memory for a run, and the text of a plan.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "serialization/serialization.h"
#include "tests/compat/client.h"

namespace fusor::compat_test {

/// The first multiple of 256 bytes.
inline float* aligned(std::vector<float>& memory) {
  void* place = memory.data();
  size_t room = memory.size() * sizeof(float);
  return static_cast<float*>(std::align(256, 1, place, room));
}

/// The plan's own document, which lies behind that of the plan for all values.
inline std::string document_of(const Part& plan) {
  const int64_t size = plan.count(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR);
  std::string text(static_cast<size_t>(size), ' ');
  int64_t count = 0;
  EXPECT_CUDNN(cudnnBackendGetAttribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                        CUDNN_TYPE_CHAR, size, &count, text.data()));
  return text.substr(text.rfind("\n{") + 1);
}

/// The graph of the first plan that the library makes of a client's ops.
inline Graph planned_graph(cudnnHandle_t handle, const std::vector<Part>& ops) {
  const Part plan = plan_of(heuristics(operation_graph(handle, ops).finalize(), CUDNN_HEUR_MODE_A).front());
  return plan_from_json(document_of(plan)).graph;
}

}  // namespace fusor::compat_test
