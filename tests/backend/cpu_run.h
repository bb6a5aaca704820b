// Owns what tests of op families share: a run of a graph on the CPU device, held against the oracle.
#pragma once

#include <memory>
#include <vector>

#include "backend/build.h"
#include "backend/executable.h"
#include "tests/backend/reference/host_buffers.h"

namespace fusor {

/// Results that nobody writes keep their values.
inline void run_on_cpu(const Graph& graph, HostTensors& tensors) {
  const Executable run = load(build(graph, DeviceInfo::cpu()));
  std::vector<Binding> bindings;
  for (size_t i = 0; i < graph.tensors.size(); ++i)
    if (!graph.tensors[i].is_virtual() && graph.tensors[i].memory != Memory::constant)
      bindings.push_back({graph.tensors[i].uid, tensors.pointers()[i]});
  std::vector<std::byte> memory(static_cast<size_t>(run.workspace_bytes()) + 256);
  void* workspace = memory.data();
  size_t space = memory.size();
  run.run(bindings, std::align(256, space - 256, workspace, space));
  const VerifyReport checked = verify(graph, tensors.pointers());
  EXPECT_TRUE(checked.passed()) << to_string(checked);
}

/// The same on random inputs.
inline void expect_right_on_cpu(const Graph& graph) {
  HostTensors tensors(graph, 3);
  run_on_cpu(graph, tensors);
}

/// As run_on_cpu(); gives the values of y.
inline std::vector<double> run_on_cpu(const Graph& graph, HostTensors& tensors, const Tensor& y) {
  run_on_cpu(graph, tensors);
  return tensors.get(y);
}

}  // namespace fusor
