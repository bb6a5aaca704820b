// Owns the search for the gradients of attention: two matmuls, what becomes of both results, and the matmuls
// of that.
#include <span>

#include "backend/planner/partition/gathered.h"
#include "backend/planner/partition/groups.h"

namespace fusor {

namespace {

// The ops of an attention's backward pass, as they are collected.
struct Gradients {
  std::vector<int> ops;     // all of them
  std::vector<int> fronts;  // matmuls whose results the ops between work on
  std::vector<int> backs;   // matmuls whose first operand is made of these, as it is or transposed
  int leaves = -1;          // the op whose result others read, too, as that of a bias's gradient is; or -1

  bool has(int op) const { return std::ranges::find(ops, op) != ops.end(); }
};

class GradientSearch {
 public:
  GradientSearch(Groups& groups, const Graph& graph, const FoldedGraph& folded)
      : groups_(groups), graph_(graph), folded_(folded) {}

  // Joins two matmuls of equal results, all pointwise ops that read these, and the matmuls of what becomes of
  // them, where nothing of the size of the products leaves but one gradient of scores.
  void join(int first) {
    if (groups_.size_of(groups_.group_of(first)) != 1 || !groups_.is_virtual_result(first)) return;
    Gradients found;
    if (!find(first, Others::join, found) && !find(first, Others::stay_outside, found)) return;
    add_helpers(found);
    const std::vector<int> backs = found.backs;
    for (const int back : backs) add_what_follows(back, found);
    std::ranges::sort(found.ops);
    if (found.ops.size() > kMaxFusionOps || comes_back(found)) return;
    const int last = found.ops.back();
    for (auto op = found.ops.rbegin(); op != found.ops.rend(); ++op)
      if (groups_.group_of(*op) != groups_.group_of(last) &&
          !groups_.would_wait_for_itself(groups_.group_of(*op), groups_.group_of(last)))
        groups_.merge(groups_.group_of(*op), groups_.group_of(last));
    absorb_ragged(found, last);
    groups_.close(groups_.group_of(last));
    groups_.close_unpacking_for(found.ops);
  }

 private:
  // What becomes of pointwise ops that read values of the set and lead to no matmul: another type of a bias's
  // gradient, which is stored in place of it, or the sum of the gradients of layers that share a bias.
  enum class Others : uint8_t { join, stay_outside };

  // Operands and results whose batch entries lie one behind the other.
  void absorb_ragged(const Gradients& found, int last) {
    Gathered gathered(groups_, graph_, folded_);
    for (const std::vector<int>* const matmuls : {&found.fronts, &found.backs})
      for (const int matmul : *matmuls)
        for (const int tensor : graph_.ops[matmul].inputs) gathered.absorb_ragged_operand(tensor, last);
    for (const int op : found.ops)
      if (!groups_.is_before_anchor(op) && groups_.consumers(op).size() == 1)
        gathered.absorb_ragged_results(op, last);
  }

  // Scores and the gradient of probabilities are products of different operands, and an exponential lies
  // behind the scores, or all rows are short, as those of heads are. Other pairs, a gated one for instance,
  // are fusions that need no matmul behind them.
  bool are_of_attention(const Gradients& found) const {
    if (found.fronts.size() != 2 || found.backs.empty()) return false;
    const auto is_exponential = [&](int op) {
      const auto* const pointwise = std::get_if<Pointwise>(&graph_.ops[op].attributes);
      return pointwise != nullptr && pointwise->mode == PointwiseMode::exp;
    };
    const auto sums_little = [&](int front) {
      return graph_.tensors[graph_.ops[front].inputs[0]].dims.back() <= kMostHeadElements;
    };
    const auto gives_little = [&](int back) {
      return groups_.result_dims(back).back() <= kMostHeadElements &&
             byte_size(graph_.tensors[graph_.ops[back].inputs[1]].type) == 2;
    };
    const bool are_short = found.backs.size() > 1 && std::ranges::all_of(found.fronts, sums_little) &&
                           std::ranges::all_of(found.backs, gives_little);
    return graph_.ops[found.fronts[0]].inputs[0] != graph_.ops[found.fronts[1]].inputs[0] &&
           (are_short || std::ranges::any_of(found.ops, is_exponential));
  }

  bool find(int first, Others others, Gradients& found) const {
    found = {};
    return collect_gradients(first, others, found) && are_of_attention(found) && leaves_gradients(found);
  }

  bool collect_gradients(int first, Others others, Gradients& found) const {
    std::vector<int> waiting;
    const auto add = [&](int op) {
      if (found.has(op)) return true;
      if (folded_.folded[op] || groups_.size_of(groups_.group_of(op)) != 1 ||
          groups_.result_dims(op) != groups_.result_dims(first) || found.ops.size() >= kMaxFusionOps ||
          (!groups_.is_virtual_result(op) && !leave(op, found)))
        return false;
      if (groups_.is_matmul(op)) found.fronts.push_back(op);
      found.ops.push_back(op);
      waiting.push_back(op);
      return true;
    };
    if (!add(first)) return false;
    while (!waiting.empty()) {
      const int op = waiting.back();
      waiting.pop_back();
      for (const int consumer : groups_.consumers(op)) {
        if (is_pointwise(graph_.ops[consumer]) && !folded_.folded[consumer]) {
          const bool joins = others == Others::join || leads_to_matmul(consumer);
          if (joins ? !add(consumer) : !leave(op, found)) return false;
        } else if (!add_backs(graph_.ops[op].outputs[0], consumer, found) && !leave(op, found)) {
          return false;
        }
      }
      if (groups_.is_matmul(op)) continue;
      for (const int input : graph_.ops[op].inputs) {
        const int producer = groups_.direct_producer(input);
        if (producer >= 0 && !found.has(producer) &&
            is_made_of_product(producer, groups_.result_dims(first)) && !add(producer))
          return false;
      }
    }
    return true;
  }

  bool is_transposed_for_matmul(int op) const {
    return std::holds_alternative<Transpose>(graph_.ops[op].attributes) &&
           std::ranges::any_of(groups_.consumers(op), [&](int reader) { return groups_.is_matmul(reader); });
  }

  // Whether pointwise ops of one size lead from the op to a matmul.
  bool leads_to_matmul(int op) const {
    std::vector<int> met = {op};
    for (size_t next = 0; next < met.size() && met.size() < kMaxFusionOps; ++next)
      for (const int reader : groups_.consumers(met[next])) {
        if (groups_.is_matmul(reader) || is_transposed_for_matmul(reader)) return true;
        if (is_pointwise(graph_.ops[reader]) && groups_.result_dims(reader) == groups_.result_dims(op) &&
            std::ranges::find(met, reader) == met.end())
          met.push_back(reader);
      }
    return false;
  }

  // Others may read the result of one pointwise op.
  bool leave(int op, Gradients& found) const {
    if (groups_.is_matmul(op) || (found.leaves >= 0 && found.leaves != op)) return false;
    found.leaves = op;
    return true;
  }

  // Whether the result that leaves is made of both products, as gradients of scores are.
  bool leaves_gradients(const Gradients& found) const {
    if (found.leaves < 0) return true;
    std::vector<int> met = {found.leaves};
    for (size_t next = 0; next < met.size(); ++next)
      for (const int input : graph_.ops[met[next]].inputs)
        if (const int producer = groups_.direct_producer(input);
            producer >= 0 && found.has(producer) && std::ranges::find(met, producer) == met.end())
          met.push_back(producer);
    return std::ranges::all_of(found.fronts,
                               [&](int front) { return std::ranges::find(met, front) != met.end(); });
  }

  // Whether pointwise ops lead from a matmul of that result to the op, or it is one.
  bool is_made_of_product(int op, const Dims& product) const {
    std::vector<int> met = {op};
    for (size_t next = 0; next < met.size() && met.size() < kMaxFusionOps; ++next) {
      if (groups_.result_dims(met[next]) != product) continue;
      if (groups_.is_matmul(met[next])) return true;
      if (!is_pointwise(graph_.ops[met[next]])) continue;
      for (const int input : graph_.ops[met[next]].inputs)
        if (const int producer = groups_.direct_producer(input);
            producer >= 0 && std::ranges::find(met, producer) == met.end())
          met.push_back(producer);
    }
    return false;
  }

  // A matmul of `tensor`, or all that read its transpose.
  bool add_backs(int tensor, int consumer, Gradients& found) const {
    const Op& op = graph_.ops[consumer];
    if (folded_.folded[consumer] && std::holds_alternative<Transpose>(op.attributes)) {
      const int view = op.outputs[0];
      const std::span<const int> readers = folded_.index.consumers(view);
      return graph_.tensors[view].is_virtual() && !readers.empty() &&
             std::ranges::all_of(readers, [&](int reader) {
               return groups_.is_matmul(reader) && add_backs(view, reader, found);
             });
    }
    if (!groups_.is_matmul(consumer) || folded_.folded[consumer] ||
        groups_.size_of(groups_.group_of(consumer)) != 1 || op.inputs[0] != tensor || op.inputs[1] == tensor)
      return false;
    if (found.has(consumer)) return std::ranges::find(found.backs, consumer) != found.backs.end();
    found.backs.push_back(consumer);
    found.ops.push_back(consumer);
    return true;
  }

  // Pointwise ops that these ops need and nobody else: masks, what is made of a row's statistics.
  void add_helpers(Gradients& found) const {
    for (size_t i = 0; i < found.ops.size(); ++i) {
      if (!is_pointwise(graph_.ops[found.ops[i]])) continue;
      for (const int input : graph_.ops[found.ops[i]].inputs) {
        const int producer = groups_.direct_producer(input);
        if (producer < 0 || found.has(producer) || !is_pointwise(graph_.ops[producer]) ||
            !groups_.is_virtual_result(producer) || groups_.size_of(groups_.group_of(producer)) != 1 ||
            groups_.is_unpacking(producer))
          continue;
        // An op comes again after the last of its readers has joined.
        if (std::ranges::all_of(groups_.consumers(producer), [&](int reader) { return found.has(reader); }))
          found.ops.push_back(producer);
      }
    }
  }

  // Adds the ops that only a matmul's result passes: scaled, rounded, summed over axes in front of the
  // matrices.
  void add_what_follows(int op, Gradients& found) const {
    while (groups_.is_virtual_result(op) && groups_.consumers(op).size() == 1) {
      const int next = groups_.consumers(op)[0];
      const Op& reader = graph_.ops[next];
      if (folded_.folded[next] || groups_.size_of(groups_.group_of(next)) != 1 || found.has(next)) return;
      const auto is_at_hand = [&](int input) {
        return input == graph_.ops[op].outputs[0] || graph_.tensors[input].is_scalar();
      };
      const bool maps = is_pointwise(reader) && groups_.result_dims(next) == groups_.result_dims(op) &&
                        std::ranges::all_of(reader.inputs, is_at_hand);
      if (!maps && !sums_batches(next)) return;
      found.ops.push_back(next);
      op = next;
    }
  }

  bool sums_batches(int op) const {
    const auto* const reduction = std::get_if<Reduction>(&graph_.ops[op].attributes);
    if (reduction == nullptr || reduction->mode != ReductionMode::add || groups_.is_grouped(op)) return false;
    const Dims &from = groups_.work_dims(op), &to = groups_.result_dims(op);
    const int rank = from.rank();
    return to.rank() == rank && rank > 2 && to[rank - 1] == from[rank - 1] && to[rank - 2] == from[rank - 2];
  }

  // Whether an op of the set waits for what leaves it.
  bool comes_back(const Gradients& found) const {
    std::vector<bool> met(static_cast<size_t>(found.ops.back()) + 1, false);
    std::vector<int> waiting = found.ops;
    while (!waiting.empty()) {
      const int op = waiting.back();
      waiting.pop_back();
      const bool inside = std::ranges::binary_search(found.ops, op);
      for (const int reader : groups_.dependents(op)) {
        if (reader > found.ops.back()) continue;
        if (std::ranges::binary_search(found.ops, reader)) {
          if (!inside) return true;
        } else if (!met[static_cast<size_t>(reader)]) {
          met[static_cast<size_t>(reader)] = true;
          waiting.push_back(reader);
        }
      }
    }
    return false;
  }

  Groups& groups_;
  const Graph& graph_;
  const FoldedGraph& folded_;
};

}  // namespace

void join_gradients(Groups& groups, const Graph& graph, const FoldedGraph& folded) {
  GradientSearch search(groups, graph, folded);
  for (int i = 0; i < groups.op_count(); ++i)
    if (groups.is_matmul(i) && !folded.folded[i]) search.join(i);
}

}  // namespace fusor
