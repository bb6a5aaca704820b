// Owns an explanation as pictures: the page of HTML, Graphviz's language, and ONNX for viewers.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <string_view>

#include "backend/planning.h"
#include "backend/report/explain.h"
#include "backend/report/explain_report.h"
#include "backend/report/fusion_summary.h"
#include "core/fail.h"
#include "core/graph_index.h"
#include "core/words.h"
#include "serialization/onnx.h"

namespace fusor {

namespace {

struct EmbeddedPage {
  std::string_view name, text;
};

using namespace std::string_view_literals;  // the included rows end in ""sv

constexpr std::array kPages = std::to_array<EmbeddedPage>({
#include "embedded_pages.inc"
});

/// JSON inside a script element: "<" begins no tag there.
std::string without_tags(std::string json) {
  for (size_t at = 0; (at = json.find('<', at)) != std::string::npos; at += 6) json.replace(at, 1, "\\u003c");
  return json;
}

/// A word or text in Graphviz's language.
std::string dot_string(std::string_view text) {
  std::string made = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') made += '\\';
    made += c;
  }
  return made + '"';
}

std::string tensor_words(const Tensor& tensor) {
  return fmt::format("{}\n{} {}", tensor.name, to_string(tensor.type), to_string(tensor.dims));
}

class Dot {
 public:
  explicit Dot(const Explanation& explanation)
      : explanation_(explanation), graph_(*explanation.choice.graph) {}

  std::string text() {
    text_ = fmt::format("digraph {} {{\n  rankdir=TB; node [shape=box, fontname=Helvetica, fontsize=10];\n",
                        dot_string(graph_.name));
    std::vector<bool> placed(graph_.ops.size(), false);
    for (size_t i = 0; i < explanation_.fusions.size(); ++i) {
      cluster(i);
      for (const int op : explanation_.choice.fusions[i].ops) placed[static_cast<size_t>(op)] = true;
    }
    for (size_t op = 0; op < graph_.ops.size(); ++op)
      if (!placed[op]) text_ += fmt::format("  {} [style=dashed];\n", op_node(op));
    for (size_t tensor = 0; tensor < graph_.tensors.size(); ++tensor) edges(static_cast<int>(tensor));
    return text_ + "}\n";
  }

 private:
  std::string op_node(size_t op) const {
    return fmt::format(
        "op{} [label={}]", op,
        dot_string(fmt::format("{}\n{}", graph_.ops[op].name, short_name(graph_.ops[op].attributes))));
  }

  void cluster(size_t i) {
    const FusionSummary& fusion = explanation_.fusions[i];
    text_ += fmt::format(
        "  subgraph cluster_{} {{\n    style=\"rounded,filled\"; fillcolor=\"#eef4fb\"; label={};\n", i,
        dot_string(fmt::format("{}  {}, {}", i + 1, fusion.config.engine, words::duration(fusion.seconds))));
    for (const int op : explanation_.choice.fusions[i].ops)
      text_ += fmt::format("    {};\n", op_node(static_cast<size_t>(op)));
    text_ += "  }\n";
  }

  void edges(int tensor) {
    const Tensor& about = graph_.tensors[static_cast<size_t>(tensor)];
    const int producer = index_.producer(tensor);
    const auto readers = index_.consumers(tensor);
    const std::string own = fmt::format("t{}", tensor);
    const bool is_node = producer < 0 || !about.is_virtual();
    if (is_node && (producer >= 0 || !readers.empty()))
      text_ += fmt::format("  {} [shape=ellipse, label={}];\n", own, dot_string(tensor_words(about)));
    if (is_node && producer >= 0) text_ += fmt::format("  op{} -> {};\n", producer, own);
    for (const int reader : readers)
      text_ += producer < 0 ? fmt::format("  {} -> op{};\n", own, reader)
                            : fmt::format("  op{} -> op{} [label={}, fontsize=8];\n", producer, reader,
                                          dot_string(tensor_words(about)));
  }

  const Explanation& explanation_;
  const Graph& graph_;
  const GraphIndex index_{graph_};
  std::string text_;
};

}  // namespace

std::string explain_html(const Graph& graph, const DeviceInfo& device, const BuildOptions& options) {
  const Explanation explanation = explain_data(graph, device, options);
  const Report data = Report::object()
                          .set("graph", graph_report(explanation))
                          .set("device", device.name)
                          .set("seconds", explanation.choice.seconds)
                          .set("workspace_bytes", explanation.choice.workspace_bytes)
                          .set("fusions", fusions_report(explanation))
                          .set("folded", explanation.folded)
                          .set("decisions", decisions_report(explanation));
  std::string page(kPages.front().text);
  constexpr std::string_view kPlace = "FUSOR_DATA";
  const size_t at = page.find(kPlace);
  if (at == std::string::npos) fail(ErrorKind::internal, "{} has no place for data", kPages.front().name);
  page.replace(at, kPlace.size(), without_tags(to_json(data)));
  return page;
}

std::string explain_dot(const Graph& graph, const DeviceInfo& device, const BuildOptions& options) {
  return Dot(explain_data(graph, device, options)).text();
}

std::string explain_onnx(const Graph& graph, const DeviceInfo& device, const BuildOptions& options) {
  return onnx_model(candidates(graph, device, options).front());
}

}  // namespace fusor
