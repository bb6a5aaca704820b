// Owns explain: every engine's answer for every fusion, the prices of cuts, and the choice, as data and as
// text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/build.h"
#include "core/support.h"

namespace fusor {

/// One engine's answer to one fusion.
struct EngineAnswer {
  std::string engine;
  Support support;
  std::string config;  ///< its best configuration, where it accepts
  double seconds = 0;  ///< estimate of that configuration, or its measured time
  bool measured = false;
  bool chosen = false;
  Notes notes;  ///< where it accepts
};

/// A set of ops that was considered: one fusion, or cut in two.
struct Decision {
  std::vector<std::string> ops;       ///< names
  std::vector<EngineAnswer> answers;  ///< in the order of the engine list
  std::string cut_at;                 ///< op at which a cut was priced, or empty
  double whole_seconds = 0;           ///< the cheapest engine that takes the whole; 0 where none does
  double parts_seconds = 0;           ///< the two parts, where a cut was priced
  bool cut = false;
  std::string no_fusion;        ///< why the ops cannot be one fusion, or empty
  std::vector<Decision> parts;  ///< the two parts of the cheapest cut, carried out or not
};

/// One fusion that runs, in short.
struct FusionSummary {
  /// A fusion before it, whose result it reads, by position, and why the two are not one.
  struct Apart {
    int fusion = 0;
    std::string why;
  };

  std::vector<std::string> ops;  ///< names
  EngineConfig config;
  double seconds = 0;  ///< estimated, or measured
  bool measured = false;
  Notes notes;
  std::string runner_up;  ///< the engine that would be next, or empty
  double runner_up_seconds = 0;
  double bytes = 0;          ///< read and written at least: every tensor once
  double flops = 0;          ///< of its contractions
  std::string bound;         ///< "memory", "tensor cores", "CUDA cores" or "arithmetic"
  double limit_seconds = 0;  ///< that what bounds it would take alone
  std::vector<Apart> apart;
  bool beside = false;  ///< it runs beside the fusion in front of it: neither waits for the other
};

struct Explanation {
  std::vector<Decision> decisions;
  std::vector<std::string> folded;  ///< ops that cost nothing: views and concatenations folded into accesses
  Candidate choice;
  std::vector<FusionSummary> fusions;  ///< in run order
};

/// brief: who carries out each fusion, what bounds it, who came next, why neighbours are apart. all: every
/// engine's answer with its settings, the refusals, and the prices of cuts.
enum class Detail : uint8_t { brief, all };

FUSOR_API Explanation explain_data(const Graph& graph, const DeviceInfo& device,
                                   const BuildOptions& options = {});
/// The same for people.
FUSOR_API std::string explain(const Graph& graph, const DeviceInfo& device, const BuildOptions& options = {},
                              Detail detail = Detail::brief);

/// The same as one page of HTML that needs no other file: the graph by fusions, with times, engines, what was
/// considered and why it was not chosen; zoom and search.
FUSOR_API std::string explain_html(const Graph& graph, const DeviceInfo& device,
                                   const BuildOptions& options = {});
/// Ops and tensors in Graphviz's language, one cluster a fusion.
FUSOR_API std::string explain_dot(const Graph& graph, const DeviceInfo& device,
                                  const BuildOptions& options = {});
/// The graph as an ONNX model for viewers (Netron): ops of the domain "fusor", each with its attributes, its
/// fusion (from 1) and that fusion's engine. No runtime of ONNX knows these ops.
FUSOR_API std::string explain_onnx(const Graph& graph, const DeviceInfo& device,
                                   const BuildOptions& options = {});

}  // namespace fusor
