// Owns the search for chains: a matmul, a softmax of its result, and a matmul of that.
#include <algorithm>
#include <optional>
#include <utility>

#include "backend/planner/groups.h"

namespace fusor {

namespace {

// Rows of queries that share an entry of keys, at most, where these are loaded through indices.
constexpr int64_t kFewRows = 128;

class Chains {
 public:
  Chains(Groups& groups, const Graph& graph, const FoldedGraph& folded)
      : groups_(groups), graph_(graph), folded_(folded) {}

  // Joins `second` with the matmul whose result its first operand comes of, and with all that lies between
  // them, where that reduces the rows of the product and leaves nothing but what is the same for a row.
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
    for (const auto& [op, input] : {std::pair{first, 0}, {first, 1}, {second, 1}})
      absorb_ragged_operand(op, static_cast<size_t>(input), first, second);
    const std::vector<int> members = groups_.members(groups_.group_of(second));
    for (const int op : members) absorb_ragged_rows(op, second);
  }

 private:
  // An operand whose batch entries lie one behind the other, at places that are known on the device: kernels
  // may read it where it lies.
  void absorb_ragged_operand(int anchor, size_t input, int first, int second) {
    const std::vector<int> ops = ops_of_gathered(graph_.ops[anchor].inputs[input]);
    const auto is_within = [&](int reader) {
      return reader == first || reader == second || std::ranges::find(ops, reader) != ops.end();
    };
    const auto may_join = [&](int op) {
      return (!is_gather(graph_.ops[op]) || is_flat(graph_.ops[op].inputs[0])) &&
             groups_.all_readers(graph_.ops[op].outputs[0], is_within);
    };
    if (std::ranges::all_of(ops, may_join)) merge_all(ops, second);
  }

  // One value a row of queries, such as a logarithm of sums, on its way to a place like that.
  void absorb_ragged_rows(int op, int second) {
    if (groups_.is_before_anchor(op) || groups_.result_dims(op).back() != 1) return;
    for (const int scatter : groups_.consumers(op)) {
      if (!is_scatter(graph_.ops[scatter]) || !is_flat(graph_.ops[scatter].outputs[0]) ||
          graph_.ops[scatter].inputs[0] != graph_.ops[op].outputs[0])
        continue;
      std::vector<int> ops{scatter};
      const auto is_within = [&](int reader) { return std::ranges::find(ops, reader) != ops.end(); };
      bool is_own = true;
      for (size_t next = 0; next < ops.size() && is_own; ++next)
        for (const int tensor : graph_.ops[ops[next]].inputs) {
          const int producer = groups_.direct_producer(tensor);
          if (producer < 0 || producer == op || is_within(producer)) continue;
          // The last reader comes last: earlier ones are met again.
          if (!groups_.all_readers(tensor, is_within)) continue;
          is_own = is_own && is_pointwise(graph_.ops[producer]) && !groups_.is_unpacking(producer);
          ops.push_back(producer);
        }
      const auto reads_memory = [&](int each) {
        return std::ranges::all_of(graph_.ops[each].inputs, [&](int tensor) {
          const int producer = groups_.direct_producer(tensor);
          return producer < 0 || producer == op || is_within(producer);
        });
      };
      if (is_own && std::ranges::all_of(ops, reads_memory)) merge_all(ops, second);
    }
  }

  // Elements along one axis.
  bool is_flat(int tensor) const {
    const Dims& dims = graph_.tensors[tensor].dims;
    return std::ranges::count_if(dims, [](int64_t extent) { return extent != 1; }) == 1;
  }

  void merge_all(std::vector<int> ops, int second) {
    if (ops.size() + groups_.size_of(groups_.group_of(second)) > kMaxFusionOps) return;
    std::ranges::sort(ops);
    for (auto op = ops.rbegin(); op != ops.rend(); ++op)
      if (groups_.group_of(*op) != groups_.group_of(second) &&
          !groups_.would_wait_for_itself(groups_.group_of(*op), groups_.group_of(second)))
        groups_.merge(groups_.group_of(*op), groups_.group_of(second));
  }

  // Keys and values of a few queries that come through indices are loaded by these, with all that the indices
  // are made of: the rows of a cache in pages lie in memory once, and are read once.
  void absorb_gathered(int first, int second) {
    std::vector<int> ops;
    for (const int operand : {graph_.ops[first].inputs[1], graph_.ops[second].inputs[1]}) {
      const int64_t entries = entries_of(graph_.tensors[operand].dims);
      if (element_count(groups_.result_dims(first)) / groups_.result_dims(first).back() > kFewRows * entries)
        continue;
      const std::vector<int> found = ops_of_gathered(operand);
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

  // Matrices of a matmul's operand.
  static int64_t entries_of(const Dims& dims) {
    int64_t entries = 1;
    for (int axis = 0; axis + 2 < dims.rank(); ++axis) entries *= dims[axis];
    return entries;
  }

  // Gathers, and pointwise ops, that an operand is made of, perhaps behind views that leave its axes whole;
  // none where others are, or where no gather is.
  std::vector<int> ops_of_gathered(int operand) const {
    constexpr size_t kMostOps = 32;
    std::vector<int> ops, waiting{operand};
    bool gathers = false;
    while (!waiting.empty()) {
      const int tensor = waiting.back();
      const int producer = folded_.index.producer(tensor);
      waiting.pop_back();
      if (producer < 0 || groups_.is_view_of_input(tensor) || std::ranges::find(ops, producer) != ops.end())
        continue;
      const Op& op = graph_.ops[producer];
      if (folded_.folded[producer]) {
        if (Dims axes; !graph_.tensors[tensor].is_virtual() || !axes_of_operand(graph_, op, axes)) return {};
        waiting.push_back(op.inputs[0]);
        continue;
      }
      if (groups_.size_of(groups_.group_of(producer)) != 1 || !groups_.is_virtual_result(producer) ||
          ops.size() == kMostOps || (!is_pointwise(op) && !is_gather(op)) ||
          (is_gather(op) && !groups_.is_view_of_input(op.inputs[0])))
        return {};
      gathers = gathers || is_gather(op);
      ops.push_back(producer);
      waiting.insert(waiting.end(), op.inputs.begin(), op.inputs.end());
    }
    return gathers ? ops : std::vector<int>();
  }

  // The one matmul that the first operand of `second` waits for, first, and the ops on the way; nothing where
  // they are not that. All work over the product, or over its rows.
  std::optional<std::vector<int>> ops_between(int second) const {
    std::vector<int> ops, waiting;
    int first = -1;
    bool reduces = false;
    const auto visit = [&](int tensor) {
      const int producer = folded_.index.producer(tensor);
      if (producer < 0 || std::ranges::find(ops, producer) != ops.end()) return true;
      const Op& op = graph_.ops[producer];
      const bool may_leave = graph_.tensors[tensor].dims.back() == 1;
      if (folded_.folded[producer]) return groups_.is_view_of_input(tensor);
      if (groups_.is_unpacking(producer)) return true;
      if (groups_.size_of(groups_.group_of(producer)) != 1 ||
          (!may_leave && !groups_.is_virtual_result(producer)))
        return false;
      if (std::holds_alternative<Matmul>(op.attributes))
        return std::exchange(first, producer) < 0 || first == producer;
      if (!is_pointwise(op) && !is_reduction(op)) return false;
      ops.push_back(producer);
      waiting.push_back(producer);
      return ops.size() <= kMaxFusionOps;
    };
    if (!visit(graph_.ops[second].inputs[0])) return std::nullopt;
    while (!waiting.empty()) {
      const int op = waiting.back();
      waiting.pop_back();
      reduces = reduces || is_reduction(graph_.ops[op]);
      for (const int input : graph_.ops[op].inputs)
        if (!visit(input)) return std::nullopt;
    }
    // One value a row, or a value of another shape, is no operand that is computed block by block.
    if (first < 0 || !reduces ||
        graph_.tensors[graph_.ops[second].inputs[0]].dims != groups_.result_dims(first) ||
        !std::ranges::all_of(ops, [&](int op) { return works_on_rows(op, first); }))
      return std::nullopt;
    ops.push_back(first);
    std::ranges::sort(ops);
    return ops;
  }

  // Whether the op works over the product of `matmul`, or over what is the same for a row or a column of it.
  bool works_on_rows(int op, int matmul) const {
    const Dims &product = groups_.result_dims(matmul), &dims = groups_.work_dims(op);
    Dims joined;
    if (!is_reduction(graph_.ops[op])) return broadcast_dims(dims, product, joined) && joined == product;
    Dims rows = product;
    rows[rows.rank() - 1] = 1;
    return dims == product && groups_.result_dims(op) == rows;
  }

  // Ops of totals alone: the logarithm of a sum, say.
  void add_ops_of_rows(std::vector<int>& ops) const {
    const auto is_row = [&](int tensor) {
      const int producer = folded_.index.producer(tensor);
      if (producer < 0) return graph_.tensors[tensor].is_scalar();
      return std::ranges::binary_search(ops, producer) && graph_.tensors[tensor].dims.back() == 1;
    };
    for (size_t i = 0; i < ops.size(); ++i)
      for (const int consumer : groups_.consumers(ops[i])) {
        const Op& op = graph_.ops[consumer];
        if (std::ranges::binary_search(ops, consumer) || folded_.folded[consumer] || !is_pointwise(op) ||
            groups_.size_of(groups_.group_of(consumer)) != 1 || !std::ranges::all_of(op.inputs, is_row))
          continue;
        ops.insert(std::ranges::upper_bound(ops, consumer), consumer);
      }
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
    while (!others.empty()) {
      const int other = others.back();
      others.pop_back();
      if (other >= second) continue;
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
};

}  // namespace

void join_chains(Groups& groups, const Graph& graph, const FoldedGraph& folded) {
  Chains chains(groups, graph, folded);
  for (int i = 0; i < groups.op_count(); ++i)
    if (groups.is_matmul(i) && !folded.folded[i]) chains.join(i);
}

}  // namespace fusor
