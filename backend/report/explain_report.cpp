// Owns the step from an explanation to a JSON document.
#include "backend/report/explain_report.h"

#include <array>

namespace fusor {

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
        .set("late_scale", answer.notes.late_scale)
        .set("split_operands", answer.notes.split_operands)
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
      .set("limit_seconds", fusion.limit_seconds)
      .set("beside", fusion.beside);
  if (!fusion.runner_up.empty())
    report.set("runner_up", fusion.runner_up).set("runner_up_seconds", fusion.runner_up_seconds);
  return report.set("apart", std::move(apart));
}

Report tensor_report(const Tensor& tensor) {
  constexpr std::array<const char*, 4> kMemories = {"device", "workspace", "host", "constant"};
  return Report::object()
      .set("name", tensor.name)
      .set("type", to_string(tensor.type))
      .set("dims", tensor.dims)
      .set("strides", tensor.strides)
      .set("memory", kMemories.at(static_cast<size_t>(tensor.memory)))
      .set("bytes", tensor.bytes());
}

Report positions(const std::vector<int>& tensors) {
  Report list = Report::list();
  for (const int tensor : tensors) list.add(tensor);
  return list;
}

}  // namespace

Report fusions_report(const Explanation& explanation) {
  Report list = Report::list();
  for (const FusionSummary& fusion : explanation.fusions) list.add(summary_report(fusion));
  return list;
}

Report decisions_report(const Explanation& explanation) {
  Report list = Report::list();
  for (const Decision& decision : explanation.decisions) list.add(decision_report(decision));
  return list;
}

Report graph_report(const Explanation& explanation) {
  const Candidate& choice = explanation.choice;
  const Graph& graph = *choice.graph;
  std::vector<int> fusion_of(graph.ops.size(), -1);
  for (size_t i = 0; i < choice.fusions.size(); ++i)
    for (const int op : choice.fusions[i].ops) fusion_of[static_cast<size_t>(op)] = static_cast<int>(i);
  Report ops = Report::list(), tensors = Report::list();
  for (size_t i = 0; i < graph.ops.size(); ++i)
    ops.add(Report::object()
                .set("name", graph.ops[i].name)
                .set("kind", short_name(graph.ops[i].attributes))
                .set("inputs", positions(graph.ops[i].inputs))
                .set("outputs", positions(graph.ops[i].outputs))
                .set("fusion", fusion_of[i]));
  for (const Tensor& tensor : graph.tensors) tensors.add(tensor_report(tensor));
  return Report::object()
      .set("name", graph.name)
      .set("precision", to_string(graph.precision))
      .set("ops", std::move(ops))
      .set("tensors", std::move(tensors));
}

}  // namespace fusor
