// Owns streams as Python gives them, and the workspaces that an executable keeps for its runs.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "bindings.h"

namespace fusor::python {

/// A handle; or an object with __cuda_stream__, cuda_stream (PyTorch) or ptr (CuPy).
Stream stream_of(nb::handle object);

/// Workspaces that an executable made itself: on a GPU one for each thread and stream, whose order keeps two
/// runs apart; on the CPU, whose runs end before they return, one for each that is under way.
class Workspaces {
 public:
  Workspaces(const DeviceInfo& device, int64_t bytes) : device_(device), bytes_(bytes) {}

  DeviceMemory take(Stream stream);
  void give_back(DeviceMemory memory);

 private:
  static constexpr size_t kMostKept = 64;

  DeviceMemory made() const;

  const DeviceInfo& device_;
  int64_t bytes_;
  std::mutex mutex_;
  std::vector<DeviceMemory> idle_;
  std::map<std::pair<std::thread::id, Stream>, DeviceMemory> of_stream_;
};

}  // namespace fusor::python
