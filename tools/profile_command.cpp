// Owns `fusor profile`: where the time of a run goes, fusion by fusion and kernel by kernel.
#include <fmt/format.h>

#include <optional>

#include "backend/executable.h"
#include "backend/report/profile.h"
#include "core/words.h"
#include "tools/commands.h"
#include "tools/input.h"
#include "tools/measure.h"
#include "tools/print.h"
#include "tools/progress.h"
#include "tools/run_buffers.h"

namespace fusor::command {

namespace {

Report fusion_report(const FusionProfile& fusion) {
  Report steps = Report::list();
  for (const StepProfile& step : fusion.steps)
    steps.add(Report::object().set("name", step.name).set("seconds", step.seconds));
  return Report::object()
      .set("ops", fusion.ops)
      .set("engine", fusion.config.engine)
      .set("config", to_string(fusion.config))
      .set("seconds", fusion.seconds)
      .set("estimated_seconds", fusion.estimated_seconds)
      .set("bytes", fusion.bytes)
      .set("flops", fusion.flops)
      .set("bound", fusion.bound)
      .set("limit_seconds", fusion.limit_seconds)
      .set("fraction_of_limit", fusion.fraction_of_limit())
      .set("steps", std::move(steps));
}

Report profile_report(const Profile& profile, int64_t flush_mb) {
  Report fusions = Report::list();
  for (const FusionProfile& fusion : profile.fusions) fusions.add(fusion_report(fusion));
  return Report::object()
      .set("graph", profile.graph)
      .set("device", profile.device)
      .set("runs", profile.runs)
      .set("flush_mib", flush_mb)
      .set("seconds", profile.seconds)
      .set("estimated_seconds", profile.estimated_seconds)
      .set("fusions", std::move(fusions));
}

}  // namespace

int profile(const Options& options) {
  const Input input = read_input(options);
  std::optional<Busy> busy(std::in_place, "planning and compiling kernels");
  const Executable executable =
      load(input.plan ? *input.plan : build(input.graph, input.device, options.build));
  const Plan& plan = executable.plan();
  const RunBuffers buffers(input.graph, !plan.device.is_cpu(), executable.workspace_bytes(), options.seed);
  ProfileOptions asked;
  asked.runs = options.runs;
  std::optional<Flusher> flush;
  if (options.flush_mb > 0) {
    flush.emplace(plan.device, options.flush_mb << 20);
    asked.before_run = [&] { (*flush)(); };
  }
  busy->now(fmt::format("{} runs", options.runs));
  const Profile profile = executable.profile(buffers.bindings(), buffers.workspace(), nullptr, asked);
  busy.reset();
  if (options.json) {
    print(profile_report(profile, options.flush_mb));
    return 0;
  }
  print(to_string(profile) + (flush ? fmt::format("caches were emptied before each run by reading {}\n",
                                                  words::bytes(options.flush_mb << 20))
                                    : std::string("caches were left as the run before left them\n")));
  return 0;
}

}  // namespace fusor::command
