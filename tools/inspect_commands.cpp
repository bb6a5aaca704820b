// Owns `fusor explain` and `fusor source`: looking at what was chosen and what it became.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string_view>

#include "backend/report/explain.h"
#include "backend/report/explain_report.h"
#include "codegen/device_files.h"
#include "core/fail.h"
#include "core/whole_file.h"
#include "core/words.h"
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
  if (!file) fail(kind_of(errno), "{}: cannot be written: {}", path, std::strerror(errno));
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

/// A plan as it was saved. Its limits are not: planning it anew may choose otherwise.
std::string text_of(const Plan& plan) {
  return fmt::format(
      "the plan of '{}' as saved: {}, workspace {}\n{}planned anew, under this call's limits: ",
      plan.graph.name, words::count(plan.fusions.size(), "fusion"), words::bytes(plan.workspace_bytes),
      to_string(plan));
}

Report report_of(const Plan& plan) {
  Report fusions = Report::list();
  for (const PlannedFusion& fusion : plan.fusions)
    fusions.add(Report::object()
                    .set("ops", op_names(plan.graph, fusion))
                    .set("engine", fusion.config.engine)
                    .set("config", to_string(fusion.config)));
  return Report::object()
      .set("fusions", std::move(fusions))
      .set("workspace_bytes", plan.workspace_bytes)
      .set("remarks", plan.remarks);
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
    print((input.plan ? text_of(*input.plan) : "") + text);
    return 0;
  }
  const Explanation explanation = explain_data(input.graph, input.device, options.build);
  busy.reset();
  Report report = Report::object()
                      .set("graph", input.graph.name)
                      .set("device", input.device.name)
                      .set("fusions", fusions_report(explanation))
                      .set("folded", explanation.folded)
                      .set("decisions", decisions_report(explanation))
                      .set("choice", choice_report(explanation.choice));
  if (input.plan) report.set("plan", report_of(*input.plan));
  print(report);
  return 0;
}

namespace {

/// The kernels that were asked for.
std::vector<KernelText> asked_kernels(const Plan& plan, const Options& options) {
  if (options.fusion > static_cast<int>(plan.fusions.size()))
    fail("--fusion {}: the plan of '{}' has {}, numbered from 1", options.fusion, plan.graph.name,
         words::count(plan.fusions.size(), "fusion"));
  std::vector<KernelText> texts = kernel_texts(plan);
  if (options.fusion > 0)
    std::erase_if(texts, [&](const KernelText& text) { return text.fusion + 1 != options.fusion; });
  return texts;
}

std::string body(const KernelText& kernel, const Options& options) {
  return options.generated ? kernel.header + kernel.generated + '\n' : file_text(kernel);
}

/// A file that was written, and the command that compiles it.
struct Written {
  std::string path, command;
};

void write_text(const std::filesystem::path& path, std::string_view text) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  if (error)
    fail(kind_of(error.value()), "{}: cannot be made: {}", path.parent_path().string(), error.message());
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) fail(kind_of(errno), "{}: cannot be written: {}", path.string(), std::strerror(errno));
}

/// "nvcc -x cu -cubin ...", the command without its file.
std::string compiler_of(const KernelText& kernel) {
  return kernel.command.substr(0, kernel.command.rfind(' '));
}

/// A path as a word of the shell.
std::string shell_word(const std::filesystem::path& path) {
  constexpr std::string_view kPlain = "+,-./0123456789:=@_";
  std::string text = path.string();
  const auto is_plain = [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || kPlain.find(c) != kPlain.npos;
  };
  if (std::ranges::all_of(text, is_plain)) return text;
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? "'\\''" : std::string(1, c);
  return word + "'";
}

/// One file that compiles alone: "FOLDER/1_contraction.cu".
Written write_alone(const KernelText& kernel, const std::filesystem::path& folder, const std::string& name) {
  const std::string path = (folder / (name + ".cu")).string();
  KernelText named = kernel;
  named.command = fmt::format("{} {}.cu", compiler_of(kernel), name);
  write_text(path, file_text(named));
  return {path, fmt::format("{} {}", compiler_of(kernel), shell_word(path))};
}

/// The generated header alone, "FOLDER/1_contraction/fusor_generated.cuh"; the device files that it is for
/// lie beside it.
Written write_generated(const KernelText& kernel, const std::filesystem::path& folder,
                        const std::string& name) {
  const std::filesystem::path own = folder / name;
  const std::string path = (own / kGeneratedHeader).string();
  write_text(path, kernel.header + kernel.generated + '\n');
  return {path,
          fmt::format("{} -I {} -I {} -o {} {}", compiler_of(kernel), shell_word(own), shell_word(folder),
                      shell_word(own / "kernel.cubin"), shell_word(folder / kernel.root))};
}

std::vector<Written> write_kernels(const std::vector<KernelText>& kernels, const Options& options) {
  const std::filesystem::path folder = options.output;
  if (options.generated)
    for (const DeviceFile& file : device_files()) write_text(folder / file.name, file.text);
  std::vector<Written> written;
  std::map<std::string, int> times;
  for (const KernelText& kernel : kernels) {
    std::string name = fmt::format("{}_{}", kernel.fusion + 1, kernel.entry);
    if (const int before = times[name]++; before > 0) name += fmt::format("_{}", before + 1);
    written.push_back(options.generated ? write_generated(kernel, folder, name)
                                        : write_alone(kernel, folder, name));
  }
  return written;
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
  std::vector<Written> written;
  if (!options.output.empty()) written = write_kernels(kernels, options);
  std::string text;
  Report list = Report::list();
  for (size_t i = 0; i < kernels.size(); ++i) {
    Report row = Report::object();
    row.set("fusion", kernels[i].fusion).set("entry", kernels[i].entry);
    if (written.empty()) {
      text += body(kernels[i], options);
      row.set("command", kernels[i].command).set("source", body(kernels[i], options));
    } else {
      text += fmt::format("{}\n  {}\n", written[i].path, written[i].command);
      row.set("command", written[i].command).set("file", written[i].path);
    }
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
