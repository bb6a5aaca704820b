// Owns an engine that exists only here, written as docs/add-an-engine.md says, and the tests that it is
// asked, planned and run like those of the library.
#include <gmock/gmock.h>

#include <array>

#include "backend/engines/knobs.h"
#include "backend/engines/list.h"
#include "backend/planning.h"
#include "frontend/graph_builder.h"
#include "serialization/serialization.h"

namespace fusor {
namespace {

// ---- The engine ----

const Engine& fixture_engine();

struct Knobs {
  int64_t repeats = 1;

  static void visit(auto& self, auto&& knob) { knob("repeats", self.repeats); }
};

// Facts of the fusion.
struct Problem {
  double elements;

  explicit Problem(const Fusion& fusion)
      : elements(static_cast<double>(element_count(result_site(fusion).domain))) {}
};

// The facts of a setting: how often everything is evaluated.
struct Schedule {
  int64_t evaluations;

  Schedule(const Problem& /*problem*/, const Knobs& knobs) : evaluations(knobs.repeats) {}
};

Work cost(const Problem& problem, const Schedule& schedule) {
  Work work;
  work.fp32_flops = problem.elements * static_cast<double>(schedule.evaluations);
  return work;
}

Lowered lower(const Problem& /*problem*/, const Schedule& schedule) {
  Lowered lowered;
  for (int64_t i = 0; i < schedule.evaluations; ++i) lowered.steps.emplace_back(Evaluate{});
  return lowered;
}

class PreparedFixture final : public Prepared {
 public:
  explicit PreparedFixture(const Fusion& fusion) : problem_(fusion) {}

  std::vector<Knob> knobs() const override { return {{"repeats", {1, 2}}}; }
  std::vector<EngineCandidate> candidates() const override {
    std::vector<EngineCandidate> list;
    for (const int64_t repeats : {1, 2}) {
      const Knobs knobs{repeats};
      list.push_back({config_of(fixture_engine(), knobs), cost(problem_, Schedule(problem_, knobs))});
    }
    return list;
  }
  Notes notes() const override { return fixture_engine().notes(); }
  Lowered lower(const EngineConfig& config) const override {
    return fusor::lower(problem_, Schedule(problem_, knobs_of<Knobs>(config)));
  }

 private:
  const Problem problem_;
};

class FixtureEngine final : public Engine {
 public:
  std::string_view name() const override { return "fixture"; }
  int number() const override { return 902; }
  Notes notes() const override { return {.compiles_at_run_time = false}; }

  PreparedOr prepare(const Fusion& fusion, const DeviceInfo& device) const override {
    if (!device.is_cpu()) return Refusal{"cpu-device", "", "", "the CPU", device.name, "", -1};
    if (const Form form = form_of(fusion); form != Form::pointwise)
      return Refusal{"pointwise-only", fusion.op_names.back(),       "",
                     "pointwise ops",  std::string(to_string(form)), "",
                     fusion.ops.back()};
    return std::make_unique<const PreparedFixture>(fusion);
  }
};

const Engine& fixture_engine() {
  static const FixtureEngine engine;
  return engine;
}

// ---- The tests ----

using testing::ElementsAre;
using testing::HasSubstr;

const std::array<const Engine*, 2> kEngines{&fixture_engine(), &cpu_engine()};
const PlannerOptions kOptions{.engine_list = kEngines};

struct Relu {
  Graph graph;
  Tensor x, y;
};

Relu relu() {
  GraphBuilder g("relu");
  const Tensor x = g.input("x", {4}, DataType::f32);
  const Tensor y = g.output(g.relu(x), {.name = "y"});
  return {g.finish(), x, y};
}

std::array<float, 4> run(const Relu& relu, const Plan& plan) {
  std::array<float, 4> x{-2, -1, 1, 2}, y{};
  load(plan, kEngines).run({{relu.x, x.data()}, {relu.y, y.data()}});
  return y;
}

TEST(FixtureEngine, IsPlannedAndRuns) {
  const Relu one = relu();
  const Plan plan = build(one.graph, DeviceInfo::cpu(), kOptions);
  EXPECT_EQ(to_string(plan.fusions.at(0).config), "fixture(repeats=1)");
  EXPECT_FALSE(plan.notes.compiles_at_run_time);
  EXPECT_THAT(run(one, plan), ElementsAre(0, 0, 1, 2));
}

TEST(FixtureEngine, EverySettingRuns) {
  const Relu one = relu();
  const auto all = candidates(one.graph, DeviceInfo::cpu(), kOptions);
  ASSERT_GE(all.size(), 2u);
  EXPECT_EQ(to_string(all[1].fusions.at(0).config), "fixture(repeats=2)");
  for (const Candidate& candidate : all)
    EXPECT_THAT(run(one, build(one.graph, DeviceInfo::cpu(), candidate, kOptions)), ElementsAre(0, 0, 1, 2));
}

TEST(FixtureEngine, ASavedSettingIsReadBack) {
  const Relu one = relu();
  Plan plan = build(one.graph, DeviceInfo::cpu(), kOptions);
  plan.fusions.at(0).config.set("repeats", 2);
  const Executable exe = load(plan_from_json(to_json(plan)), kEngines);
  EXPECT_EQ(to_string(exe.plan().fusions.at(0).config), "fixture(repeats=2)");
  EXPECT_TRUE(exe.plan().remarks.empty());
}

TEST(FixtureEngine, ItsRefusalIsExplained) {
  GraphBuilder g("sums");
  g.output(g.reduce(g.input("x", {4, 4}, DataType::f32), ReductionMode::add, {1}, {.name = "sum"}));
  const Graph sums = g.finish();
  EXPECT_EQ(build(sums, DeviceInfo::cpu(), kOptions).fusions.at(0).config.engine, "cpu");
  EXPECT_THAT(explain(sums, DeviceInfo::cpu(), kOptions), HasSubstr("pointwise-only"));
}

}  // namespace
}  // namespace fusor
