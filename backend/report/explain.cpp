// Owns the telling of what was asked, answered, priced and chosen.
#include "backend/report/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>

#include "backend/choose.h"
#include "backend/report/fusion_summary.h"
#include "backend/report/type_remarks.h"
#include "core/words.h"

namespace fusor {

namespace {

// Names in a line: the first ones, and how many there are more.
std::string listed(const std::vector<std::string>& names) {
  constexpr size_t kMost = 16;
  if (names.size() <= kMost) return fmt::format("{}", fmt::join(names, ", "));
  return fmt::format("{} and {} more", fmt::join(std::span(names).first(kMost), ", "), names.size() - kMost);
}

// The use made of a precision that allows more than the declared types.
std::string use_of(const Notes& notes) {
  std::vector<std::string_view> uses;
  if (notes.tf32) uses.emplace_back("rounds operands to TF32");
  if (notes.short_sums) uses.emplace_back("sums fp8 products in short sums");
  if (notes.late_division) uses.emplace_back("divides a softmax behind a product");
  if (notes.late_scale) uses.emplace_back("scales gradients of scores behind a product");
  if (notes.split_operands) uses.emplace_back("multiplies fp32 in parts");
  if (uses.empty()) uses.emplace_back("does not use what it allows");
  return fmt::format("{}", fmt::join(uses, " and "));
}

// Engines that would want another device, whatever the fusion.
bool wants_another_device(const EngineAnswer& answer, const DeviceInfo& device) {
  return !answer.support && answer.support.refusal->actual == device.name;
}

std::string words(const EngineAnswer& answer, bool is_carried_out) {
  if (!answer.support)
    return fmt::format("    {} refuses: {}\n", answer.engine, to_string(*answer.support.refusal));
  return fmt::format("  {} {} accepts{}, {}{} with {}\n", is_carried_out ? "*" : " ", answer.engine,
                     answer.notes.tf32             ? " in tf32"
                     : answer.notes.short_sums     ? " in short sums"
                     : answer.notes.late_division  ? " with a late division"
                     : answer.notes.late_scale     ? " with a late scale"
                     : answer.notes.split_operands ? " in parts"
                                                   : "",
                     words::duration(answer.seconds), answer.measured ? " measured" : "", answer.config);
}

// The choice first, then who accepts, then who refuses; the parts of a cut below it.
void append(std::string& text, const Decision& decision, const DeviceInfo& device,
            const std::string& indent) {
  std::vector<std::string> lines;
  std::vector<std::string_view> elsewhere;
  const auto is_chosen = [&](const EngineAnswer& answer) { return answer.chosen && !decision.cut; };
  const auto add = [&](auto&& wanted) {
    for (const EngineAnswer& answer : decision.answers)
      if (wanted(answer)) lines.push_back(words(answer, is_chosen(answer)));
  };
  add(is_chosen);
  add([&](const EngineAnswer& answer) { return answer.support && !is_chosen(answer); });
  add([&](const EngineAnswer& answer) { return !answer.support && !wants_another_device(answer, device); });
  for (const EngineAnswer& answer : decision.answers)
    if (wants_another_device(answer, device)) elsewhere.push_back(answer.engine);
  text += fmt::format("{}fusion {}\n", indent, fmt::join(decision.ops, " + "));
  for (const std::string& line : lines) text += indent + line;
  if (!elsewhere.empty())
    text += fmt::format("{}    for other devices: {}\n", indent, fmt::join(elsewhere, ", "));
  if (!decision.no_fusion.empty()) text += fmt::format("{}    no fusion: {}\n", indent, decision.no_fusion);
  if (decision.cut_at.empty()) return;
  const std::string whole =
      decision.whole_seconds > 0 ? words::duration(decision.whole_seconds) : "not possible";
  text += fmt::format("{}  cut at {}: two parts {}, the whole {}: {}\n", indent, decision.cut_at,
                      words::duration(decision.parts_seconds), whole, decision.cut ? "cut" : "kept whole");
  for (const Decision& part : decision.parts) append(text, part, device, indent + "    ");
}

}  // namespace

Explanation explain_data(const Graph& graph, const DeviceInfo& device, const PlannerOptions& options) {
  Choices choices = choose(graph, device, options, true);
  Best best = best_of(choices, device, options);
  Explanation explanation;
  explanation.decisions = std::move(choices.decisions);
  for (size_t i = 0; i < choices.graph.ops.size(); ++i)
    if (choices.folded.folded[i]) explanation.folded.push_back(choices.graph.ops[i].name);
  explanation.choice = std::move(best.candidate);
  explanation.fusions = fusion_summaries(explanation.choice, explanation.decisions, device);
  for (size_t i = 0; i < explanation.fusions.size(); ++i) explanation.fusions[i].beside = best.beside[i];
  return explanation;
}

std::string explain(const Graph& graph, const DeviceInfo& device, const PlannerOptions& options,
                    Detail detail) {
  const Explanation explanation = explain_data(graph, device, options);
  const bool all_measured = std::ranges::all_of(explanation.fusions, &FusionSummary::measured);
  std::string text =
      fmt::format("graph '{}' on {}: {} in {}, {} {}, workspace {}\n", graph.name, device.name,
                  words::count(graph.ops.size(), "op"), words::count(explanation.fusions.size(), "fusion"),
                  words::duration(explanation.choice.seconds), all_measured ? "measured" : "estimated",
                  words::bytes(explanation.choice.workspace_bytes));
  if (graph.precision == Precision::strict)
    text += "precision strict: every product and sum is of the declared types\n";
  else if (graph.precision != Precision::exact)
    text += fmt::format("precision {}: the choice {}\n", to_string(graph.precision),
                        use_of(explanation.choice.notes));
  if (!explanation.folded.empty())
    text += fmt::format("folded into accesses: {}\n", listed(explanation.folded));
  if (!device.is_cpu())
    for (const std::string& remark : type_remarks(graph)) text += fmt::format("remark: {}\n", remark);
  if (detail == Detail::brief) return text + to_string(explanation.fusions);
  for (const Decision& decision : explanation.decisions) append(text, decision, device, "");
  return text;
}

Explanation explain_data(const Graph& graph, const DeviceInfo& device, const BuildOptions& options) {
  return explain_data(graph, device, PlannerOptions{options});
}

std::string explain(const Graph& graph, const DeviceInfo& device, const BuildOptions& options,
                    Detail detail) {
  return explain(graph, device, PlannerOptions{options}, detail);
}

}  // namespace fusor
