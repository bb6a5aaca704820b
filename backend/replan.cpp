// Owns the checking of plans, and what is planned anew.
#include "backend/replan.h"

#include <algorithm>

#include "backend/choose.h"
#include "backend/engines/list.h"
#include "codegen/cuda_driver.h"
#include "core/fail.h"
#include "core/infer.h"

namespace fusor {

namespace {

class Replanner {
 public:
  Replanner(Plan plan, std::span<const Engine* const> list) : plan_(std::move(plan)) {
    options_.engine_list = list;
  }

  /// For the device that is present, or for whatever device the plan names.
  LoweredPlan run(bool here) {
    validate(plan_.graph);
    expect_expanded();
    if (here && !plan_.device.is_cpu()) adopt_present_device();
    check_partition();
    plan_.notes = {};
    const Choices choices = view();
    std::vector<ScheduledFusion> fusions;
    for (PlannedFusion& planned : plan_.fusions) {
      PreparedFusion prepared(make_fusion(plan_.graph, choices.folded, planned.ops), plan_.device);
      Lowered lowered = lower(choices, planned, prepared, fusions.size());
      fusions.push_back({prepared.fusion(), std::move(lowered), {}});
    }
    return {std::move(plan_), std::move(fusions)};
  }

 private:
  void adopt_present_device() {
    std::string problem;
    if (!cuda::available(&problem))
      fail(ErrorKind::missing,
           "the plan of '{}' is for {} ({}), and no GPU can be used here: {}; --device cpu (or "
           "build(plan.graph, DeviceInfo::cpu())) plans it again for the CPU",
           plan_.graph.name, plan_.device.name, plan_.device.target(), problem);
    const DeviceInfo present = DeviceInfo::current();
    // Grids whose blocks wait for each other must fit, and so must what a block keeps in shared memory.
    if (present.compute_capability == plan_.device.compute_capability &&
        present.sm_count >= plan_.device.sm_count &&
        present.shared_per_block >= plan_.device.shared_per_block)
      return;
    plan_.remarks.push_back(
        fmt::format("planned for {} ({}, {} SMs), running on {} ({}, {} SMs): every fusion was chosen anew",
                    plan_.device.name, plan_.device.target(), plan_.device.sm_count, present.name,
                    present.target(), present.sm_count));
    auto remarks = std::move(plan_.remarks);
    PlannerOptions options = options_;
    options.build.compile = false;
    plan_ = build(plan_.graph, present, options);
    plan_.remarks = std::move(remarks);
  }

  // A plan may come from a file: each op that needs work is in exactly one fusion, in an order that can run.
  void check_partition() {
    const Choices choices = view();
    std::vector<int> times(plan_.graph.ops.size(), 0);
    std::vector<std::vector<int>> groups;
    groups.reserve(plan_.fusions.size());
    for (const PlannedFusion& planned : plan_.fusions) {
      for (const int op : planned.ops) {
        if (op < 0 || op >= static_cast<int>(times.size()))
          fail("the plan names op {} of {}", op, times.size());
        ++times[op];
      }
      groups.push_back(planned.ops);
    }
    for (size_t i = 0; i < times.size(); ++i) {
      const int wanted = choices.folded.folded[i] ? 0 : 1;
      if (times[i] != wanted)
        fail("op '{}' is in {} fusions of the plan, expected {}", plan_.graph.ops[i].name, times[i], wanted);
    }
    groups = in_run_order(choices.folded, groups);
    std::vector<PlannedFusion> ordered;
    ordered.reserve(groups.size());
    for (const std::vector<int>& ops : groups)
      ordered.push_back(*std::ranges::find(plan_.fusions, ops, &PlannedFusion::ops));
    plan_.fusions = std::move(ordered);
  }

  // Behind build() there are ops that engines carry out, and all of their operands.
  void expect_expanded() const {
    for (const Op& op : plan_.graph.ops) {
      const auto takes = [&](const Engine* engine) { return engine->takes_composite(op.attributes); };
      if (nature(op.attributes) == Nature::composite && std::ranges::none_of(engine_list_of(options_), takes))
        fail("{}: no engine carries it out; a plan has the simpler ops that build() writes it in",
             op_label(op.name, op.attributes));
      for (const std::vector<int>* const list : {&op.inputs, &op.outputs})
        if (std::ranges::min(*list) < 0)
          fail("{}: leaves out an operand or a result, which no op of a plan does",
               op_label(op.name, op.attributes));
    }
  }

  Choices view() const { return {plan_.graph, fold_views(plan_.graph), {}, {}}; }

  // The plan's choice, or else one made anew. The notes are not taken from a file: verify() goes by
  // them.
  Lowered lower(const Choices& choices, PlannedFusion& planned, PreparedFusion& prepared, size_t i) {
    const EngineConfig& config = planned.config;
    const Engine* engine = find_engine(engine_list_of(options_), config.engine);
    Lowered lowered;
    const std::string problem = problem_with(config, engine, prepared, lowered);
    if (problem.empty()) {
      plan_.notes.join(prepared.by(*engine).notes());
      return lowered;
    }
    const std::string names =
        fmt::format("fusion {} ({})", i + 1, fmt::join(prepared.fusion().op_names, " + "));
    const Choice anew = choose_one(choices, planned.ops, plan_.device, options_);
    if (anew.options.empty()) fail("{}: {}, and no engine supports it whole", names, problem);
    plan_.remarks.push_back(fmt::format("{} was chosen anew: {}", names, problem));
    const EngineOption& best = anew.options.front();
    planned.config = best.config;
    plan_.notes.join(anew.by(best).notes());
    return anew.by(best).lower(best.config);
  }

  // Empty, and `lowered` by the config, where it can be carried out.
  std::string problem_with(const EngineConfig& config, const Engine* engine, PreparedFusion& fusion,
                           Lowered& lowered) const {
    if (engine == nullptr) return fmt::format("there is no engine '{}'", config.engine);
    if (engine->revision() != config.revision)
      return fmt::format("engine '{}' is at revision {}, the plan at {}", config.engine, engine->revision(),
                         config.revision);
    if (const Refusal* const refusal = fusion.refusal_of(*engine))
      return fmt::format("engine '{}' refuses it: {}", config.engine, to_string(*refusal));
    const Prepared& prepared = fusion.by(*engine);
    if (std::string problem = problem_with_knobs(config, prepared.knobs()); !problem.empty()) return problem;
    try {
      lowered = prepared.lower(config);
      return problem_with_launches(lowered);
    } catch (const Error& error) {
      return fmt::format("its knobs cannot be carried out together: {}", error.what());
    }
  }

  static std::string problem_with_knobs(const EngineConfig& config, const std::vector<Knob>& knobs) {
    for (const KnobSetting& setting : config.knobs) {
      const auto knob = std::ranges::find(knobs, setting.name, &Knob::name);
      if (knob == knobs.end())
        return fmt::format("engine '{}' has no knob '{}'", config.engine, setting.name);
      if (std::ranges::find(knob->values, setting.value) == knob->values.end())
        return fmt::format("knob '{}' of engine '{}' cannot be {}", setting.name, config.engine,
                           setting.value);
    }
    return "";
  }

  // Values that are valid each for itself may ask for too much together.
  std::string problem_with_launches(const Lowered& lowered) const {
    for (const Step& step : lowered.steps)
      if (const auto* launch = std::get_if<Launch>(&step);
          launch != nullptr && launch->shared_bytes > plan_.device.shared_per_block)
        return fmt::format("its knobs together take {} bytes of shared memory a block, {} has {}",
                           launch->shared_bytes, plan_.device.name, plan_.device.shared_per_block);
    return "";
  }

  Plan plan_;
  PlannerOptions options_;
};

}  // namespace

LoweredPlan replan(const Plan& plan, std::span<const Engine* const> engine_list) {
  return Replanner(plan, engine_list).run(true);
}

LoweredPlan lowered_plan(const Plan& plan, std::span<const Engine* const> engine_list) {
  return Replanner(plan, engine_list).run(false);
}

Plan checked_plan(const Plan& plan, std::span<const Engine* const> engine_list) {
  return lowered_plan(plan, engine_list).plan;
}

}  // namespace fusor
