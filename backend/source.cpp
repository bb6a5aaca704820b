// Owns source(): a plan's kernels as texts that a person can read, compile alone and edit.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "backend/build.h"
#include "codegen/device_files.h"
#include "codegen/expr_emitter.h"

namespace fusor {

namespace {

// Puts included files in place of their #include lines, each `#pragma once` file only the first time.
class Inliner {
 public:
  explicit Inliner(std::string generated) : generated_(std::move(generated)) {}

  void append(std::string_view name, std::string& out) {
    const std::string_view text = text_of(name);
    const bool once = text.find("#pragma once") != std::string_view::npos;
    if (once && !seen_.insert(std::string(name)).second) return;
    out += fmt::format("// ---- {}\n", name);
    size_t at = 0;
    while (at < text.size()) {
      const size_t end = std::min(text.find('\n', at), text.size());
      append_line(text.substr(at, end - at), out);
      at = end + 1;
    }
  }

 private:
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
      out += line;
      out += '\n';
    }
  }

  std::string generated_;
  std::set<std::string> seen_;
};

}  // namespace

std::string source(const Plan& plan) {
  std::string out;
  std::set<std::string> shown;
  for (const PlannedKernel& kernel : kernels(plan)) {
    const KernelSource& text = *kernel.launch.source;
    if (!shown.insert(structure_hash(text)).second) continue;
    const Fusion& fusion = kernel.description;
    const SourceNames names{[&](int operand) { return fusion.name_of(operand); },
                            [&](int op) { return fusion.op_name(op); }};
    out += fmt::format("// kernel '{}' of fusion {}: {}\n", kernel.launch.entry, kernel.fusion,
                       fmt::join(fusion.op_names, " + "));
    out += fmt::format("// engine {}\n", to_string(plan.fusions[kernel.fusion].config));
    out += fmt::format(
        "// compile alone: nvcc -std=c++17 -cubin -gencode=arch=compute_{0},code=sm_{0} kernel.cu\n",
        text.target.substr(3));
    Inliner(emit_header(text, &names)).append(fmt::format("codegen/device/{}", text.root), out);
    out += '\n';
  }
  return out;
}

}  // namespace fusor
