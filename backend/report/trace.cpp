// Owns the words of FUSOR_DEBUG.
#include "backend/report/trace.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>

#include "backend/choose.h"
#include "backend/planner/planner.h"
#include "core/environment.h"
#include "core/print.h"
#include "core/words.h"

namespace fusor {

namespace {

// One call, so that lines of several threads do not mix.
void write(const std::string& text) { std::fputs(text.c_str(), stderr); }

std::string list(const Dims& dims) { return fmt::format("[{}]", fmt::join(dims.begin(), dims.end(), ",")); }

std::string names(const Graph& graph, const std::vector<int>& ops) {
  std::string text;
  for (const int op : ops) text += (text.empty() ? "" : " + ") + graph.ops[op].name;
  return text;
}

}  // namespace

void trace_run(const Plan& plan, size_t steps) {
  write(fmt::format("fusor: run '{}' on {}: {}, estimated {}\n", plan.graph.name, plan.device.name,
                    words::count(steps, "step"), words::duration(plan.seconds)));
}

Trace::Trace() : level_(environment::debug_level()) {
  if (is_on()) start_ = std::chrono::steady_clock::now();
}

void Trace::expanded(const Graph& graph) const {
  if (level_ < 2) return;
  std::string text =
      fmt::format("fusor: '{}' expanded: {}\n", graph.name, words::count(graph.ops.size(), "op"));
  for (const Op& op : graph.ops) {
    text += fmt::format("  {} ({})", op.name, kind_name(op.attributes));
    for (const int input : op.inputs) text += " " + graph.tensors[input].name;
    const Tensor& y = graph.tensors[op.outputs[0]];
    text += fmt::format(" -> {} {}{}\n", y.name, to_string(y.type), list(y.dims));
  }
  write(text);
}

void Trace::partitioned(const Graph& graph, const FoldedGraph& folded,
                        const std::vector<std::vector<int>>& groups) const {
  if (level_ < 2) return;
  std::vector<int> views;
  for (size_t i = 0; i < graph.ops.size(); ++i)
    if (folded.folded[i]) views.push_back(static_cast<int>(i));
  std::string text = fmt::format("fusor: '{}' folded: {}\n", graph.name, names(graph, views));
  text += fmt::format("fusor: '{}' partitioned: {}\n", graph.name, words::count(groups.size(), "group"));
  for (const std::vector<int>& ops : groups) text += "  " + names(graph, ops) + "\n";
  write(text);
}

void Trace::priced(const Choices& choices) const {
  if (level_ < 2) return;
  std::string text = fmt::format("fusor: '{}' priced and cut: {}\n", choices.graph.name,
                                 words::count(choices.fusions.size(), "fusion"));
  for (const Choice& choice : choices.fusions) {
    text +=
        fmt::format("  {}: {} options\n", names(choices.graph, choice.fusion().ops), choice.options.size());
    if (level_ > 2) text += print(choice.fusion());
  }
  write(text);
}

void Trace::ordered(const Choices& choices) const {
  if (level_ < 2) return;
  std::string text = fmt::format("fusor: '{}' ordered:\n", choices.graph.name);
  for (const Choice& choice : choices.fusions)
    text += fmt::format("  {}: {}, {}\n", names(choices.graph, choice.fusion().ops),
                        to_string(choice.options.front().config),
                        words::duration(choice.options.front().seconds));
  write(text);
}

void Trace::compiled(std::span<const std::shared_ptr<const CompiledKernel>> kernels) {
  if (!is_on()) return;
  for (const auto& kernel : kernels) {
    from_memory_ += kernel->origin == KernelOrigin::memory ? 1 : 0;
    from_disk_ += kernel->origin == KernelOrigin::disk ? 1 : 0;
    compiled_ += kernel->origin == KernelOrigin::compiled ? 1 : 0;
  }
}

void Trace::tell(const char* what, const Plan& plan) const {
  if (!is_on()) return;
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start_;
  std::vector<std::string> engines;
  for (const PlannedFusion& fusion : plan.fusions) engines.push_back(to_string(fusion.config));
  write(fmt::format(
      "fusor: {} '{}' on {} in {:.2f} ms: {} in {}, estimated {}, workspace {}, "
      "kernels {} from memory, {} from disk, {} compiled: {}\n",
      what, plan.graph.name, plan.device.name, took.count(), words::count(plan.graph.ops.size(), "op"),
      words::count(plan.fusions.size(), "fusion"), words::duration(plan.seconds),
      words::bytes(plan.workspace_bytes), from_memory_, from_disk_, compiled_, fmt::join(engines, "; ")));
}

}  // namespace fusor
