// Owns Plan: the choices made for a graph on a device, and nothing else; steps are derived from them by
// lower().
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/api.h"
#include "core/device_info.h"
#include "core/engine_config.h"
#include "core/graph.h"
#include "core/support.h"

namespace fusor {

/// The ops of one fusion (indices into Graph::ops, ascending) and who carries them out.
struct PlannedFusion {
  std::vector<int> ops;
  EngineConfig config;
  friend bool operator==(const PlannedFusion&, const PlannedFusion&) = default;
};

/// Facts of a candidate's numerics and kernels. Engines are excluded by name (BuildOptions::forbid), numerics
/// by the graph's Precision.
struct Notes {
  bool deterministic = true;
  bool tensor_cores = false;
  bool tf32 = false;
  bool short_sums = false;      ///< of fp8: Precision::allow_short_sums
  bool late_division = false;   ///< of a softmax, behind a product: Precision::strict forbids it
  bool late_scale = false;      ///< of gradients of scores, behind a product: Precision::strict forbids it
  bool split_operands = false;  ///< fp32 is multiplied in parts on tensor cores: Precision::strict forbids it
  bool down_converts = false;
  bool compiles_at_run_time = true;

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& field) {
    field("deterministic", self.deterministic);
    field("tensor_cores", self.tensor_cores);
    field("tf32", self.tf32);
    field("short_sums", self.short_sums);
    field("late_division", self.late_division);
    field("late_scale", self.late_scale);
    field("split_operands", self.split_operands);
    field("down_converts", self.down_converts);
    field("compiles_at_run_time", self.compiles_at_run_time);
  }
  /// What holds of both together.
  void join(const Notes& other) {
    deterministic &= other.deterministic;
    tensor_cores |= other.tensor_cores;
    tf32 |= other.tf32;
    short_sums |= other.short_sums;
    late_division |= other.late_division;
    late_scale |= other.late_scale;
    split_operands |= other.split_operands;
    down_converts |= other.down_converts;
    compiles_at_run_time &= other.compiles_at_run_time;
  }
  friend bool operator==(const Notes&, const Notes&) = default;
};

/// One way to run the whole graph, known without compiling.
struct Candidate {
  /// The graph in the form in which it is planned: what the fusions' ops are indices of. One for all
  /// candidates of a graph.
  std::shared_ptr<const Graph> graph;
  std::vector<PlannedFusion> fusions;  ///< in the order in which they run
  double seconds = 0;  ///< sum of the fusions' times: measured where a table has them, else estimated
  int64_t workspace_bytes = 0;  ///< exact
  Notes notes;
};

struct Plan {
  Graph graph;
  DeviceInfo device;
  std::vector<PlannedFusion> fusions;  ///< in the order in which they run
  int64_t workspace_bytes = 0;         ///< for information; derived again at load
  double seconds = 0;                  ///< as of its candidate, for information
  Notes notes;
  /// Operand types that keep contractions off the tensor cores, or slow them there (a plan for a GPU), and
  /// what was decided again at load, with the reason.
  std::vector<std::string> remarks;
};

/// The names of a fusion's ops in `graph`, the graph of its candidate or plan.
FUSOR_API std::vector<std::string> op_names(const Graph& graph, const PlannedFusion& fusion);
/// Which ops run where, one fusion a line: "conv + bias + relu: wgmma(tile_m=128, ...)".
FUSOR_API std::string to_string(const Candidate& candidate);
FUSOR_API std::string to_string(const Plan& plan);

}  // namespace fusor
