// Owns `fusor explain` and `fusor source`: looking at what was chosen and what it became.
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>

#include "backend/report/explain.h"
#include "backend/report/explain_report.h"
#include "core/fail.h"
#include "tools/commands.h"
#include "tools/input.h"
#include "tools/print.h"
#include "tools/progress.h"

namespace fusor::command {

namespace {

void write_picture(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) fail("{}: cannot be written", path);
}

/// The files that were asked for; whether there were any.
bool write_pictures(const Input& input, const Options& options) {
  if (!options.html.empty())
    write_picture(options.html, explain_html(input.graph, input.device, options.build));
  if (!options.dot.empty()) write_picture(options.dot, explain_dot(input.graph, input.device, options.build));
  if (!options.onnx.empty())
    write_picture(options.onnx, explain_onnx(input.graph, input.device, options.build));
  return !options.html.empty() || !options.dot.empty() || !options.onnx.empty();
}

}  // namespace

int explain(const Options& options) {
  const Input input = read_input(options);
  std::optional<Busy> busy(std::in_place, "planning");
  if (write_pictures(input, options) && !options.json) return 0;
  if (!options.json) {
    const std::string text =
        fusor::explain(input.graph, input.device, options.build, options.all ? Detail::all : Detail::brief);
    busy.reset();
    print(text);
    return 0;
  }
  const Explanation explanation = explain_data(input.graph, input.device, options.build);
  busy.reset();
  print(Report::object()
            .set("graph", input.graph.name)
            .set("device", input.device.name)
            .set("fusions", fusions_report(explanation))
            .set("folded", explanation.folded)
            .set("decisions", decisions_report(explanation))
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
