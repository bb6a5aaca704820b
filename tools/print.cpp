// Owns the printing of choices and documents.
#include "tools/print.h"

#include <cstdio>

#include "core/fail.h"

namespace fusor::command {

namespace {

std::string_view origin_name(KernelOrigin origin) {
  switch (origin) {
    case KernelOrigin::memory:
      return "memory";
    case KernelOrigin::disk:
      return "disk";
    case KernelOrigin::compiled:
      return "compiled";
  }
  return "";
}

}  // namespace

void print(const std::string& text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (!written || std::fflush(stdout) != 0) fail(ErrorKind::missing, "standard output cannot be written");
}

void print(const Report& report) { print(to_json(report)); }

std::vector<ShownKernel> shown_kernels(const Plan& plan, bool compile) {
  std::vector<ShownKernel> shown;
  if (plan.device.is_cpu()) return shown;
  std::vector<std::shared_ptr<const KernelSource>> sources;
  for (PlannedKernel& kernel : kernels(plan)) {
    sources.push_back(kernel.launch.source);
    shown.push_back({std::move(kernel), nullptr});
  }
  if (!compile) return shown;
  const auto compiled = compiled_kernels(sources);
  for (size_t i = 0; i < shown.size(); ++i) shown[i].compiled = compiled[i];
  return shown;
}

Report choice_report(const Candidate& candidate) {
  Report fusions = Report::list();
  for (const PlannedFusion& fusion : candidate.fusions) {
    Report knobs = Report::object();
    for (const KnobSetting& knob : fusion.config.knobs) knobs.set(knob.name, knob.value);
    fusions.add(Report::object()
                    .set("ops", op_names(*candidate.graph, fusion))
                    .set("engine", fusion.config.engine)
                    .set("revision", fusion.config.revision)
                    .set("knobs", std::move(knobs)));
  }
  return Report::object()
      .set("seconds", candidate.seconds)
      .set("workspace_bytes", candidate.workspace_bytes)
      .set("notes", Report::object().set_fields(candidate.notes))
      .set("fusions", std::move(fusions));
}

std::string choice_text(const Graph& graph, const std::vector<PlannedFusion>& fusions) {
  std::string text;
  for (size_t i = 0; i < fusions.size(); ++i)
    text += fmt::format("  fusion {}: {}\n            {}\n", i + 1,
                        fmt::join(op_names(graph, fusions[i]), " + "), to_string(fusions[i].config));
  return text;
}

Report kernels_report(const std::vector<ShownKernel>& kernels) {
  Report list = Report::list();
  for (const ShownKernel& kernel : kernels) {
    const Launch& launch = kernel.planned.launch;
    Report row = Report::object();
    row.set("fusion", kernel.planned.fusion)
        .set("entry", launch.entry)
        .set("file", launch.source->root)
        .set("target", launch.source->target);
    if (kernel.compiled)
      row.set("origin", origin_name(kernel.compiled->origin))
          .set("compile_ms", kernel.compiled->compile_ms)
          .set("cubin_bytes", static_cast<int64_t>(kernel.compiled->cubin.size()));
    list.add(std::move(row));
  }
  return list;
}

std::string kernels_text(const std::vector<ShownKernel>& kernels) {
  std::string text;
  for (const ShownKernel& kernel : kernels) {
    const Launch& launch = kernel.planned.launch;
    text += fmt::format("  kernel of fusion {}: '{}' of {} for {}", kernel.planned.fusion + 1, launch.entry,
                        launch.source->root, launch.source->target);
    if (kernel.compiled) {
      const bool is_new = kernel.compiled->origin == KernelOrigin::compiled;
      text += fmt::format(", {} ({:.0f} ms of compilation{})",
                          is_new ? std::string("compiled now")
                                 : fmt::format("from the {} cache", origin_name(kernel.compiled->origin)),
                          kernel.compiled->compile_ms, is_new ? "" : " saved");
    }
    text += '\n';
  }
  return text;
}

std::string notes_text(const Notes& notes) {
  std::string text = notes.deterministic ? "deterministic" : "not deterministic";
  if (notes.tensor_cores) text += ", tensor cores";
  if (notes.tf32) text += ", tf32";
  if (notes.short_sums) text += ", short sums";
  if (notes.late_division) text += ", late division";
  if (notes.late_scale) text += ", late scale";
  if (notes.split_operands) text += ", fp32 in parts";
  if (notes.down_converts) text += ", down-converts";
  if (notes.compiles_at_run_time) text += ", compiles at run time";
  return text;
}

}  // namespace fusor::command
