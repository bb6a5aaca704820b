// Owns `fusor explain` and `fusor source`: looking at what was chosen and what it became.
#include "backend/explain.h"
#include "core/fail.h"
#include "tools/commands.h"
#include "tools/input.h"
#include "tools/print.h"

namespace fusor::command {

namespace {

Report answer_report(const EngineAnswer& answer) {
  Report report = Report::object();
  report.set("engine", answer.engine).set("accepted", bool(answer.support));
  if (answer.support)
    return report.set("config", answer.config)
        .set("seconds", answer.seconds)
        .set("measured", answer.measured)
        .set("tf32", answer.notes.tf32)
        .set("short_sums", answer.notes.short_sums)
        .set("late_division", answer.notes.late_division)
        .set("chosen", answer.chosen);
  const Refusal& refusal = *answer.support.refusal;
  return report.set("refusal", Report::object()
                                   .set("rule", refusal.rule)
                                   .set("node", refusal.node)
                                   .set("tensor", refusal.tensor)
                                   .set("expected", refusal.expected)
                                   .set("actual", refusal.actual)
                                   .set("remedy", refusal.remedy));
}

Report decision_report(const Decision& decision) {
  Report answers = Report::list();
  for (const EngineAnswer& answer : decision.answers) answers.add(answer_report(answer));
  Report report = Report::object();
  report.set("ops", decision.ops).set("answers", std::move(answers));
  if (!decision.cut_at.empty())
    report.set("cut_at", decision.cut_at)
        .set("whole_seconds", decision.whole_seconds)
        .set("parts_seconds", decision.parts_seconds)
        .set("cut", decision.cut);
  if (!decision.no_fusion.empty()) report.set("no_fusion", decision.no_fusion);
  if (!decision.parts.empty()) {
    Report parts = Report::list();
    for (const Decision& part : decision.parts) parts.add(decision_report(part));
    report.set("parts", std::move(parts));
  }
  return report;
}

Report summary_report(const FusionSummary& fusion) {
  Report apart = Report::list();
  for (const FusionSummary::Apart& each : fusion.apart)
    apart.add(Report::object().set("fusion", each.fusion).set("why", each.why));
  Report report = Report::object();
  report.set("ops", fusion.ops)
      .set("engine", fusion.config.engine)
      .set("config", to_string(fusion.config))
      .set("seconds", fusion.seconds)
      .set("measured", fusion.measured)
      .set("bytes", fusion.bytes)
      .set("flops", fusion.flops)
      .set("bound", fusion.bound)
      .set("limit_seconds", fusion.limit_seconds);
  if (!fusion.runner_up.empty())
    report.set("runner_up", fusion.runner_up).set("runner_up_seconds", fusion.runner_up_seconds);
  return report.set("apart", std::move(apart));
}

}  // namespace

int explain(const Options& options) {
  const Input input = read_input(options);
  if (!options.json) {
    print(
        fusor::explain(input.graph, input.device, options.build, options.all ? Detail::all : Detail::brief));
    return 0;
  }
  const Explanation explanation = explain_data(input.graph, input.device, options.build);
  Report fusions = Report::list();
  for (const FusionSummary& fusion : explanation.fusions) fusions.add(summary_report(fusion));
  Report decisions = Report::list();
  for (const Decision& decision : explanation.decisions) decisions.add(decision_report(decision));
  print(Report::object()
            .set("graph", input.graph.name)
            .set("device", input.device.name)
            .set("fusions", std::move(fusions))
            .set("folded", explanation.folded)
            .set("decisions", std::move(decisions))
            .set("choice", choice_report(explanation.choice)));
  return 0;
}

int source(const Options& options) {
  const Input input = read_input(options);
  BuildOptions build_options = options.build;
  build_options.compile = false;
  const Plan plan = input.plan ? *input.plan : build(input.graph, input.device, build_options);
  if (plan.device.is_cpu())
    fail("the plan of '{}' is for the CPU, which has no kernels; name a GPU, for example --device H200",
         plan.graph.name);
  const std::string text = fusor::source(plan);
  if (!options.json) {
    print(text);
    return 0;
  }
  print(Report::object()
            .set("graph", plan.graph.name)
            .set("device", plan.device.name)
            .set("kernels", kernels_report(shown_kernels(plan, false)))
            .set("source", text));
  return 0;
}

}  // namespace fusor::command
