// Owns check(): one graph planned, and where the device is here run and compared with the oracle.
#pragma once

#include <string>
#include <vector>

#include "core/device_info.h"
#include "core/graph.h"

namespace fusor::fuzz {

/// What is done with every graph.
struct Job {
  DeviceInfo device;
  bool plans_only = false;
  bool compiles = false;
  /// The fusions that were planned for the device are carried out by the CPU device, and checked: what the
  /// planner makes of a graph is tested without that device.
  bool on_cpu = false;
};

/// Which plan of a graph is taken, and on which inputs it runs.
struct Variant {
  int64_t candidate = 0;  ///< counted round where there are fewer
  std::vector<std::string> forbid = {};
  uint64_t input_seed = 1;
};

/// The variant that goes with random_graph(seed, index).
Variant random_variant(uint64_t seed, int64_t index, const DeviceInfo& device);

struct Verdict {
  enum class Kind { passed, wrong, refused, crashed };
  Kind kind = Kind::passed;
  std::string text;  ///< what a person reads
  std::string key;   ///< equal where two failures are alike: the text without names and numbers
};

/// Never throws: an exception of the library is a verdict.
Verdict check(const Graph& graph, const Variant& variant, const Job& job);
/// The key of a message.
std::string key_of(const std::string& text);

}  // namespace fusor::fuzz
