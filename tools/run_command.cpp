// Owns `fusor run`: random inputs, timed runs, and the comparison with the oracle.
#include <fmt/format.h>

#include <optional>

#include "backend/executable.h"
#include "backend/verify.h"
#include "core/fail.h"
#include "core/words.h"
#include "heuristics/statistics.h"
#include "tools/commands.h"
#include "tools/input.h"
#include "tools/measure.h"
#include "tools/npy.h"
#include "tools/print.h"
#include "tools/progress.h"
#include "tools/run_buffers.h"

namespace fusor::command {

namespace {

/// The first run also pays for what happens once; it counts only where it is the only one.
double median(std::vector<double> seconds) {
  if (seconds.size() > 1) seconds.erase(seconds.begin());
  return summarise(std::move(seconds)).median;
}

Report check_report(const OutputCheck& check) {
  Report report = Report::object();
  report.set("tensor", check.tensor)
      .set("elements", check.elements)
      .set("checked", check.checked)
      .set("unwritten", check.unwritten)
      .set("sampled", is_sampled(check))
      .set("max_abs", check.max_abs)
      .set("max_abs_at", check.max_abs_at)
      .set("max_rel", check.max_rel)
      .set("max_rel_at", check.max_rel_at)
      .set("tolerance_abs", check.tolerance_abs)
      .set("tolerance_rel", check.tolerance_rel)
      .set("max_ulp", check.max_ulp)
      .set("max_ulp_at", check.max_ulp_at)
      .set("rms", check.rms)
      .set("got", check.got)
      .set("want", check.want)
      .set("wrong", check.wrong)
      .set("nans", check.nans)
      .set("infs", check.infs);
  if (check.wrong > 0) report.set("wrong_at", check.wrong_at);
  return report;
}

Report verify_report(const VerifyReport& verified) {
  Report outputs = Report::list();
  for (const OutputCheck& check : verified.outputs) outputs.add(check_report(check));
  return Report::object().set("passed", verified.passed()).set("outputs", std::move(outputs));
}

std::string run_text(const Plan& plan, int64_t workspace_bytes, const std::vector<double>& seconds) {
  std::string text = fmt::format("graph '{}' on {}: {}, workspace {}\n", plan.graph.name, plan.device.name,
                                 words::count(plan.fusions.size(), "fusion"), words::bytes(workspace_bytes));
  for (const std::string& remark : plan.remarks) text += fmt::format("remark: {}\n", remark);
  text +=
      fmt::format("{} a run (estimated {})", words::duration(median(seconds)), words::duration(plan.seconds));
  if (seconds.size() > 1)
    text += fmt::format(": median of {}, first run {}", seconds.size() - 1, words::duration(seconds.front()));
  return text + '\n';
}

/// A tensor and the file that is meant for it.
struct TensorFile {
  size_t tensor = 0;
  std::string path;
};

/// "NAME=FILE" for a tensor that runs read, or write; FILE alone where there is only one.
TensorFile tensor_file(const Graph& graph, const std::string& option, const std::string& text,
                       bool is_output) {
  std::string names;
  std::vector<size_t> bound;
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    const Tensor& tensor = graph.tensors[i];
    const bool is_bound = tensor.memory == Memory::device || tensor.memory == Memory::host;
    if (!is_bound || (graph.producer(static_cast<int>(i)) >= 0) != is_output) continue;
    if (text.starts_with(tensor.name + "=")) return {i, text.substr(tensor.name.size() + 1)};
    names += (names.empty() ? "" : ", ") + tensor.name;
    bound.push_back(i);
  }
  if (bound.size() == 1 && text.find('=') == std::string::npos) return {bound.front(), text};
  fail("{} {}: expected NAME=FILE with the name of an {}: {}", option, text, is_output ? "output" : "input",
       names);
}

}  // namespace

int run(const Options& options) {
  const Input input = read_input(options);
  std::optional<Busy> busy(std::in_place, "planning and compiling kernels");
  const Executable executable =
      load(input.plan ? *input.plan : build(input.graph, input.device, options.build));
  const Plan& plan = executable.plan();
  const bool on_gpu = !plan.device.is_cpu();
  busy->now("filling inputs");
  RunBuffers buffers(input.graph, on_gpu, executable.workspace_bytes(), options.seed);
  for (const std::string& each : options.inputs) {
    const TensorFile file = tensor_file(input.graph, "--input", each, false);
    read_npy(file.path, input.graph.tensors[file.tensor], buffers.host()[file.tensor]);
    buffers.send(file.tensor);
  }
  std::vector<TensorFile> outputs;
  for (const std::string& each : options.outputs)
    outputs.push_back(tensor_file(input.graph, "--output", each, true));
  std::optional<cuda::Timer> timer;
  if (on_gpu) timer.emplace();
  std::vector<Seconds> seconds;
  seconds.reserve(static_cast<size_t>(options.repeat));
  for (int i = 0; i < options.repeat; ++i) {
    busy->now(fmt::format("run {} of {}", i + 1, options.repeat));
    seconds.push_back(
        timed([&] { executable.run(buffers.bindings(), buffers.workspace()); }, timer ? &*timer : nullptr));
  }
  if (options.verify || !outputs.empty()) buffers.fetch_outputs();
  for (const TensorFile& file : outputs)
    write_npy(file.path, input.graph.tensors[file.tensor], buffers.host()[file.tensor]);
  std::optional<VerifyReport> verified;
  if (options.verify) {
    busy->now("comparing with a float64 evaluation");
    verified = verify(input.graph, buffers.host(), options.seed, plan.notes);
  }
  busy.reset();
  if (options.json) {
    Report runs = Report::list();
    for (const double each : seconds) runs.add(each);
    Report report = Report::object();
    report.set("graph", plan.graph.name)
        .set("device", plan.device.name)
        .set("fusions", static_cast<int64_t>(plan.fusions.size()))
        .set("workspace_bytes", executable.workspace_bytes())
        .set("remarks", plan.remarks)
        .set("seconds", median(seconds))
        .set("estimated_seconds", plan.seconds)
        .set("runs", std::move(runs));
    if (verified) report.set("verify", verify_report(*verified));
    print(report);
  } else {
    print(run_text(plan, executable.workspace_bytes(), seconds) + (verified ? to_string(*verified) : ""));
  }
  return verified && !verified->passed() ? kWrongResult : 0;
}

}  // namespace fusor::command
