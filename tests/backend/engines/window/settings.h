// Owns the choice of settings by which every value of every knob of the window engine is tested: graphs, and
// for each a few settings that have all the values that it may have.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/engines/list.h"
#include "backend/planning.h"
#include "tests/backend/engines/window/cases.h"

namespace fusor::window_cases {

/// Pools whose settings have, taken together, every value of every knob.
inline std::vector<std::pair<std::string, Graph>> graphs_of_all_settings() {
  std::vector<std::pair<std::string, Graph>> graphs;
  for (const bool channels_last : {true, false}) {
    Pool pool = maximum({2, 24, 29, 32}, 3, 2, 1);
    pool.channels_last = channels_last;
    const std::string layout = channels_last ? "nhwc " : "nchw ";
    graphs.emplace_back(layout + "forward with index", forward(pool, true));
    graphs.emplace_back(layout + "backward by index", backward(pool, true));
    Pool mean = average({1, 8, 33, 48}, 3, 1, 1, false);
    mean.channels_last = channels_last;
    graphs.emplace_back(layout + "average", forward(mean));
    // Nine images of a thread's sixteen, and seventeen in fours.
    for (const bool is_backward : {false, true})
      graphs.emplace_back(layout + (is_backward ? "interpolated backward" : "interpolated"),
                          interpolation({9, 17, 10, 12}, {9, 17, 23, 31}, channels_last, is_backward));
    graphs.emplace_back(layout + "interpolated vectors",
                        interpolation({9, 16, 10, 12}, {9, 16, 20, 24}, channels_last));
  }
  // Stores of 16 bytes hold 16 windows of 8 bits.
  Pool narrow = maximum({1, 8, 16, 64}, 2, 2, 0);
  narrow.type = DataType::f8_e4m3;
  narrow.channels_last = false;
  graphs.emplace_back("nchw of 8 bits", forward(narrow));
  return graphs;
}

/// Values of knobs by name.
using KnobValues = std::set<std::pair<std::string, int64_t>>;

inline KnobValues values_of(const EngineConfig& config) {
  KnobValues values;
  for (const KnobSetting& knob : config.knobs) values.emplace(knob.name, knob.value);
  return values;
}

/// One after another the candidates of the window engine alone that have a value which none before has.
inline std::vector<Candidate> covering_settings(const Graph& graph, const DeviceInfo& device) {
  static const Engine* const only[] = {&window_engine()};
  PlannerOptions options;
  options.build.max_candidates = 1000;
  options.build.compile = false;
  options.engine_list = only;
  KnobValues covered;
  std::vector<Candidate> chosen;
  for (Candidate& candidate : candidates(graph, device, options)) {
    const size_t before = covered.size();
    for (const PlannedFusion& fusion : candidate.fusions) covered.merge(values_of(fusion.config));
    if (covered.size() > before) chosen.push_back(std::move(candidate));
  }
  return chosen;
}

}  // namespace fusor::window_cases
