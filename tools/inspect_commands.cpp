// Owns `fusor explain` and `fusor source`: looking at what was chosen and what it became.
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>

#include "backend/explain.h"
#include "core/fail.h"
#include "tools/commands.h"
#include "tools/input.h"
#include "tools/print.h"
#include "tools/progress.h"

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
  std::optional<Busy> busy(std::in_place, "planning");
  if (!options.json) {
    const std::string text =
        fusor::explain(input.graph, input.device, options.build, options.all ? Detail::all : Detail::brief);
    busy.reset();
    print(text);
    return 0;
  }
  const Explanation explanation = explain_data(input.graph, input.device, options.build);
  busy.reset();
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

namespace {

/// The kernels that were asked for.
std::vector<KernelText> asked_kernels(const Plan& plan, const Options& options) {
  if (options.fusion > static_cast<int>(plan.fusions.size()))
    fail("--fusion {}: the plan of '{}' has {}, numbered from 1", options.fusion, plan.graph.name,
         count(plan.fusions.size(), "fusion"));
  std::vector<KernelText> texts = kernel_texts(plan);
  if (options.fusion > 0)
    std::erase_if(texts, [&](const KernelText& text) { return text.fusion + 1 != options.fusion; });
  return texts;
}

std::string body(const KernelText& kernel, const Options& options) {
  return kernel.header + (options.generated ? kernel.generated : kernel.text) + '\n';
}

/// One file a kernel, "1_contraction.cu"; returns their paths.
std::vector<std::string> write_kernels(const std::vector<KernelText>& kernels, const Options& options) {
  const std::filesystem::path folder = options.output;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) fail("{}: cannot be made: {}", options.output, error.message());
  std::vector<std::string> paths;
  std::map<std::string, int> times;
  for (const KernelText& kernel : kernels) {
    std::string name = fmt::format("{}_{}", kernel.fusion + 1, kernel.entry);
    if (const int before = times[name]++; before > 0) name += fmt::format("_{}", before + 1);
    const std::string path = (folder / (name + ".cu")).string();
    std::string text = body(kernel, options);
    if (const size_t at = text.find("kernel.cu\n"); at != std::string::npos)
      text.replace(at, 9, name + ".cu");
    std::ofstream(path) << text;
    if (!std::filesystem::exists(path)) fail("{}: cannot be written", path);
    paths.push_back(path);
  }
  return paths;
}

}  // namespace

int source(const Options& options) {
  const Input input = read_input(options);
  BuildOptions build_options = options.build;
  build_options.compile = false;
  const Plan plan = input.plan ? *input.plan : build(input.graph, input.device, build_options);
  if (plan.device.is_cpu())
    fail("the plan of '{}' is for the CPU, which has no kernels; name a GPU, for example --device H200",
         plan.graph.name);
  const std::vector<KernelText> kernels = asked_kernels(plan, options);
  std::vector<std::string> paths;
  if (!options.output.empty()) paths = write_kernels(kernels, options);
  std::string text;
  Report list = Report::list();
  for (size_t i = 0; i < kernels.size(); ++i) {
    if (paths.empty())
      text += body(kernels[i], options);
    else
      text += fmt::format("{}\n  {}\n", paths[i],
                          kernels[i].command.substr(0, kernels[i].command.rfind(' ') + 1) + paths[i]);
    Report row = Report::object();
    row.set("fusion", kernels[i].fusion).set("entry", kernels[i].entry).set("command", kernels[i].command);
    if (paths.empty())
      row.set("source", body(kernels[i], options));
    else
      row.set("file", paths[i]);
    list.add(std::move(row));
  }
  if (options.json)
    print(Report::object()
              .set("graph", plan.graph.name)
              .set("device", plan.device.name)
              .set("kernels", std::move(list)));
  else
    print(text);
  return 0;
}

}  // namespace fusor::command
