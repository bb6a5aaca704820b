// Owns `fusor plan` and `fusor candidates`: choosing, and saving the choice.
#include <optional>

#include "core/fail.h"
#include "core/words.h"
#include "serialization/serialization.h"
#include "tools/commands.h"
#include "tools/input.h"
#include "tools/print.h"
#include "tools/progress.h"

namespace fusor::command {

namespace {

/// Plans without compiling: the kernels are compiled afterwards, where each can be seen.
Plan chosen_plan(const Input& input, const Options& options) {
  BuildOptions build_options = options.build;
  build_options.compile = false;
  if (!options.candidate) return build(input.graph, input.device, build_options);
  const std::vector<Candidate> found = fusor::candidates(input.graph, input.device, build_options);
  if (*options.candidate >= found.size())
    fail("--candidate {}: there are {}, numbered from 0", *options.candidate, found.size());
  return build(input.graph, input.device, found[*options.candidate], build_options);
}

}  // namespace

int plan(const Options& options) {
  const Input input = read_input(options);
  std::optional<Busy> busy(std::in_place, "planning");
  const Plan plan = chosen_plan(input, options);
  busy->now("compiling kernels");
  const std::vector<ShownKernel> kernels = shown_kernels(plan, options.build.compile);
  busy.reset();
  if (!options.output.empty()) save(plan, options.output);
  const Candidate choice{std::make_shared<const Graph>(plan.graph), plan.fusions, plan.seconds,
                         plan.workspace_bytes, plan.notes};
  if (options.json) {
    Report report = Report::object();
    report.set("graph", plan.graph.name)
        .set("device", plan.device.name)
        .set("plan", choice_report(choice))
        .set("kernels", kernels_report(kernels));
    if (!options.output.empty()) report.set("saved", options.output);
    print(report);
    return 0;
  }
  std::string text =
      fmt::format("graph '{}' on {}: {}, estimated {}, workspace {}, {}\n", plan.graph.name, plan.device.name,
                  words::count(plan.fusions.size(), "fusion"), words::duration(plan.seconds),
                  words::bytes(plan.workspace_bytes), notes_text(plan.notes));
  text += choice_text(plan.graph, plan.fusions) + kernels_text(kernels);
  if (!options.output.empty()) text += fmt::format("saved as {}\n", options.output);
  print(text);
  return 0;
}

int candidates(const Options& options) {
  const Input input = read_input(options);
  std::optional<Busy> busy(std::in_place, "planning");
  const std::vector<Candidate> found = fusor::candidates(input.graph, input.device, options.build);
  busy.reset();
  if (options.json) {
    Report list = Report::list();
    for (const Candidate& candidate : found) list.add(choice_report(candidate));
    print(Report::object()
              .set("graph", input.graph.name)
              .set("device", input.device.name)
              .set("candidates", std::move(list)));
    return 0;
  }
  std::string text;
  for (size_t i = 0; i < found.size(); ++i)
    text += fmt::format("candidate {}: estimated {}, workspace {}, {}\n{}", i,
                        words::duration(found[i].seconds), words::bytes(found[i].workspace_bytes),
                        notes_text(found[i].notes), choice_text(*found[i].graph, found[i].fusions));
  print(text);
  return 0;
}

}  // namespace fusor::command
