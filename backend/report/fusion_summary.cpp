// Owns the short form of an explanation.
#include "backend/report/fusion_summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "backend/engines/attention/form.h"
#include "backend/planner/planner.h"
#include "backend/reference/contraction.h"
#include "core/words.h"

namespace fusor {

namespace {

constexpr size_t kMostLine = 119;

// ---- Work ----

std::string shortened(std::string line) {
  if (line.size() > kMostLine) line = line.substr(0, kMostLine - 3) + "...";
  return line + '\n';
}

/// Bytes of a tensor that the op reads or writes: of one whose elements it gathers or scatters, no more than
/// those.
double bytes_of(const Graph& graph, const Op& op, int tensor) {
  const auto at = [&](int x) -> const Tensor& { return graph.tensors[static_cast<size_t>(x)]; };
  const auto whole = static_cast<double>(at(tensor).bytes());
  int moved = -1;
  if (std::holds_alternative<Gather>(op.attributes) && tensor == op.inputs[0]) moved = op.outputs[0];
  if (std::holds_alternative<Scatter>(op.attributes) && tensor == op.outputs[0]) moved = op.inputs[0];
  if (moved < 0) return whole;
  const auto elements = [&](int x) { return static_cast<double>(element_count(at(x).dims)); };
  return whole * std::min(1.0, elements(moved) / elements(tensor));
}

/// Whether the op multiplies two operands: a contraction, or a matmul by experts that stays whole.
bool multiplies(const Op& op) {
  return is_contraction(op.attributes) || std::holds_alternative<MoeGroupedMatmul>(op.attributes);
}

double multiply_adds(const Graph& graph, const Op& op) {
  const auto dims = [&](int tensor) { return graph.tensors[static_cast<size_t>(tensor)].dims; };
  const Dims first = dims(op.inputs[0]), result = dims(op.outputs[0]);
  // Each row meets one expert.
  if (!is_contraction(op.attributes))
    return static_cast<double>(element_count(result)) * static_cast<double>(first.back());
  return reference::multiply_adds({op.attributes, first, dims(op.inputs[1]), result});
}

/// Share of what several contractions multiply that masks with known bounds leave.
double seen_share(const Graph& graph, const PlannedFusion& fusion) {
  const auto contractions = std::ranges::count_if(
      fusion.ops, [&](int op) { return is_contraction(graph.ops[static_cast<size_t>(op)].attributes); });
  if (contractions < 2) return 1;
  return attention::seen_share(make_fusion(graph, fold_views(graph), fusion.ops));
}

/// Bytes that the fusion reads and writes at least, and what its contractions multiply and add.
void count_work(const Graph& graph, const PlannedFusion& fusion, FusionSummary& summary) {
  std::set<int> inside, seen;
  const auto has = [&](int op) { return std::ranges::find(fusion.ops, op) != fusion.ops.end(); };
  // Folded views that only the fusion looks through are ops of none.
  const auto views_inside = [&](int tensor, auto&& self) -> void {
    for (const int reader : graph.consumers(tensor)) {
      const Op& op = graph.ops[static_cast<size_t>(reader)];
      if (has(reader) || !is_view(op.attributes) || !inside.insert(op.outputs[0]).second) continue;
      self(op.outputs[0], self);
    }
  };
  const auto is_read_outside = [&](int tensor, auto&& self) -> bool {
    return !graph.tensors[static_cast<size_t>(tensor)].is_virtual() ||
           std::ranges::any_of(graph.consumers(tensor), [&](int reader) {
             const Op& op = graph.ops[static_cast<size_t>(reader)];
             return !has(reader) && (!is_view(op.attributes) || self(op.outputs[0], self));
           });
  };
  for (const int index : fusion.ops) {
    const Op& op = graph.ops[static_cast<size_t>(index)];
    for (const int y : op.outputs) {
      if (y < 0) continue;
      inside.insert(y);
      views_inside(y, views_inside);
      if (is_read_outside(y, is_read_outside)) summary.bytes += bytes_of(graph, op, y);
    }
    for (const int x : op.inputs)
      if (x >= 0 && !inside.contains(x) && seen.insert(x).second &&
          !graph.tensors[static_cast<size_t>(x)].is_scalar())
        summary.bytes += bytes_of(graph, op, x);
    if (multiplies(op)) summary.flops += 2 * multiply_adds(graph, op);
  }
  summary.flops *= seen_share(graph, fusion);
}

/// Bytes of an element that the fusion's contractions read.
int64_t operand_bytes(const Graph& graph, const PlannedFusion& fusion) {
  int64_t bytes = 8;
  for (const int index : fusion.ops) {
    const Op& op = graph.ops[static_cast<size_t>(index)];
    if (!multiplies(op)) continue;
    bytes = 1;
    for (const int x : {op.inputs[0], op.inputs[1]})
      bytes = std::max(bytes, byte_size(graph.tensors[static_cast<size_t>(x)].type));
  }
  return bytes;
}

/// The limit that bounds the fusion, and the seconds that this alone would take.
void set_limit(const DeviceInfo& device, int64_t bytes_an_operand, FusionSummary& summary) {
  double rate = device.fp32_flops;
  std::string what = device.is_cpu() ? "arithmetic" : "CUDA cores";
  if (summary.notes.tensor_cores && device.tensor_flops_16 > 0) {
    rate = device.tensor_flops_16 * (bytes_an_operand == 1 ? 2 : bytes_an_operand == 2 ? 1 : 0.5);
    what = "tensor cores";
  }
  const double memory = device.dram_bytes_per_s > 0 ? summary.bytes / device.dram_bytes_per_s : 0;
  const double arithmetic = rate > 0 ? summary.flops / rate : 0;
  summary.bound = arithmetic > memory ? what : "memory";
  summary.limit_seconds = std::max(arithmetic, memory);
}

// ---- Decisions ----

/// The smallest decision over all of these ops, or null.
const Decision* smallest_over(const std::vector<Decision>& decisions, const std::vector<std::string>& ops) {
  const Decision* best = nullptr;
  for (const Decision& decision : decisions) {
    const bool has_all = std::ranges::all_of(ops, [&](const std::string& op) {
      return std::ranges::find(decision.ops, op) != decision.ops.end();
    });
    if (!has_all) continue;
    if (best == nullptr || decision.ops.size() < best->ops.size()) best = &decision;
    if (const Decision* part = smallest_over(decision.parts, ops);
        part != nullptr && part->ops.size() < best->ops.size())
      best = part;
  }
  return best;
}

void set_runner_up(const Decision* decision, FusionSummary& summary) {
  if (decision == nullptr || decision->ops.size() != summary.ops.size()) return;
  for (const EngineAnswer& answer : decision->answers) {
    if (answer.engine == summary.config.engine) {
      summary.notes = answer.notes;
      summary.seconds = answer.seconds;
      summary.measured = answer.measured;
    } else if (answer.support && (summary.runner_up.empty() || answer.seconds < summary.runner_up_seconds)) {
      summary.runner_up = answer.engine;
      summary.runner_up_seconds = answer.seconds;
    }
  }
}

/// The op of `before` whose result `fusion` reads, or nothing.
bool reads_from(const Graph& graph, const PlannedFusion& fusion, const PlannedFusion& before) {
  return std::ranges::any_of(fusion.ops, [&](int op) {
    return std::ranges::any_of(graph.ops[static_cast<size_t>(op)].inputs, [&](int x) {
      return x >= 0 && std::ranges::find(before.ops, graph.producer(x)) != before.ops.end();
    });
  });
}

bool has_contraction(const Graph& graph, const PlannedFusion& fusion) {
  return std::ranges::any_of(
      fusion.ops, [&](int op) { return is_contraction(graph.ops[static_cast<size_t>(op)].attributes); });
}

bool has_reduction(const Graph& graph, const PlannedFusion& fusion) {
  return std::ranges::any_of(fusion.ops, [&](int op) {
    return std::holds_alternative<Reduction>(graph.ops[static_cast<size_t>(op)].attributes);
  });
}

/// A result of `before` that `fusion` reads itself, not through a view; -1 where there is none.
int result_read(const Graph& graph, const PlannedFusion& before, const PlannedFusion& fusion) {
  for (const int reader : fusion.ops)
    for (const int x : graph.ops[static_cast<size_t>(reader)].inputs)
      if (x >= 0 && std::ranges::find(before.ops, graph.producer(x)) != before.ops.end()) return x;
  return -1;
}

/// The reason that the graph alone gives for two neighbours of which no decision was made.
std::string why_read_apart(const Graph& graph, const PlannedFusion& before, const PlannedFusion& fusion) {
  if (before.ops.size() + fusion.ops.size() > kMaxFusionOps)
    return fmt::format("together they have {}; a fusion has at most {}",
                       words::count(before.ops.size() + fusion.ops.size(), "op"), kMaxFusionOps);
  const int x = result_read(graph, before, fusion);
  if (x < 0) return "the result is read through a view, in another shape or order than it is made in";
  const std::string& name = graph.tensors[static_cast<size_t>(x)].name;
  const std::vector<int> readers = graph.consumers(x);
  const auto inside = std::ranges::count_if(
      readers, [&](int op) { return std::ranges::find(fusion.ops, op) != fusion.ops.end(); });
  if (static_cast<size_t>(inside) < readers.size())
    return fmt::format("'{}' is read by {}, {} of them here", name, words::count(readers.size(), "op"),
                       inside);
  const bool feeds_contraction = std::ranges::any_of(
      readers, [&](int op) { return is_contraction(graph.ops[static_cast<size_t>(op)].attributes); });
  if (feeds_contraction)
    return fmt::format("'{}' is an operand of a matmul or convolution, and is stored in front of it", name);
  return fmt::format(
      "'{}' is stored first: it is read in another shape or order, or is no value to compute twice", name);
}

/// Why two neighbours are not one fusion: what was decided of both together, else what no fusion can be.
std::string why_apart(const Graph& graph, const PlannedFusion& before, const PlannedFusion& fusion,
                      const std::vector<Decision>& decisions) {
  std::vector<std::string> both = op_names(graph, before);
  for (std::string& op : op_names(graph, fusion)) both.push_back(std::move(op));
  if (const Decision* decision = smallest_over(decisions, both)) {
    if (decision->whole_seconds > 0)
      return fmt::format("one fusion would take {}, apart they take {}",
                         words::duration(decision->whole_seconds), words::duration(decision->parts_seconds));
    if (!decision->no_fusion.empty()) return decision->no_fusion;
    for (const EngineAnswer& answer : decision->answers)
      if (!answer.support && answer.engine == fusion.config.engine)
        return fmt::format("{} refuses both together: {}", answer.engine, to_string(*answer.support.refusal));
  }
  if (has_contraction(graph, before) && has_contraction(graph, fusion))
    return "each has a matmul or a convolution of its own";
  if (has_reduction(graph, before)) return "a total is complete only after the last element";
  return why_read_apart(graph, before, fusion);
}

FusionSummary summary_of(const Candidate& choice, size_t index, const std::vector<Decision>& decisions,
                         const DeviceInfo& device) {
  const PlannedFusion& fusion = choice.fusions[index];
  FusionSummary summary;
  summary.ops = op_names(*choice.graph, fusion);
  summary.config = fusion.config;
  set_runner_up(smallest_over(decisions, summary.ops), summary);
  count_work(*choice.graph, fusion, summary);
  set_limit(device, operand_bytes(*choice.graph, fusion), summary);
  for (size_t i = 0; i < index; ++i)
    if (reads_from(*choice.graph, fusion, choice.fusions[i]))
      summary.apart.push_back(
          {static_cast<int>(i), why_apart(*choice.graph, choice.fusions[i], fusion, decisions)});
  return summary;
}

}  // namespace

FusionSummary fusion_work(const Graph& graph, const PlannedFusion& fusion, const Notes& notes,
                          const DeviceInfo& device) {
  FusionSummary summary;
  summary.ops = op_names(graph, fusion);
  summary.config = fusion.config;
  summary.notes = notes;
  count_work(graph, fusion, summary);
  set_limit(device, operand_bytes(graph, fusion), summary);
  return summary;
}

std::string short_names(const std::vector<std::string>& ops) {
  std::string all = fmt::format("{}", fmt::join(ops, " + "));
  if (all.size() <= 100 || ops.size() < 4) return all;
  const auto cut = [](const std::string& name) {
    return name.size() <= 28 ? name : name.substr(0, 25) + "...";
  };
  return fmt::format("{} + {} + ... + {} ({} ops)", cut(ops[0]), cut(ops[1]), cut(ops.back()), ops.size());
}

std::vector<FusionSummary> fusion_summaries(const Candidate& choice, const std::vector<Decision>& decisions,
                                            const DeviceInfo& device) {
  std::vector<FusionSummary> summaries;
  for (size_t i = 0; i < choice.fusions.size(); ++i)
    summaries.push_back(summary_of(choice, i, decisions, device));
  return summaries;
}

std::string to_string(const std::vector<FusionSummary>& fusions) {
  std::string text;
  for (size_t i = 0; i < fusions.size(); ++i) {
    const FusionSummary& fusion = fusions[i];
    text += shortened(fmt::format("{:>3}  {}", i + 1, short_names(fusion.ops)));
    std::string line =
        fmt::format("     {}{}, {} {}", fusion.config.engine,
                    fusion.notes.tf32             ? " in TF32"
                    : fusion.notes.split_operands ? " in parts"
                                                  : "",
                    words::duration(fusion.seconds), fusion.measured ? "measured" : "estimated");
    if (fusion.seconds > 0)
      line += fmt::format("; {:.0f} % of the limit by {}: {}", 100 * fusion.limit_seconds / fusion.seconds,
                          fusion.bound, words::bytes(fusion.bytes));
    if (fusion.flops > 0) line += ", " + words::flops(fusion.flops);
    if (!fusion.runner_up.empty() && fusion.seconds > 0)
      line += fmt::format("; next {}, {:.1f} x", fusion.runner_up, fusion.runner_up_seconds / fusion.seconds);
    text += shortened(line);
    if (!fusion.apart.empty())
      text += shortened(
          fmt::format("     apart from {}: {}", fusion.apart.back().fusion + 1, fusion.apart.back().why));
  }
  return text;
}

}  // namespace fusor
