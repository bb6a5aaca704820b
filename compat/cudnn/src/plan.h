// Owns execution plans and variant packs: loading, running, and the plan's text.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/executable.h"
#include "compat/cudnn/src/descriptor.h"
#include "compat/cudnn/src/handle.h"
#include "compat/cudnn/src/in_place.h"
#include "compat/cudnn/src/overrides.h"
#include "compat/cudnn/src/translate/translation.h"

namespace fusor::cudnn {

struct EngineState;

/// A plan, loaded where its device is there.
struct PlanState : State {
  Plan plan;
  std::vector<PlacedTensor> placed;
  /// By-value scalars that the plan takes as -inf, and those that it takes as positive; the plan for all
  /// values, where one asks for little workspace.
  std::vector<int64_t> minus_infinity, positive;
  std::optional<Plan> general_plan;
  std::optional<Executable> executable, general;
  std::vector<StagedOperand> staged;          ///< once the plan was loaded
  std::shared_ptr<const EngineState> engine;  ///< null for a plan that came as text
  std::shared_ptr<OverriddenPlans> overridden = std::make_shared<OverriddenPlans>();

  /// Enough for a run with any values, and for copies of the operands that its results replace.
  int64_t workspace_bytes() const;
  /// The same without the copies.
  int64_t plans_bytes() const;
};

/// The pointers of one run.
struct PackState : State {
  std::vector<Binding> bindings;
  void* workspace = nullptr;
  Overrides overrides;
};

void finalize_execution_plan(Descriptor& d);
void finalize_variant_pack(Descriptor& d);
Value answer_execution_plan(const Descriptor& d, cudnnBackendAttributeName_t attribute);
/// The plan as text, from which another process makes it again.
Value plan_text(const Descriptor& d);

/// Loads the plan where its device is there.
void load_plan(PlanState& state);
/// Launches on that stream; allocates nothing where every tensor of the plan is one of the client's.
void run_plan(const PlanState& plan, const PackState& pack, Stream stream);

}  // namespace fusor::cudnn
