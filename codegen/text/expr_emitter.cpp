// Owns the generated header of a kernel as a whole: struct Config, the structs of its sites, struct Params.
#include "codegen/text/expr_emitter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <variant>

#include "codegen/text/device_types.h"
#include "codegen/text/formula_text.h"
#include "codegen/text/rows/site.h"
#include "codegen/text/site_writer.h"

namespace fusor {

namespace {

// The compute capability of "sm_90a", times ten: what __CUDA_ARCH__ is.
int arch_of(const std::string& target) {
  int arch = 0;
  for (const char c : target)
    if (c >= '0' && c <= '9') arch = arch * 10 + (c - '0');
  return arch * 10;
}

std::string config_text(const KernelSource& source) {
  std::string text = fmt::format(
      "#include \"codegen/device/base/elements.cuh\"\n\n"
      "struct Config {{\n  enum : int {{ arch = {} }};\n",
      arch_of(source.target));
  for (const auto& [name, value] : source.config) {
    if (const auto* const type = std::get_if<DataType>(&value))
      text += fmt::format("  using {} = {};\n", name, device_type(*type));
    else if (const auto* const truth = std::get_if<bool>(&value))
      text += fmt::format("  enum : bool {{ {} = {} }};\n", name, *truth);
    else
      text += fmt::format("  enum : int {{ {} = {} }};\n", name, std::get<int64_t>(value));
  }
  return text + "};\n";
}

// Members of structs are declared by device files: that they lie where their bytes are is checked.
std::string parameters_text(const KernelSource& source) {
  std::string text;
  std::string checks;
  for (const std::string& declaring : source.types)
    text += declaring.ends_with(')') ? declaring + "\n"
                                     : fmt::format("#include \"codegen/device/{}\"\n", declaring);
  text += "struct Params {\n";
  for (const ParameterField& field : source.parameters) {
    if (field.type.empty())
      checks += fmt::format("static_assert(FUSOR_PLACE(Params, {}) == {}, \"\");\n", field.path, field.at);
    else
      text += fmt::format("  {} {}{};\n", field.type, field.path,
                          field.count > 0 ? fmt::format("[{}]", field.count) : std::string());
  }
  return text + "};\n" + checks + "\n";
}

// Whether it takes elements through numbers that are counted.
bool counts_places(const KernelSite& site) {
  return site.kept >= 0 && std::ranges::any_of(site.expr.nodes, [](const Node& node) {
           return node.kind == Node::Kind::load && node.access.is_indexed();
         });
}

// Whether it calls formulas whose parameters it passes.
bool calls_formulas(const KernelSite& site) {
  return std::ranges::any_of(site.expr.nodes, [](const Node& node) {
    return node.kind == Node::Kind::pointwise && reads_parameters(node.pointwise.mode);
  });
}

}  // namespace

std::string emit_header(const KernelSource& source, const SourceNames* names) {
  std::string text;
  bool reduces = false;
  text += config_text(source);
  for (const KernelSite& site : source.sites) reduces |= site.expr.has_reduction();
  text += fmt::format("#include \"codegen/device/base/{}.cuh\"\n", reduces ? "reduction" : "pointwise");
  if (std::ranges::any_of(source.sites, calls_formulas))
    text += "#include \"codegen/device/base/formulas.cuh\"\n";
  if (std::ranges::any_of(source.sites, counts_places))
    text += "#include \"codegen/device/base/counted.cuh\"\n";
  text += "\n";
  for (const KernelSite& site : source.sites)
    text += site.kept >= 0 ? emit_row_site(site, names) : emit_site(site, names);
  if (!source.parameters.empty()) text += parameters_text(source);
  return text;
}

int64_t accumulator_bytes(const KernelSite& site) {
  int64_t bytes = 0;
  int64_t widest = 1;
  for (const Store& result : site.expr.stores) {
    const Node* const total = reduction_of(site.expr, result);
    if (total == nullptr) continue;
    const int64_t size = byte_size(total->reduction.compute);
    widest = std::max(widest, size);
    bytes = (bytes + size - 1) / size * size + size;
  }
  return (bytes + widest - 1) / widest * widest;
}

}  // namespace fusor
