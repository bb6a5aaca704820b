// Owns the rows engine: pointwise ops and reductions along the same rows, whose totals feed back, as one
// kernel.
#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "backend/engines/knobs.h"
#include "backend/engines/list.h"
#include "backend/engines/rows/schedule.h"
#include "backend/engines/rules.h"
#include "core/fail.h"
#include "heuristics/time_model.h"

namespace fusor {

namespace {

// Settings that are offered, the cheapest first, and of those that hold the row alike: where the model errs,
// it errs for all of these.
constexpr size_t kMostCandidates = 24, kMostAlike = 3;

// Where a fusion that nobody has room for is cut: at the first op that needs a total again.
int first_use_of_total(const Expr& expr) {
  for (const Node& node : expr.nodes)
    for (const int arg : node.args)
      if (arg >= 0 && expr.node(arg).kind == Node::Kind::reduce) return node.op;
  return -1;
}

Refusal refuse_room(const RowsProblem& problem) {
  return {"row-in-registers",
          "",
          "",
          "a row that threads can hold, with the totals of its columns",
          fmt::format("{} elements a row", problem.row_elements()),
          "carry out what needs the totals in a fusion of its own",
          first_use_of_total(problem.site.expr)};
}

class PreparedRows final : public Prepared {
 public:
  PreparedRows(RowsProblem problem, std::optional<RowsProblem> wide, std::optional<RowsProblem> turned,
               const std::vector<RowsSchedule>& schedules)
      : problem_(std::move(problem)), folded_(std::move(wide)), turned_(std::move(turned)) {
    for (const RowsSchedule& schedule : schedules) {
      const Work work = cost(problem_of(schedule.knobs), schedule);
      priced_.push_back({schedule.knobs, work, estimate_seconds(work, problem_.device)});
    }
    std::ranges::stable_sort(priced_, {}, &Priced::seconds);
  }

  std::vector<Knob> knobs() const override {
    std::vector<Knob> all;
    RowsKnobs any;
    RowsKnobs::visit(any, [&](std::string_view name, const int64_t&) {
      all.push_back({std::string(name), {}});
    });
    for (const Priced& one : priced_) {
      size_t at = 0;
      RowsKnobs::visit(one.knobs, [&](std::string_view, const int64_t& value) {
        std::vector<int64_t>& values = all[at++].values;
        if (std::ranges::find(values, value) == values.end()) values.push_back(value);
      });
    }
    for (Knob& knob : all) std::ranges::sort(knob.values);
    return all;
  }

  std::vector<EngineCandidate> candidates() const override {
    std::vector<EngineCandidate> all;
    std::map<std::array<int64_t, 5>, size_t> alike;
    for (const auto& [knobs, work, seconds] : priced_) {
      if (all.size() == kMostCandidates) break;
      if (alike[{knobs.held, knobs.cluster, knobs.batch, knobs.vector, knobs.split}]++ == kMostAlike)
        continue;
      all.push_back({config_of(rows_engine(), knobs), work});
    }
    return all;
  }

  Notes notes() const override { return {}; }

  Lowered lower(const EngineConfig& config) const override {
    const RowsKnobs knobs = nearest(knobs_of<RowsKnobs>(config));
    const RowsProblem& problem = problem_of(knobs);
    return fusor::lower(problem, RowsSchedule(problem, knobs));
  }

 private:
  struct Priced {
    RowsKnobs knobs;
    Work work;
    double seconds;
  };

  const RowsProblem& problem_of(const RowsKnobs& knobs) const {
    return knobs.split == RowsKnobs::turns ? *turned_ : knobs.split == RowsKnobs::folds ? *folded_ : problem_;
  }

  // Knobs do not go together in every way: of what cannot be had, the setting that agrees in most.
  RowsKnobs nearest(const RowsKnobs& asked) const {
    const auto differing = [&](const Priced& one) {
      int64_t count = 0;
      count += (one.knobs.held != asked.held ? 2 : 0) + (one.knobs.split != asked.split ? 2 : 0);
      count += (one.knobs.vector != asked.vector) + (one.knobs.threads != asked.threads);
      count += (one.knobs.group != asked.group) + (one.knobs.cluster != asked.cluster);
      count += (one.knobs.batch != asked.batch) + (one.knobs.blocks != asked.blocks);
      return count + (one.knobs.join != asked.join);
    };
    return std::ranges::min_element(priced_, {}, differing)->knobs;
  }

  const RowsProblem problem_;
  const std::optional<RowsProblem> folded_, turned_;
  std::vector<Priced> priced_;  // never empty
};

class RowsEngine final : public Engine {
 public:
  std::string_view name() const override { return "rows"; }
  int number() const override { return 11; }

  PackedAccess packed_access() const override { return {.loads = true, .stores = true}; }

  PreparedOr prepare(const Fusion& fusion, const DeviceInfo& device) const override {
    if (auto refusal = refuse_cpu(device)) return std::move(*refusal);
    if (form_of(fusion) != Form::rows || fusion.sites.size() != 1)
      return Refusal{
          "rows-form", "", "", "pointwise ops and reductions", std::string(to_string(form_of(fusion))),
          "",          -1};
    auto answer = rows_problem(fusion, device);
    if (auto* refusal = std::get_if<Refusal>(&answer)) return std::move(*refusal);
    RowsProblem& problem = std::get<RowsProblem>(answer);
    std::optional<RowsProblem> wide = folded(problem);
    std::vector<RowsSchedule> schedules = rows_schedules(problem);
    if (wide) std::ranges::move(rows_schedules(*wide), std::back_inserter(schedules));
    std::optional<RowsProblem> across = turned(problem);
    if (across) std::ranges::move(rows_schedules(*across), std::back_inserter(schedules));
    if (schedules.empty()) return refuse_room(problem);
    return std::make_unique<const PreparedRows>(std::move(problem), std::move(wide), std::move(across),
                                                schedules);
  }
};

}  // namespace

const Engine& rows_engine() {
  static const RowsEngine engine;
  return engine;
}

}  // namespace fusor
