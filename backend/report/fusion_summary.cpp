// Owns the short form of an explanation.
#include "backend/report/fusion_summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_map>

#include "backend/engines/attention/form.h"
#include "backend/planner/planner.h"
#include "backend/reference/contraction.h"
#include "core/graph_index.h"
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

/// Fusions of a graph, and who makes and reads what in it.
class Partition {
 public:
  Partition(const Graph& whole, std::span<const PlannedFusion> fusions)
      : graph(whole), index(whole), fusions_(fusions), fusion_of_(whole.ops.size(), -1) {
    for (size_t i = 0; i < fusions.size(); ++i)
      for (const int op : fusions[i].ops) fusion_of_[static_cast<size_t>(op)] = static_cast<int>(i);
  }
  const PlannedFusion& fusion(int i) const { return fusions_[static_cast<size_t>(i)]; }
  bool has(int fusion, int op) const { return op >= 0 && fusion_of_[static_cast<size_t>(op)] == fusion; }
  /// The fusions that make what this one reads, not through a view, ascending.
  std::set<int> read_by(int fusion) const {
    std::set<int> makers;
    for (const int op : this->fusion(fusion).ops)
      for (const int x : graph.ops[static_cast<size_t>(op)].inputs) {
        const int producer = x < 0 ? -1 : index.producer(x);
        const int maker = producer < 0 ? -1 : fusion_of_[static_cast<size_t>(producer)];
        if (maker >= 0 && maker < fusion) makers.insert(maker);
      }
    return makers;
  }
  const FoldedGraph& folded() const {
    if (!folded_) folded_ = fold_views(graph);
    return *folded_;
  }

  const Graph& graph;
  const GraphIndex index;

 private:
  std::span<const PlannedFusion> fusions_;
  std::vector<int> fusion_of_;
  mutable std::optional<FoldedGraph> folded_;
};

/// Share of what several contractions multiply that masks with known bounds leave.
double seen_share(const Partition& all, const PlannedFusion& fusion) {
  const auto contractions = std::ranges::count_if(
      fusion.ops, [&](int op) { return is_contraction(all.graph.ops[static_cast<size_t>(op)].attributes); });
  if (contractions < 2) return 1;
  return attention::seen_share(make_fusion(all.graph, all.folded(), fusion.ops));
}

/// Bytes that the fusion reads and writes at least, and what its contractions multiply and add.
void count_work(const Partition& all, int number, FusionSummary& summary) {
  const Graph& graph = all.graph;
  const PlannedFusion& fusion = all.fusion(number);
  std::set<int> inside, seen;
  const auto has = [&](int op) { return all.has(number, op); };
  const auto is_view_outside = [&](int op) {
    return !has(op) && is_view(graph.ops[static_cast<size_t>(op)].attributes);
  };
  // A result and what others see of it through views that are folded, which are ops of no fusion.
  const auto seen_of = [&](int result) {
    std::vector<int> tensors{result};
    std::set<int> known{result};
    for (size_t i = 0; i < tensors.size(); ++i)
      for (const int reader : all.index.consumers(tensors[i])) {
        const int view = graph.ops[static_cast<size_t>(reader)].outputs[0];
        if (is_view_outside(reader) && known.insert(view).second) tensors.push_back(view);
      }
    return tensors;
  };
  const auto is_read_outside = [&](int tensor) {
    return !graph.tensors[static_cast<size_t>(tensor)].is_virtual() ||
           std::ranges::any_of(all.index.consumers(tensor),
                               [&](int reader) { return !has(reader) && !is_view_outside(reader); });
  };
  for (const int index : fusion.ops) {
    const Op& op = graph.ops[static_cast<size_t>(index)];
    for (const int y : op.outputs) {
      if (y < 0) continue;
      const std::vector<int> tensors = seen_of(y);
      inside.insert(tensors.begin(), tensors.end());
      if (std::ranges::any_of(tensors, is_read_outside)) summary.bytes += bytes_of(graph, op, y);
    }
    for (const int x : op.inputs)
      if (x >= 0 && !inside.contains(x) && seen.insert(x).second &&
          !graph.tensors[static_cast<size_t>(x)].is_scalar())
        summary.bytes += bytes_of(graph, op, x);
    if (multiplies(op)) summary.flops += 2 * multiply_adds(graph, op);
  }
  summary.flops *= seen_share(all, fusion);
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

/// Decisions, found by the ops that they are about.
class DecisionIndex {
 public:
  explicit DecisionIndex(const std::vector<Decision>& decisions) {
    for (const Decision& decision : decisions)
      for (const std::string& op : decision.ops) about_[op].push_back(&decision);
  }
  /// The smallest one over all of these ops, or null.
  const Decision* smallest_over(const std::vector<std::string>& ops) const {
    const auto found = ops.empty() ? about_.end() : about_.find(ops.front());
    return found == about_.end() ? nullptr : smallest(found->second, ops);
  }

 private:
  static const Decision* smallest(const std::vector<const Decision*>& among,
                                  const std::vector<std::string>& ops) {
    const Decision* best = nullptr;
    const auto is_better = [&](const Decision* decision) {
      return decision != nullptr && (best == nullptr || decision->ops.size() < best->ops.size());
    };
    for (const Decision* const decision : among) {
      const bool has_all = std::ranges::all_of(ops, [&](const std::string& op) {
        return std::ranges::find(decision->ops, op) != decision->ops.end();
      });
      if (!has_all) continue;
      if (is_better(decision)) best = decision;
      std::vector<const Decision*> parts;
      for (const Decision& part : decision->parts) parts.push_back(&part);
      if (const Decision* const part = smallest(parts, ops); is_better(part)) best = part;
    }
    return best;
  }

  std::unordered_map<std::string, std::vector<const Decision*>> about_;
};

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
int result_read(const Partition& all, int before, int fusion) {
  for (const int reader : all.fusion(fusion).ops)
    for (const int x : all.graph.ops[static_cast<size_t>(reader)].inputs)
      if (x >= 0 && all.has(before, all.index.producer(x))) return x;
  return -1;
}

/// The reason that the graph alone gives for two neighbours of which no decision was made.
std::string why_read_apart(const Partition& all, int before, int fusion) {
  const Graph& graph = all.graph;
  const size_t together = all.fusion(before).ops.size() + all.fusion(fusion).ops.size();
  if (together > kMaxFusionOps)
    return fmt::format("together they have {}; a fusion has at most {}", words::count(together, "op"),
                       kMaxFusionOps);
  const int x = result_read(all, before, fusion);
  if (x < 0) return "the result is read through a view, in another shape or order than it is made in";
  const std::string& name = graph.tensors[static_cast<size_t>(x)].name;
  const auto readers = all.index.consumers(x);
  const auto inside = std::ranges::count_if(readers, [&](int op) { return all.has(fusion, op); });
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
std::string why_apart(const Partition& all, int before, int number, const DecisionIndex& decisions) {
  const Graph& graph = all.graph;
  const PlannedFusion &first = all.fusion(before), &fusion = all.fusion(number);
  std::vector<std::string> both = op_names(graph, first);
  for (std::string& op : op_names(graph, fusion)) both.push_back(std::move(op));
  if (const Decision* decision = decisions.smallest_over(both)) {
    if (decision->whole_seconds > 0)
      return fmt::format("one fusion would take {}, apart they take {}",
                         words::duration(decision->whole_seconds), words::duration(decision->parts_seconds));
    if (!decision->no_fusion.empty()) return decision->no_fusion;
    for (const EngineAnswer& answer : decision->answers)
      if (!answer.support && answer.engine == fusion.config.engine)
        return fmt::format("{} refuses both together: {}", answer.engine, to_string(*answer.support.refusal));
  }
  if (has_contraction(graph, first) && has_contraction(graph, fusion))
    return "each has a matmul or a convolution of its own";
  if (has_reduction(graph, first)) return "a total is complete only after the last element";
  return why_read_apart(all, before, number);
}

FusionSummary summary_of(const Partition& all, int number, const DecisionIndex& decisions,
                         const DeviceInfo& device) {
  const PlannedFusion& fusion = all.fusion(number);
  FusionSummary summary;
  summary.ops = op_names(all.graph, fusion);
  summary.config = fusion.config;
  set_runner_up(decisions.smallest_over(summary.ops), summary);
  count_work(all, number, summary);
  set_limit(device, operand_bytes(all.graph, fusion), summary);
  for (const int before : all.read_by(number))
    summary.apart.push_back({before, why_apart(all, before, number, decisions)});
  return summary;
}

}  // namespace

FusionSummary fusion_work(const Graph& graph, const PlannedFusion& fusion, const Notes& notes,
                          const DeviceInfo& device) {
  FusionSummary summary;
  summary.ops = op_names(graph, fusion);
  summary.config = fusion.config;
  summary.notes = notes;
  count_work(Partition(graph, {&fusion, 1}), 0, summary);
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
  const Partition all(*choice.graph, choice.fusions);
  const DecisionIndex index(decisions);
  std::vector<FusionSummary> summaries;
  summaries.reserve(choice.fusions.size());
  for (int i = 0; i < static_cast<int>(choice.fusions.size()); ++i)
    summaries.push_back(summary_of(all, i, index, device));
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
    if (fusion.beside) line += fmt::format(", beside {}", i);
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
