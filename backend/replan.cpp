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
  Plan run(bool here) {
    validate(plan_.graph);
    if (here && !plan_.device.is_cpu()) adopt_present_device();
    check_partition();
    plan_.notes = {};
    const Choices choices = view();
    for (size_t i = 0; i < plan_.fusions.size(); ++i) replan_choice(choices, i);
    return std::move(plan_);
  }

 private:
  void adopt_present_device() {
    std::string problem;
    if (!cuda::available(&problem))
      fail(ErrorKind::missing, "the plan of '{}' is for {} ({}), and no GPU can be used here: {}",
           plan_.graph.name, plan_.device.name, plan_.device.target(), problem);
    const DeviceInfo present = DeviceInfo::current();
    if (present.compute_capability == plan_.device.compute_capability) return;
    plan_.remarks.push_back(
        fmt::format("planned for {} ({}), running on {} ({}): every fusion was chosen anew",
                    plan_.device.name, plan_.device.target(), present.name, present.target()));
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

  Choices view() const { return {plan_.graph, fold_views(plan_.graph), {}, {}}; }

  void replan_choice(const Choices& choices, size_t i) {
    const EngineConfig& config = plan_.fusions[i].config;
    const Fusion fusion = make_fusion(plan_.graph, choices.folded, plan_.fusions[i].ops);
    const std::string problem = problem_with(config, fusion);
    if (problem.empty()) return join_notes(i, fusion);
    Choice anew = choose_one(choices, plan_.fusions[i].ops, plan_.device, options_);
    if (anew.options.empty())
      fail("fusion {} ({}): {}, and no engine takes it whole", i, fmt::join(fusion.op_names, " + "), problem);
    plan_.remarks.push_back(
        fmt::format("fusion {} ({}) was chosen anew: {}", i, fmt::join(fusion.op_names, " + "), problem));
    plan_.fusions[i].config = anew.options.front().config;
    join_notes(i, fusion);
  }

  // verify() goes by them: they are not taken from a file.
  void join_notes(size_t i, const Fusion& fusion) {
    const Engine* engine = find_engine(engine_list_of(options_), plan_.fusions[i].config.engine);
    plan_.notes.join(engine->notes_on(fusion));
  }

  std::string problem_with(const EngineConfig& config, const Fusion& fusion) const {
    const Engine* engine = find_engine(engine_list_of(options_), config.engine);
    if (engine == nullptr) return fmt::format("there is no engine '{}'", config.engine);
    if (engine->revision() != config.revision)
      return fmt::format("engine '{}' is at revision {}, the plan at {}", config.engine, engine->revision(),
                         config.revision);
    if (const Support support = engine->supports(fusion, plan_.device); !support)
      return fmt::format("engine '{}' refuses it: {}", config.engine, to_string(*support.refusal));
    const std::vector<Knob> knobs = engine->knobs(fusion, plan_.device);
    for (const KnobSetting& setting : config.knobs) {
      const auto knob = std::ranges::find(knobs, setting.name, &Knob::name);
      if (knob == knobs.end())
        return fmt::format("engine '{}' has no knob '{}'", config.engine, setting.name);
      if (std::ranges::find(knob->values, setting.value) == knob->values.end())
        return fmt::format("knob '{}' of engine '{}' cannot be {}", setting.name, config.engine,
                           setting.value);
    }
    try {
      return problem_with_launches(engine->lower(fusion, config, plan_.device));
    } catch (const Error& error) {
      return fmt::format("its knobs cannot be carried out together: {}", error.what());
    }
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

Plan replan(const Plan& plan, std::span<const Engine* const> engine_list) {
  return Replanner(plan, engine_list).run(true);
}

Plan checked_plan(const Plan& plan, std::span<const Engine* const> engine_list) {
  return Replanner(plan, engine_list).run(false);
}

}  // namespace fusor
