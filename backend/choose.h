// Owns the choice of an engine for each fusion, and the cut of a fusion where the parts are cheaper than the
// whole.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/planner/planner.h"
#include "backend/planner/prepared_fusion.h"
#include "backend/planning.h"

namespace fusor {

/// One way to carry out a fusion.
struct EngineOption {
  const Engine* engine = nullptr;
  EngineConfig config;
  double seconds = 0;     ///< estimated, or measured
  bool measured = false;  ///< the time stands in the tuning table
};

/// A fusion that stays whole, and the ways to carry it out: those that were measured in the order of the
/// tuning table, then the others, cheapest estimate first.
struct Choice {
  std::shared_ptr<PreparedFusion> prepared;  ///< shared by copies of the choice
  std::vector<EngineOption> options;

  const Fusion& fusion() const { return prepared->fusion(); }
  /// The fusion as the option's engine prepared it.
  const Prepared& by(const EngineOption& option) const { return prepared->by(*option.engine); }
};

/// A graph in the form in which it is planned, with what was chosen for each fusion, in run order.
struct Choices {
  Graph graph;  ///< expanded
  FoldedGraph folded;
  std::vector<Choice> fusions;
  std::vector<Decision> decisions;  ///< only where asked for
  bool overlap = false;             ///< the launches of the fusions overlap (side_by_side.h)
};

/// Forms, prepares and prices fusions: asks the engines about every group, cuts groups where the parts are
/// cheaper, and appends what was chosen. Throws Error{bad_input} where the options leave no engine.
void choose_fusions(Choices& choices, const std::vector<std::vector<int>>& groups, const DeviceInfo& device,
                    const PlannerOptions& options, bool keep_decisions);
/// Puts the chosen fusions in an order in which they can run, where launches overlap with those side by side
/// that do not wait for each other.
void order_fusions(Choices& choices);

/// The passes of a build up to the order (backend/build.cpp); the choices refer to the device. Throws
/// Error{bad_input} where the options leave no engine.
Choices choose(const Graph& graph, const DeviceInfo& device, const PlannerOptions& options,
               bool keep_decisions = false);

/// The cheapest options that keep within the limit of workspace (backend/build.cpp).
struct Best {
  Candidate candidate;
  std::vector<bool> beside;  ///< per fusion: whether it runs beside the one in front of it
};
Best best_of(const Choices& choices, const DeviceInfo& device, const PlannerOptions& options);

/// The fusion of `ops` (of choices.graph) with every option for it, cheapest first; for plans whose choice
/// must be made anew. `decision`: takes every engine's answer, where it is not null.
Choice choose_one(const Choices& choices, std::span<const int> ops, const DeviceInfo& device,
                  const PlannerOptions& options, Decision* decision = nullptr);

std::span<const Engine* const> engine_list_of(const PlannerOptions& options);
/// Whether the engine is among those that the options, and the environment, leave.
bool is_allowed(const Engine& engine, const PlannerOptions& options);

}  // namespace fusor
