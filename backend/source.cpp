// Owns source(): a plan's kernels as texts that a person can read, compile alone and edit.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "backend/planning.h"
#include "backend/replan.h"
#include "codegen/device_files.h"
#include "codegen/nvrtc.h"
#include "codegen/text/expr_emitter.h"

namespace fusor {

namespace {

// Puts included files in place of their #include lines. A `#pragma once` file that the compiler surely sees
// is put there once; inside of a condition that may not hold it gets a guard, and is put at the next place
// again.
class Inliner {
 public:
  explicit Inliner(std::string generated) : generated_(std::move(generated)) {}

  void append(std::string_view name, std::string& out) {
    const std::string_view text = text_of(name);
    const bool once = text.find("#pragma once") != std::string_view::npos;
    if (once && seen_.contains(name)) return;
    if (once && conditions_ == 0) seen_.insert(std::string(name));
    const bool guarded = once && guarded_.contains(name);
    const std::string guard = guard_of(name);
    if (guarded || (once && conditions_ > 0)) {
      guarded_.insert(std::string(name));
      out += fmt::format("#ifndef {0}\n#define {0}\n", guard);
      append_text(name, text, out);
      out += fmt::format("#endif  // {}\n", guard);
      return;
    }
    append_text(name, text, out);
  }

 private:
  void append_text(std::string_view name, std::string_view text, std::string& out) {
    out += fmt::format("// ---- {}\n", name);
    size_t at = 0;
    while (at < text.size()) {
      const size_t end = std::min(text.find('\n', at), text.size());
      append_line(text.substr(at, end - at), out);
      at = end + 1;
    }
  }

  static std::string guard_of(std::string_view name) {
    std::string guard = "FUSOR_INCLUDED_";
    for (const char c : name) guard += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
    return guard;
  }

  std::string_view text_of(std::string_view name) const {
    if (name == kGeneratedHeader) return generated_;
    for (const DeviceFile& file : device_files())
      if (file.name == name) return file.text;
    return {};
  }

  void append_line(std::string_view line, std::string& out) {
    if (line.starts_with("#include \"")) {
      const std::string_view name = line.substr(10, line.rfind('"') - 10);
      append(name, out);
    } else if (line != "#pragma once") {
      if (line.starts_with("#if")) ++conditions_;
      if (line.starts_with("#endif")) --conditions_;
      out += line;
      out += '\n';
    }
  }

  std::string generated_;
  std::set<std::string, std::less<>> seen_;     // whatever conditions hold
  std::set<std::string, std::less<>> guarded_;  // where some condition holds
  int conditions_ = 0;                          // around the line that is written
};

// Rewritten fusions have scratch behind the user's operands, which has no name of the user's.
std::string operand_name(const Fusion& fusion, int operand) {
  return operand < static_cast<int>(fusion.operand_names.size()) ? fusion.name_of(operand) : "scratch";
}

}  // namespace

std::vector<KernelText> kernel_texts(const Plan& unchecked) {
  LoweredPlan lowered = lowered_plan(unchecked);
  std::vector<KernelText> texts;
  std::set<std::string> shown;
  for (const PlannedKernel& kernel : kernels_of(std::move(lowered.fusions))) {
    const KernelSource& source = *kernel.launch.source;
    if (!shown.insert(structure_hash(source)).second) continue;
    const Fusion& fusion = kernel.description;
    const SourceNames names{[&](int operand) { return operand_name(fusion, operand); },
                            [&](int op) { return fusion.op_name(op); }};
    KernelText& text = texts.emplace_back();
    text.fusion = kernel.fusion;
    text.entry = kernel.launch.entry;
    text.command =
        fmt::format("nvcc -x cu -cubin {} kernel.cu", fmt::join(nvrtc::language_options(source.target), " "));
    text.header =
        fmt::format("// kernel '{}' of fusion {}: {}\n// engine {}\n", text.entry, kernel.fusion + 1,
                    fmt::join(fusion.op_names, " + "), to_string(lowered.plan.fusions[kernel.fusion].config));
    text.root = fmt::format("codegen/device/{}", source.root);
    text.generated = emit_header(source, &names);
    Inliner(text.generated).append(text.root, text.text);
  }
  return texts;
}

std::string file_text(const KernelText& kernel) {
  return fmt::format("{}// compile alone: {}\n{}\n", kernel.header, kernel.command, kernel.text);
}

std::string source(const Plan& plan) {
  std::string all;
  for (const KernelText& kernel : kernel_texts(plan)) all += file_text(kernel);
  return all;
}

}  // namespace fusor
