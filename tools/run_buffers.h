// Owns the memory of a run: host buffers with seeded inputs and poisoned outputs, and their mirrors on a GPU.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/executable.h"
#include "codegen/cuda_driver.h"
#include "core/graph.h"

namespace fusor::command {

/// Host memory of a chosen alignment, filled with 0xff: NaN in every floating type.
class HostBuffer {
 public:
  HostBuffer() = default;
  HostBuffer(int64_t bytes, int64_t alignment);
  void* get() const { return memory_.get(); }

 private:
  struct Free {
    void operator()(void* memory) const;
  };
  std::unique_ptr<void, Free> memory_;
};

/// The buffers of one graph and of its plan's workspace.
class RunBuffers {
 public:
  /// Throws Error{missing} where the machine has too little memory.
  RunBuffers(const Graph& graph, bool on_gpu, int64_t workspace_bytes, uint64_t seed);

  std::span<const Binding> bindings() const { return bindings_; }
  void* workspace() const { return on_gpu_ ? device_workspace_.get() : host_workspace_.get(); }
  /// Brings a host buffer that was written to where runs read it.
  void send(size_t tensor);
  /// Fills what runs write with NaN again, for another candidate's turn.
  void poison_outputs();
  /// Brings what the run wrote to the host.
  void fetch_outputs();
  /// Host buffers by position in Graph::tensors, null for virtual and constant tensors.
  std::span<void* const> host() const { return pointers_; }

 private:
  void add(const Tensor& tensor, bool is_output, uint64_t seed);

  bool on_gpu_;
  std::vector<HostBuffer> buffers_;
  std::vector<void*> pointers_;
  std::vector<cuda::DeviceBuffer> mirrors_;
  std::vector<bool> is_output_;
  std::vector<int64_t> bytes_;
  std::vector<Binding> bindings_;
  HostBuffer host_workspace_;
  cuda::DeviceBuffer device_workspace_;
};

}  // namespace fusor::command
