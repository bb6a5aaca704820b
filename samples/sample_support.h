// Owns what the samples share and no user needs to read: memory for every tensor of a graph, on the host and,
// where the device is a GPU, beside it there.
#pragma once

#include <fusor.h>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <vector>

#include "device_memory.h"

namespace sample {

/// Buffers for a graph: inputs filled with seeded random numbers, outputs with zeros.
class GraphMemory {
 public:
  GraphMemory(const fusor::Graph& graph, const fusor::DeviceInfo& device)
      : graph_(graph), on_gpu_(!device.is_cpu()) {
    if (on_gpu_) Driver::get().make_current();
    for (size_t i = 0; i < graph.tensors.size(); ++i) {
      const fusor::Tensor& tensor = graph.tensors[i];
      const bool bound = tensor.memory == fusor::Memory::device || tensor.memory == fusor::Memory::host;
      host_.emplace_back(bound ? static_cast<size_t>(tensor.bytes()) : 0);
      pointers_.push_back(bound ? host_.back().data() : nullptr);
      if (bound && graph.producer(static_cast<int>(i)) < 0)
        fusor::fill_random(tensor, host_.back().data(), i + 1);
      const bool mirrored = on_gpu_ && tensor.memory == fusor::Memory::device;
      device_.emplace_back(mirrored ? static_cast<size_t>(tensor.bytes()) : 0);
    }
  }

  /// Host buffers by position in Graph::tensors, null for virtual tensors: what verify() reads.
  std::span<void* const> host() const { return pointers_; }

  /// Copies the inputs to the device, runs, and copies the outputs back. A program of yours does the first
  /// and the last once, if at all, and keeps the workspace.
  void run(const fusor::Executable& executable) {
    for_each_mirrored([&](size_t i) { device_[i].copy_from(host_[i].data()); });
    const int64_t bytes = executable.workspace_bytes();
    if (on_gpu_) {
      const DeviceMemory workspace(static_cast<size_t>(bytes));
      executable.run(bindings(), workspace.get());
      Driver::get().synchronize();
    } else {
      struct alignas(256) Block {
        std::byte bytes[256];
      };
      std::vector<Block> workspace(static_cast<size_t>(bytes + 255) / 256);
      executable.run(bindings(), workspace.data());
    }
    for_each_mirrored([&](size_t i) { device_[i].copy_to(host_[i].data()); });
  }

 private:
  std::vector<fusor::Binding> bindings() const {
    std::vector<fusor::Binding> result;
    for (size_t i = 0; i < host_.size(); ++i)
      if (pointers_[i] != nullptr)
        result.emplace_back(graph_.tensors[i], device_[i].get() != nullptr ? device_[i].get() : pointers_[i]);
    return result;
  }

  void for_each_mirrored(const std::function<void(size_t)>& body) {
    for (size_t i = 0; i < device_.size(); ++i)
      if (device_[i].get() != nullptr) body(i);
  }

  const fusor::Graph& graph_;
  bool on_gpu_;
  std::vector<std::vector<std::byte>> host_;
  std::vector<void*> pointers_;
  std::vector<DeviceMemory> device_;
};

/// Plans the graph for the present device, runs it on random inputs and prints how it compares with a float64
/// evaluation. Whether all results are right.
inline bool run_and_verify(const fusor::Graph& graph) {
  const fusor::Plan plan = fusor::build(graph, fusor::DeviceInfo::current());
  GraphMemory memory(graph, plan.device);
  memory.run(fusor::load(plan));
  const fusor::VerifyReport report = fusor::verify(graph, memory.host(), 1, plan.notes);
  std::fputs(fusor::to_string(report).c_str(), stdout);
  return report.passed();
}

/// Runs a sample's body; an Error becomes one line and exit code 2, a wrong result is exit code 1.
inline int guarded(const std::function<bool()>& body) {
  try {
    return body() ? 0 : 1;
  } catch (const fusor::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 2;
  }
}

}  // namespace sample
