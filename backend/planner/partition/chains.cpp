// Owns the search for chains: a matmul, a softmax or other ops on single elements of its result, and a matmul
// of that.
#include <optional>
#include <utility>

#include "backend/planner/partition/gathered.h"
#include "backend/planner/partition/groups.h"

namespace fusor {

namespace {

// Rows of queries that share an entry of keys, at most, where these are loaded through indices.
constexpr int64_t kFewRows = 128;

class Chains {
 public:
  Chains(Groups& groups, const Graph& graph, const FoldedGraph& folded)
      : groups_(groups), graph_(graph), folded_(folded), gathered_(groups, graph, folded) {}

  // Joins `second` with the matmul whose result its first operand comes of, and with all that lies between
  // them, where that reduces the rows of the product, as a softmax does and a norm does not, and leaves
  // nothing but what is the same for a row; or where it reduces nothing, and is of short rows.
  void join(int second) {
    const auto between = ops_between(second);
    if (!between) return;
    std::vector<int> ops = *between;
    add_ops_of_rows(ops);
    if (ops.size() + 2 > kMaxFusionOps || !stays_within(ops, second)) return;
    // The last first: nothing lies between an op and those that read it.
    for (auto op = ops.rbegin(); op != ops.rend(); ++op)
      if (!groups_.would_wait_for_itself(groups_.group_of(*op), groups_.group_of(second)))
        groups_.merge(groups_.group_of(*op), groups_.group_of(second));
    groups_.mark_chain(groups_.group_of(second));
    groups_.close_unpacking_for(*between);
    const int first = *std::ranges::find_if(*between, [this](int op) { return groups_.is_matmul(op); });
    absorb_gathered(first, second);
    for (const int tensor :
         {graph_.ops[first].inputs[0], graph_.ops[first].inputs[1], graph_.ops[second].inputs[1]})
      gathered_.absorb_ragged_operand(tensor, second);
    const std::vector<int> members = groups_.members(groups_.group_of(second));
    for (const int op : members)
      if (!groups_.is_before_anchor(op) && groups_.result_dims(op).back() == 1)
        gathered_.absorb_ragged_results(op, second);
  }

 private:
  // Keys and values of a few queries that come through indices are loaded by these, with all that the indices
  // are made of: the rows of a cache in pages lie in memory once, and are read once.
  void absorb_gathered(int first, int second) {
    std::vector<int> ops;
    for (const int operand : {graph_.ops[first].inputs[1], graph_.ops[second].inputs[1]}) {
      const int64_t entries = entries_of(graph_.tensors[operand].dims);
      if (element_count(groups_.result_dims(first)) / groups_.result_dims(first).back() > kFewRows * entries)
        continue;
      const std::vector<int> found = gathered_.ops_of(operand);
      ops.insert(ops.end(), found.begin(), found.end());
    }
    std::ranges::sort(ops);
    ops.erase(std::unique(ops.begin(), ops.end()), ops.end());
    const int group = groups_.group_of(second);
    const auto is_own = [&](int op) {
      return groups_.all_readers(graph_.ops[op].outputs[0], [&](int reader) {
        return reader == first || reader == second || std::ranges::binary_search(ops, reader);
      });
    };
    if (ops.size() + groups_.size_of(group) > kMaxFusionOps || !std::ranges::all_of(ops, is_own)) return;
    for (auto op = ops.rbegin(); op != ops.rend(); ++op)
      if (groups_.group_of(*op) != groups_.group_of(second) &&
          !groups_.would_wait_for_itself(groups_.group_of(*op), groups_.group_of(second)))
        groups_.merge(groups_.group_of(*op), groups_.group_of(second));
  }

  static bool is_exponential(const Op& op) {
    const auto* const pointwise = std::get_if<Pointwise>(&op.attributes);
    return pointwise != nullptr && pointwise->mode == PointwiseMode::exp;
  }

  // Matrices of a matmul's operand.
  static int64_t entries_of(const Dims& dims) {
    int64_t entries = 1;
    for (int axis = 0; axis + 2 < dims.rank(); ++axis) entries *= dims[axis];
    return entries;
  }

  // The one matmul that the first operand of `second` waits for, first, and the ops on the way; nothing where
  // they are not that. All work over the product, or over its rows. Values that the product is no part of are
  // operands, which lie in memory: views and gathers, what others read as well, and what no chain computes.
  std::optional<std::vector<int>> ops_between(int second) const {
    std::vector<int> ops, waiting, stored;
    int first = -1;
    bool reduces = false, has_exponential = false;
    const auto visit = [&](int tensor) {
      const int producer = folded_.index.producer(tensor);
      if (producer < 0 || std::ranges::find(ops, producer) != ops.end()) return true;
      if (is_stored(producer)) {
        stored.push_back(tensor);
        return true;
      }
      if (groups_.is_unpacking(producer)) return true;
      if (std::holds_alternative<Matmul>(graph_.ops[producer].attributes))
        return std::exchange(first, producer) < 0 || first == producer;
      ops.push_back(producer);
      waiting.push_back(producer);
      return ops.size() <= kMaxFusionOps;
    };
    if (!visit(graph_.ops[second].inputs[0])) return std::nullopt;
    while (!waiting.empty()) {
      const int op = waiting.back();
      waiting.pop_back();
      for (const int input : graph_.ops[op].inputs)
        if (!visit(input)) return std::nullopt;
    }
    if (first < 0 || std::ranges::any_of(stored, [&](int tensor) { return is_made_of(tensor, first); }))
      return std::nullopt;
    std::ranges::sort(ops);
    drop_shared_operands(ops, first, second);
    for (const int op : ops) {
      reduces = reduces || is_reduction(graph_.ops[op]);
      has_exponential = has_exponential || is_exponential(graph_.ops[op]);
    }
    // One value a row, or a value of another shape, is no operand that is computed block by block.
    if ((reduces ? !has_exponential : !are_short(first, second)) ||
        !are_of(graph_.tensors[graph_.ops[second].inputs[0]].dims, first, reduces) ||
        !std::ranges::all_of(ops, [&](int op) {
          return works_on_rows(op, graph_.tensors[graph_.ops[second].inputs[0]].dims);
        }))
      return std::nullopt;
    ops.insert(std::ranges::upper_bound(ops, first), first);
    return ops;
  }

  // Whether the op's result is in memory for a chain that reads it, or is none that a chain computes.
  bool is_stored(int op) const {
    if (folded_.folded[op] || is_gather(graph_.ops[op])) return true;
    if (groups_.is_unpacking(op)) return false;
    const bool may_leave = graph_.tensors[graph_.ops[op].outputs[0]].dims.back() == 1;
    return groups_.size_of(groups_.group_of(op)) != 1 || (!may_leave && !groups_.is_virtual_result(op)) ||
           (!std::holds_alternative<Matmul>(graph_.ops[op].attributes) && !is_pointwise(graph_.ops[op]) &&
            !is_reduction(graph_.ops[op]));
  }

  // Drops what the matmul is no part of and others read, too, such as the mask of all layers: it is stored
  // once, unless it is one value a row. What only that waits for goes with it. The ops are ascending.
  void drop_shared_operands(std::vector<int>& ops, int first, int second) const {
    const auto is_among = [&](int op) { return op == second || std::ranges::binary_search(ops, op); };
    std::vector<int> of_first{first}, kept;
    for (const int op : ops)
      if (std::ranges::any_of(graph_.ops[op].inputs, [&](int input) {
            const int producer = folded_.index.producer(input);
            return producer >= 0 && std::ranges::binary_search(of_first, producer);
          }))
        of_first.push_back(op);
    const auto is_needed = [&](int reader) {
      return reader == second || std::ranges::find(kept, reader) != kept.end();
    };
    for (auto op = ops.rbegin(); op != ops.rend(); ++op) {
      const auto readers = groups_.consumers(*op);
      const bool is_shared = !std::ranges::binary_search(of_first, *op) &&
                             groups_.result_dims(*op).back() != 1 && !std::ranges::all_of(readers, is_among);
      if (!is_shared && std::ranges::any_of(readers, is_needed)) kept.push_back(*op);
    }
    std::ranges::reverse(kept);
    ops = std::move(kept);
  }

  // Whether a block of keys and of values is little: of the first product's sums and the second one's rows,
  // of 16 bits each.
  bool are_short(int first, int second) const {
    const std::vector<int>& operands = graph_.ops[second].inputs;
    return std::ranges::all_of(operands,
                               [&](int operand) { return byte_size(graph_.tensors[operand].type) == 2; }) &&
           graph_.tensors[graph_.ops[first].inputs[0]].dims.back() <= kMostHeadElements &&
           groups_.result_dims(second).back() <= kMostHeadElements;
  }

  // Whether the value waits for the op. Ops are in an order in which they can run.
  bool is_made_of(int tensor, int op) const {
    std::vector<int> met, waiting{tensor};
    while (!waiting.empty()) {
      const int producer = folded_.index.producer(waiting.back());
      waiting.pop_back();
      if (producer == op) return true;
      if (producer < op || std::ranges::find(met, producer) != met.end()) continue;
      met.push_back(producer);
      const std::vector<int>& inputs = graph_.ops[producer].inputs;
      waiting.insert(waiting.end(), inputs.begin(), inputs.end());
    }
    return false;
  }

  // Whether scores of that shape are those of the matmul. Without a softmax its product may be the same for
  // all entries along an axis of the batch.
  bool are_of(const Dims& scores, int matmul, bool reduces) const {
    const Dims& product = groups_.result_dims(matmul);
    if (scores == product || reduces || scores.rank() != product.rank()) return scores == product;
    for (int axis = 0; axis < scores.rank(); ++axis)
      if (scores[axis] != product[axis] && (product[axis] != 1 || axis + 2 >= scores.rank())) return false;
    return true;
  }

  // Whether the op works over scores of that shape, or over what is the same for a row or a column of them.
  bool works_on_rows(int op, const Dims& product) const {
    const Dims& dims = groups_.work_dims(op);
    Dims joined;
    if (!is_reduction(graph_.ops[op])) return broadcast_dims(dims, product, joined) && joined == product;
    Dims rows = product;
    rows[rows.rank() - 1] = 1;
    return dims == product && groups_.result_dims(op) == rows;
  }

  // Ops of totals alone: the logarithm of a sum, say, or its choice by which rows exist.
  void add_ops_of_rows(std::vector<int>& ops) const {
    for (size_t i = 0; i < ops.size(); ++i)
      for (const int consumer : groups_.consumers(ops[i])) {
        if (std::ranges::binary_search(ops, consumer) || !is_free(consumer)) continue;
        std::vector<int> found{consumer};
        const auto is_row = [&](int tensor) {
          const int producer = folded_.index.producer(tensor);
          if (producer < 0) return graph_.tensors[tensor].is_scalar();
          return (std::ranges::binary_search(ops, producer) && graph_.tensors[tensor].dims.back() == 1) ||
                 is_condition(producer, found);
        };
        if (!std::ranges::all_of(graph_.ops[consumer].inputs, is_row)) continue;
        for (const int each : found) ops.insert(std::ranges::upper_bound(ops, each), each);
      }
  }

  bool is_free(int op) const {
    return !folded_.folded[op] && is_pointwise(graph_.ops[op]) && groups_.size_of(groups_.group_of(op)) == 1;
  }

  // Adds an op to those found, and the ops that it waits for, where only ops found read them: a condition on
  // coordinates and on numbers in memory, with one answer a row. False where it is anything else.
  bool is_condition(int op, std::vector<int>& found) const {
    constexpr size_t kMostOps = 8;
    const auto is_found = [&](int each) { return std::ranges::find(found, each) != found.end(); };
    if (is_found(op)) return true;
    const int y = graph_.ops[op].outputs[0];
    if (found.size() == kMostOps || !is_free(op) || !groups_.is_virtual_result(op) ||
        is_real(graph_.tensors[y].type) || graph_.tensors[y].dims.back() != 1 ||
        !groups_.all_readers(y, is_found))
      return false;
    found.push_back(op);
    return std::ranges::all_of(graph_.ops[op].inputs, [&](int input) {
      const int producer = folded_.index.producer(input);
      return graph_.tensors[input].dims.back() == 1 &&
             (producer < 0 || groups_.is_view_of_input(input) || is_condition(producer, found));
    });
  }

  // Others read only one value a row of these ops, and `second` does not wait for them.
  bool stays_within(const std::vector<int>& ops, int second) const {
    std::vector<int> others;
    for (const int op : ops)
      for (const int consumer : groups_.consumers(op)) {
        if (consumer == second || std::ranges::binary_search(ops, consumer)) continue;
        if (groups_.result_dims(op).back() != 1) return false;
        others.push_back(consumer);
      }
    std::vector<bool> met(graph_.ops.size(), false);
    while (!others.empty()) {
      const int other = others.back();
      others.pop_back();
      if (other >= second || met[static_cast<size_t>(other)]) continue;
      met[static_cast<size_t>(other)] = true;
      for (const int consumer : groups_.consumers(other)) {
        if (consumer == second) return false;
        others.push_back(consumer);
      }
    }
    return true;
  }

  Groups& groups_;
  const Graph& graph_;
  const FoldedGraph& folded_;
  Gathered gathered_;
};

}  // namespace

void join_chains(Groups& groups, const Graph& graph, const FoldedGraph& folded) {
  Chains chains(groups, graph, folded);
  for (int i = 0; i < groups.op_count(); ++i)
    if (groups.is_matmul(i) && !folded.folded[i]) chains.join(i);
}

}  // namespace fusor
