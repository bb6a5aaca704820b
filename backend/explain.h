// Owns explain: every engine's answer for every fusion, the prices of cuts, and the choice, as data and as
// text.
#pragma once

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

struct Explanation {
  std::vector<Decision> decisions;
  std::vector<std::string> folded;  ///< ops that cost nothing: views and concatenations folded into accesses
  Candidate choice;
};

FUSOR_API Explanation explain_data(const Graph& graph, const DeviceInfo& device,
                                   const BuildOptions& options = {});
/// The same for people.
FUSOR_API std::string explain(const Graph& graph, const DeviceInfo& device, const BuildOptions& options = {});

}  // namespace fusor
