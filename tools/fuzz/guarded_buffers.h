// Owns the memory of a checked run: exactly as many bytes as promised, at addresses no rounder than promised,
// with guards around, poison inside, and mirrors on a GPU.
#pragma once

#include <string>
#include <vector>

#include "backend/executable.h"
#include "codegen/cuda_driver.h"
#include "core/graph.h"

namespace fusor::fuzz {

class GuardedBuffer {
 public:
  GuardedBuffer() = default;
  GuardedBuffer(int64_t bytes, int64_t alignment);
  std::byte* get() const { return const_cast<std::byte*>(memory_.data()) + offset_; }
  int64_t bytes() const { return bytes_; }
  /// Copies everything, guards too, to the GPU.
  void mirror();
  /// The pointer that runs get.
  void* bound() const;
  void fetch();
  bool guards_hold() const;

 private:
  std::vector<std::byte> memory_;
  int64_t offset_ = 0, bytes_ = 0;
  cuda::DeviceBuffer device_;
};

/// The buffers of one graph's run.
class GuardedBuffers {
 public:
  GuardedBuffers(const Graph& graph, bool on_gpu, int64_t workspace_bytes, uint64_t seed);

  const std::vector<Binding>& bindings() const { return bindings_; }
  void* workspace() const { return workspace_.bytes() == 0 ? nullptr : workspace_.bound(); }
  void fetch();
  /// By position in Graph::tensors, null for virtual tensors and constants.
  const std::vector<void*>& host() const { return pointers_; }
  /// What the run wrote that was not its own: inputs, guards, gaps between elements of outputs; empty where
  /// nothing.
  std::string damage() const;

 private:
  const Graph& graph_;
  bool on_gpu_;
  std::vector<GuardedBuffer> buffers_;
  std::vector<std::vector<std::byte>> inputs_;  ///< as they were
  std::vector<void*> pointers_;
  std::vector<Binding> bindings_;
  GuardedBuffer workspace_;
};

}  // namespace fusor::fuzz
