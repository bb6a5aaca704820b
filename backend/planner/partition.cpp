// Owns the greedy partition: anchors absorb their pointwise neighbours, pointwise ops and reductions join
// each other.
#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "backend/planner/group_order.h"
#include "backend/planner/planner.h"

namespace fusor {

namespace {

// fp32 instructions for which computing a value again beside each use is cheaper than a launch, a write and
// reads.
constexpr int kCheapInstructions = 16;
// A special-function result costs about this many fp32 instructions (128 against 16 a clock and SM).
constexpr int kSpecialCost = 8;
// Elements of a row whose totals feed back within one fusion, at most.
constexpr int64_t kMostRowElements = int64_t{1} << 26;
// Rows up to here are left to a fusion of their own; totals of longer ones are made behind the anchor.
constexpr int64_t kShortRowElements = int64_t{1} << 16;
// Rows of queries that share an entry of keys, at most, where these are loaded through indices.
constexpr int64_t kFewRows = 128;
// Reductions of one fusion whose totals feed back.
constexpr int kMostFedBack = 6;
// Places of a window, at most, of which each is counted again beside each use.
constexpr int64_t kMostPlaces = 64;

int pointwise_cost(const Op& op) {
  const PointwiseInfo& row = info(std::get<Pointwise>(op.attributes).mode);
  return row.alu + kSpecialCost * row.sfu;
}

bool is_pointwise(const Op& op) { return std::holds_alternative<Pointwise>(op.attributes); }
bool is_reduction(const Op& op) { return std::holds_alternative<Reduction>(op.attributes); }
bool is_gather(const Op& op) { return std::holds_alternative<Gather>(op.attributes); }
bool is_scatter(const Op& op) { return std::holds_alternative<Scatter>(op.attributes); }

// What is asked of a group again and again; kept up to date as groups merge.
struct GroupFacts {
  std::vector<int> anchors;     // ascending: none, one, or two siblings
  std::vector<int> reductions;  // ascending
  std::vector<int> indices;     // gen_index ops, ascending
  bool has_view = false;
  bool has_grouped = false;  // a reduction that keeps groups of an axis
  bool has_gather = false;
  bool has_scatter = false;
  bool is_chain = false;   // a matmul, a softmax, a matmul
  bool is_closed = false;  // complete: it takes no more ops
  int widest = -1;         // the first op that works over the most elements
  int fed_back = 0;        // reductions whose totals ops of the group read
  Dims row_dims = {};      // the shape of their totals; empty without any
};

// The groups while they grow. A group is known by the index that its ops carry.
class Partitioner {
 public:
  Partitioner(const Graph& graph, const FoldedGraph& folded)
      : graph_(graph),
        folded_(folded),
        order_(folded),
        facts_(graph.ops.size()),
        before_anchor_(graph.ops.size(), false),
        rows_own_(graph.ops.size(), false),
        counted_(graph.ops.size(), false),
        readers_seen_(graph.tensors.size(), 0),
        reader_groups_(graph.tensors.size()),
        met_in_(graph.ops.size(), 0) {
    for (int i = 0; i < op_count(); ++i)
      if (!folded.folded[i]) facts_[i] = facts_of(i);
  }

  std::vector<std::vector<int>> run() {
    find_rows_own();
    for (int i = 0; i < op_count(); ++i)
      if (is_matmul(i) && !folded_.folded[i]) join_chain(i);
    for (int i = 0; i < op_count(); ++i)
      if (is_matmul(i) && !folded_.folded[i]) join_gradients(i);
    for (int i = 0; i < op_count(); ++i) {
      if (folded_.folded[i]) continue;
      const Op& op = graph_.ops[i];
      if (is_contraction(op.attributes)) absorb_prologue(i);
      const bool joins = is_pointwise(op) || is_reduction(op) || is_gather(op) || is_scatter(op);
      if (joins && !before_anchor_[i]) join_producers(i);
    }
    for (int i = op_count() - 1; i >= 0; --i)
      if (!folded_.folded[i] && is_gather(graph_.ops[i])) absorb_inner_gather(i);
    for (int i = op_count() - 1; i >= 0; --i)
      if (!folded_.folded[i] && is_pointwise(graph_.ops[i])) absorb_small(i);
    find_counted();
    for (int i = op_count() - 1; i >= 0; --i)
      if (counted_[i] && members(group_of(i)).back() == i) absorb_counting(group_of(i));
    std::vector<std::vector<int>> groups;
    for (int i = 0; i < op_count(); ++i)
      if (!folded_.folded[i] && !members(i).empty()) groups.push_back(members(i));
    return in_run_order(folded_, std::move(groups));
  }

 private:
  int op_count() const { return static_cast<int>(graph_.ops.size()); }
  bool is_matmul(int op) const { return std::holds_alternative<Matmul>(graph_.ops[op].attributes); }
  const Dims& result_dims(int op) const { return graph_.tensors[graph_.ops[op].outputs[0]].dims; }
  bool is_virtual_result(int op) const { return graph_.tensors[graph_.ops[op].outputs[0]].is_virtual(); }
  std::span<const int> consumers(int op) const { return folded_.index.consumers(graph_.ops[op].outputs[0]); }

  int group_of(int op) const { return order_.group_of(op); }
  const std::vector<int>& members(int group) const { return order_.members(group); }
  size_t size_of(int group) const { return members(group).size(); }

  GroupFacts facts_of(int op) const {
    const Op& described = graph_.ops[op];
    GroupFacts facts;
    facts.widest = op;
    facts.has_view = is_view(described.attributes);
    facts.has_gather = is_gather(described);
    facts.has_scatter = is_scatter(described);
    if (is_contraction(described.attributes)) facts.anchors = {op};
    if (is_gen_index(op)) facts.indices = {op};
    if (!is_reduction(described)) return facts;
    facts.reductions = {op};
    facts.has_grouped = is_grouped(op);
    return facts;
  }

  // The op that writes `tensor` itself (not through a folded view), or -1.
  int direct_producer(int tensor) const {
    const int producer = folded_.index.producer(tensor);
    return producer < 0 || folded_.folded[producer] ? -1 : producer;
  }

  // Whether no op but folded views lies between what the graph is given and the tensor.
  bool is_view_of_input(int tensor) const {
    const int producer = folded_.index.producer(tensor);
    return producer < 0 || (folded_.folded[producer] && is_view_of_input(graph_.ops[producer].inputs[0]));
  }

  // One, or two siblings.
  const std::vector<int>& anchors_of(int group) const { return facts_[group].anchors; }
  bool has_anchor(int group) const { return !anchors_of(group).empty(); }

  // The shape over which a group's after-site works; empty for ops that stay alone (copies of views).
  Dims domain_of(int group) const {
    const GroupFacts& facts = facts_[group];
    if (!facts.anchors.empty()) return result_dims(facts.anchors.back());
    return facts.has_view ? Dims{} : work_dims(facts.widest);
  }

  const Dims& work_dims(int op) const {
    return works_over_operand(graph_.ops[op]) ? graph_.tensors[graph_.ops[op].inputs[0]].dims
                                              : result_dims(op);
  }

  bool fits_one_fusion(int a, int b) const {
    return !facts_[a].is_closed && !facts_[b].is_closed && size_of(a) + size_of(b) <= kMaxFusionOps;
  }

  void merge(int from, int into) {
    order_.merge(from, into);
    GroupFacts& facts = facts_[into];
    GroupFacts& others = facts_[from];
    const auto join = [](std::vector<int>& ops, const std::vector<int>& more) {
      const auto middle = static_cast<std::ptrdiff_t>(ops.size());
      ops.insert(ops.end(), more.begin(), more.end());
      std::inplace_merge(ops.begin(), ops.begin() + middle, ops.end());
    };
    join(facts.anchors, others.anchors);
    join(facts.reductions, others.reductions);
    join(facts.indices, others.indices);
    facts.has_view = facts.has_view || others.has_view;
    facts.has_grouped = facts.has_grouped || others.has_grouped;
    facts.has_gather = facts.has_gather || others.has_gather;
    facts.has_scatter = facts.has_scatter || others.has_scatter;
    facts.is_chain = facts.is_chain || others.is_chain;
    facts.is_closed = facts.is_closed || others.is_closed;
    const auto width = [this](int op) { return std::pair(element_count(work_dims(op)), -op); };
    if (width(others.widest) > width(facts.widest)) facts.widest = others.widest;
    others = {};
    count_fed_back(into);
    mark_before_anchors(into);
  }

  void count_fed_back(int group) {
    GroupFacts& facts = facts_[group];
    facts.fed_back = 0;
    for (const int reduction : facts.reductions) {
      if (!is_read_within(reduction, group)) continue;
      ++facts.fed_back;
      facts.row_dims = result_dims(reduction);
    }
  }
  bool is_read_within(int op, int group) const {
    return std::ranges::any_of(order_.dependents(op), [&](int reader) { return group_of(reader) == group; });
  }

  // Only what lies before anchors is walked.
  void mark_before_anchors(int group) {
    any_before(anchors_of(group), {group, group}, [this](int op) {
      before_anchor_[op] = true;
      return false;
    });
  }

  // --- Chains: a matmul, a softmax of its result, and a matmul of that ---

  // Joins `second` with the matmul whose result its first operand comes of, and with all that lies between
  // them, where that reduces the rows of the product and leaves nothing but what is the same for a row.
  void join_chain(int second) {
    const auto between = ops_between(second);
    if (!between) return;
    std::vector<int> ops = *between;
    add_ops_of_rows(ops);
    if (ops.size() + 2 > kMaxFusionOps || !stays_within(ops, second)) return;
    // The last first: nothing lies between an op and those that read it.
    for (auto op = ops.rbegin(); op != ops.rend(); ++op)
      if (!order_.would_wait_for_itself(group_of(*op), group_of(second)))
        merge(group_of(*op), group_of(second));
    facts_[group_of(second)].is_chain = true;
    absorb_gathered(*std::ranges::find_if(*between, [this](int op) { return is_matmul(op); }), second);
  }

  // Keys and values of a few queries that come through indices are loaded by these, with all that the indices
  // are made of: the rows of a cache in pages lie in memory once, and are read once.
  void absorb_gathered(int first, int second) {
    std::vector<int> ops;
    for (const int operand : {graph_.ops[first].inputs[1], graph_.ops[second].inputs[1]}) {
      const int64_t entries = entries_of(graph_.tensors[operand].dims);
      if (element_count(result_dims(first)) / result_dims(first).back() > kFewRows * entries) continue;
      const std::vector<int> found = ops_of_gathered(operand);
      ops.insert(ops.end(), found.begin(), found.end());
    }
    std::ranges::sort(ops);
    ops.erase(std::unique(ops.begin(), ops.end()), ops.end());
    const int group = group_of(second);
    const auto is_own = [&](int op) {
      return all_readers(graph_.ops[op].outputs[0], [&](int reader) {
        return reader == first || reader == second || std::ranges::binary_search(ops, reader);
      });
    };
    if (ops.size() + size_of(group) > kMaxFusionOps || !std::ranges::all_of(ops, is_own)) return;
    for (auto op = ops.rbegin(); op != ops.rend(); ++op)
      if (group_of(*op) != group_of(second) && !order_.would_wait_for_itself(group_of(*op), group_of(second)))
        merge(group_of(*op), group_of(second));
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
      if (producer < 0 || is_view_of_input(tensor) || std::ranges::find(ops, producer) != ops.end()) continue;
      const Op& op = graph_.ops[producer];
      if (folded_.folded[producer]) {
        if (Dims axes; !graph_.tensors[tensor].is_virtual() || !axes_of_operand(graph_, op, axes)) return {};
        waiting.push_back(op.inputs[0]);
        continue;
      }
      if (size_of(group_of(producer)) != 1 || !is_virtual_result(producer) || ops.size() == kMostOps ||
          (!is_pointwise(op) && !is_gather(op)) || (is_gather(op) && !is_view_of_input(op.inputs[0])))
        return {};
      gathers = gathers || is_gather(op);
      ops.push_back(producer);
      waiting.insert(waiting.end(), op.inputs.begin(), op.inputs.end());
    }
    return gathers ? ops : std::vector<int>();
  }

  // Whether `holds` of all ops that read the tensor, itself or through folded views.
  template <class Holds>
  bool all_readers(int tensor, Holds&& holds) const {
    return graph_.tensors[tensor].is_virtual() &&
           std::ranges::all_of(folded_.index.consumers(tensor), [&](int reader) {
             return folded_.folded[reader] ? all_readers(graph_.ops[reader].outputs[0], holds)
                                           : holds(reader);
           });
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
      if (folded_.folded[producer]) return is_view_of_input(tensor);
      if (size_of(group_of(producer)) != 1 || (!may_leave && !is_virtual_result(producer))) return false;
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
    if (first < 0 || !reduces || graph_.tensors[graph_.ops[second].inputs[0]].dims != result_dims(first) ||
        !std::ranges::all_of(ops, [&](int op) { return works_on_rows(op, first); }))
      return std::nullopt;
    ops.push_back(first);
    std::ranges::sort(ops);
    return ops;
  }

  // Whether the op works over the product of `matmul`, or over what is the same for a row or a column of it.
  bool works_on_rows(int op, int matmul) const {
    const Dims &product = result_dims(matmul), &dims = work_dims(op);
    Dims joined;
    if (!is_reduction(graph_.ops[op])) return broadcast_dims(dims, product, joined) && joined == product;
    Dims rows = product;
    rows[rows.rank() - 1] = 1;
    return dims == product && result_dims(op) == rows;
  }

  // Ops of totals alone: the logarithm of a sum, say.
  void add_ops_of_rows(std::vector<int>& ops) const {
    const auto is_row = [&](int tensor) {
      const int producer = folded_.index.producer(tensor);
      if (producer < 0) return graph_.tensors[tensor].is_scalar();
      return std::ranges::binary_search(ops, producer) && graph_.tensors[tensor].dims.back() == 1;
    };
    for (size_t i = 0; i < ops.size(); ++i)
      for (const int consumer : consumers(ops[i])) {
        const Op& op = graph_.ops[consumer];
        if (std::ranges::binary_search(ops, consumer) || folded_.folded[consumer] || !is_pointwise(op) ||
            size_of(group_of(consumer)) != 1 || !std::ranges::all_of(op.inputs, is_row))
          continue;
        ops.insert(std::ranges::upper_bound(ops, consumer), consumer);
      }
  }

  // Others read only one value a row of these ops, and `second` does not wait for them.
  bool stays_within(const std::vector<int>& ops, int second) const {
    std::vector<int> others;
    for (const int op : ops)
      for (const int consumer : consumers(op)) {
        if (consumer == second || std::ranges::binary_search(ops, consumer)) continue;
        if (result_dims(op).back() != 1) return false;
        others.push_back(consumer);
      }
    while (!others.empty()) {
      const int other = others.back();
      others.pop_back();
      if (other >= second) continue;
      for (const int consumer : consumers(other)) {
        if (consumer == second) return false;
        others.push_back(consumer);
      }
    }
    return true;
  }

  // --- Gradients: two matmuls, what becomes of both results, and the matmuls of that ---

  // The ops of an attention's backward pass, as they are collected.
  struct Gradients {
    std::vector<int> ops;     // all of them
    std::vector<int> fronts;  // matmuls whose results the ops between work on
    std::vector<int> backs;   // matmuls whose first operand is made of these, as it is or transposed

    bool has(int op) const { return std::ranges::find(ops, op) != ops.end(); }
  };

  // Joins two matmuls of equal results, all pointwise ops that read these, and the matmuls of what becomes of
  // them, where nothing of the size of the products leaves.
  void join_gradients(int first) {
    if (size_of(group_of(first)) != 1 || !is_virtual_result(first)) return;
    Gradients found;
    if (!collect_gradients(first, found) || !are_of_attention(found)) return;
    add_helpers(found);
    const std::vector<int> backs = found.backs;
    for (const int back : backs) add_what_follows(back, found);
    std::ranges::sort(found.ops);
    if (found.ops.size() > kMaxFusionOps || comes_back(found)) return;
    const int last = found.ops.back();
    for (auto op = found.ops.rbegin(); op != found.ops.rend(); ++op)
      if (group_of(*op) != group_of(last) && !order_.would_wait_for_itself(group_of(*op), group_of(last)))
        merge(group_of(*op), group_of(last));
    facts_[group_of(last)].is_closed = true;
  }

  // Scores and the gradient of probabilities are products of different operands, and an exponential lies
  // behind the scores. Other pairs, a gated one for instance, are fusions that need no matmul behind them.
  bool are_of_attention(const Gradients& found) const {
    if (found.fronts.size() != 2 || found.backs.empty()) return false;
    const auto is_exponential = [&](int op) {
      const auto* const pointwise = std::get_if<Pointwise>(&graph_.ops[op].attributes);
      return pointwise != nullptr && pointwise->mode == PointwiseMode::exp;
    };
    return graph_.ops[found.fronts[0]].inputs[0] != graph_.ops[found.fronts[1]].inputs[0] &&
           std::ranges::any_of(found.ops, is_exponential);
  }

  bool collect_gradients(int first, Gradients& found) const {
    std::vector<int> waiting;
    const auto add = [&](int op) {
      if (found.has(op)) return true;
      if (folded_.folded[op] || size_of(group_of(op)) != 1 || !is_virtual_result(op) ||
          result_dims(op) != result_dims(first) || found.ops.size() >= kMaxFusionOps)
        return false;
      if (is_matmul(op)) found.fronts.push_back(op);
      found.ops.push_back(op);
      waiting.push_back(op);
      return true;
    };
    if (!add(first)) return false;
    while (!waiting.empty()) {
      const int op = waiting.back();
      waiting.pop_back();
      for (const int consumer : consumers(op)) {
        if (is_pointwise(graph_.ops[consumer]) && !folded_.folded[consumer]) {
          if (!add(consumer)) return false;
        } else if (!add_backs(graph_.ops[op].outputs[0], consumer, found)) {
          return false;
        }
      }
      if (is_matmul(op)) continue;
      for (const int input : graph_.ops[op].inputs) {
        const int producer = direct_producer(input);
        if (producer >= 0 && !found.has(producer) && is_made_of_product(producer, result_dims(first)) &&
            !add(producer))
          return false;
      }
    }
    return true;
  }

  // Whether pointwise ops lead from a matmul of that result to the op, or it is one.
  bool is_made_of_product(int op, const Dims& product) const {
    std::vector<int> met = {op};
    for (size_t next = 0; next < met.size() && met.size() < kMaxFusionOps; ++next) {
      if (result_dims(met[next]) != product) continue;
      if (is_matmul(met[next])) return true;
      if (!is_pointwise(graph_.ops[met[next]])) continue;
      for (const int input : graph_.ops[met[next]].inputs)
        if (const int producer = direct_producer(input);
            producer >= 0 && std::ranges::find(met, producer) == met.end())
          met.push_back(producer);
    }
    return false;
  }

  // A matmul of `tensor`, or all that read its transpose.
  bool add_backs(int tensor, int consumer, Gradients& found) const {
    const Op& op = graph_.ops[consumer];
    if (folded_.folded[consumer] && std::holds_alternative<Transpose>(op.attributes) &&
        graph_.tensors[tensor].is_virtual()) {
      const int view = op.outputs[0];
      const std::span<const int> readers = folded_.index.consumers(view);
      return graph_.tensors[view].is_virtual() && !readers.empty() &&
             std::ranges::all_of(
                 readers, [&](int reader) { return is_matmul(reader) && add_backs(view, reader, found); });
    }
    if (!is_matmul(consumer) || folded_.folded[consumer] || size_of(group_of(consumer)) != 1 ||
        op.inputs[0] != tensor || op.inputs[1] == tensor)
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
        const int producer = direct_producer(input);
        if (producer < 0 || found.has(producer) || !is_pointwise(graph_.ops[producer]) ||
            !is_virtual_result(producer) || size_of(group_of(producer)) != 1)
          continue;
        // An op comes again after the last of its readers has joined.
        if (std::ranges::all_of(consumers(producer), [&](int reader) { return found.has(reader); }))
          found.ops.push_back(producer);
      }
    }
  }

  // Adds the ops that only a matmul's result passes: scaled, rounded, summed over axes in front of the
  // matrices.
  void add_what_follows(int op, Gradients& found) const {
    while (is_virtual_result(op) && consumers(op).size() == 1) {
      const int next = consumers(op)[0];
      const Op& reader = graph_.ops[next];
      if (folded_.folded[next] || size_of(group_of(next)) != 1 || found.has(next)) return;
      const auto is_at_hand = [&](int input) {
        return input == graph_.ops[op].outputs[0] || graph_.tensors[input].is_scalar();
      };
      const bool maps = is_pointwise(reader) && result_dims(next) == result_dims(op) &&
                        std::ranges::all_of(reader.inputs, is_at_hand);
      if (!maps && !sums_batches(next)) return;
      found.ops.push_back(next);
      op = next;
    }
  }

  bool sums_batches(int op) const {
    const auto* const reduction = std::get_if<Reduction>(&graph_.ops[op].attributes);
    if (reduction == nullptr || reduction->mode != ReductionMode::add || is_grouped(op)) return false;
    const Dims &from = work_dims(op), &to = result_dims(op);
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
      for (const int reader : order_.dependents(op)) {
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

  // --- Neighbours of anchors ---

  // Pointwise ops that feed only operand values of `anchor` and are cheap to repeat for each use move before
  // it.
  void absorb_prologue(int anchor) {
    for (const int input : graph_.ops[anchor].inputs) {
      const int producer = direct_producer(input);
      if (producer < 0 || !is_pointwise(graph_.ops[producer]) || has_anchor(group_of(producer))) continue;
      const int group = group_of(producer);
      if (fits_one_fusion(group, group_of(anchor)) &&
          is_prologue(group, anchor, graph_.tensors[input].dims) &&
          !order_.would_wait_for_itself(group, group_of(anchor)))
        merge(group, group_of(anchor));
    }
  }

  bool is_prologue(int group, int anchor, const Dims& dims) const {
    int cost = 0;
    for (const int op : members(group)) {
      if (!is_pointwise(graph_.ops[op]) || !is_virtual_result(op) || !feeds_only(op, group, anchor) ||
          element_count(result_dims(op)) > element_count(dims))
        return false;
      cost += pointwise_cost(graph_.ops[op]);
      if (cost > kCheapInstructions) return false;
    }
    return true;
  }

  bool feeds_only(int op, int group, int anchor) const {
    return std::ranges::all_of(
        consumers(op), [&](int consumer) { return consumer == anchor || group_of(consumer) == group; });
  }

  // Whether `op` can work over `group`'s domain, reading values that the group has at hand.
  bool can_join(int op, int group) const {
    const Dims domain = domain_of(group);
    return !domain.empty() && (work_dims(op) == domain || is_of_rows(op, group)) &&
           reads_what_is_at_hand(op, group) && agrees_with(facts_[group], op);
  }

  // A folded view of a value, and what a gather takes from, are read from memory.
  bool reads_what_is_at_hand(int op, int group) const {
    bool at_hand = !is_gather(graph_.ops[op]) || !takes_from(op, group), reads_any = false;
    for (const int wait : folded_.dependencies[op]) {
      if (group_of(wait) != group) continue;
      reads_any = true;
      at_hand = at_hand && !before_anchor_[wait] &&
                (!is_reduction(graph_.ops[wait]) || may_feed_back(wait, op, group));
    }
    return !reads_any || (at_hand && !reads_through_a_view(op, group));
  }

  bool takes_from(int gather, int group) const {
    const int x = graph_.ops[gather].inputs[0];
    const int producer = direct_producer(x);
    return (producer >= 0 && group_of(producer) == group) || reads_through_a_view({&x, 1}, group);
  }

  // ---- Totals that are needed again ----

  int64_t row_elements(int reduction) const {
    return element_count(work_dims(reduction)) / std::max<int64_t>(1, element_count(result_dims(reduction)));
  }

  // A total is complete only after the last element: what reads it in the same fusion works in a phase of its
  // own, along the same rows as all others, and not behind an anchor.
  bool may_feed_back(int reduction, int reader, int group) const {
    const GroupFacts &facts = facts_[group], &own = facts_[group_of(reader)];
    const auto agrees = [&](const GroupFacts& some) {
      return some.anchors.empty() && (some.row_dims.empty() || some.row_dims == result_dims(reduction));
    };
    return agrees(facts) && agrees(own) && facts.fed_back + own.fed_back < kMostFedBack &&
           !is_grouped(reduction) && row_elements(reduction) <= kMostRowElements;
  }

  // Whether a pointwise op works on one value a row of the group, and reads such a value there.
  bool is_of_rows(int op, int group) const {
    if (!is_pointwise(graph_.ops[op]) || is_gen_index(op)) return false;
    return std::ranges::any_of(folded_.dependencies[op], [&](int wait) {
      return group_of(wait) == group && result_dims(wait) == result_dims(op);
    });
  }

  // Whether ops over the values of a reduction's elements need its total again.
  bool feeds_back(int reduction) const {
    std::vector<int> waiting = {reduction};
    for (size_t next = 0; next < waiting.size() && next < 16; ++next)
      for (const int reader : consumers(waiting[next])) {
        if (folded_.folded[reader] || !is_pointwise(graph_.ops[reader])) continue;
        if (result_dims(reader) == work_dims(reduction)) return true;
        waiting.push_back(reader);
      }
    return false;
  }

  // Ops that rows need and nobody else - totals that feed back, and what only they read - are no part of what
  // an anchor is followed by.
  void find_rows_own() {
    for (int op = op_count() - 1; op >= 0; --op) {
      if (folded_.folded[op]) continue;
      if (is_reduction(graph_.ops[op])) {
        rows_own_[op] = row_elements(op) <= kShortRowElements && !is_grouped(op) && feeds_back(op);
      } else if (is_pointwise(graph_.ops[op]) && is_virtual_result(op)) {
        const std::span<const int> readers = consumers(op);
        rows_own_[op] =
            !readers.empty() && std::ranges::all_of(readers, [&](int reader) { return rows_own_[reader]; });
      }
    }
  }

  bool reads_through_a_view(int op, int group) const {
    return reads_through_a_view(graph_.ops[op].inputs, group);
  }
  bool reads_through_a_view(std::span<const int> inputs_read, int group) const {
    std::vector<int> waiting;
    const auto look_behind = [&](int tensor) {
      const int producer = folded_.index.producer(tensor);
      if (producer < 0 || !folded_.folded[producer]) return;
      const std::vector<int>& inputs = graph_.ops[producer].inputs;
      waiting.insert(waiting.end(), inputs.begin(), inputs.end());
    };
    for (const int input : inputs_read) look_behind(input);
    while (!waiting.empty()) {
      const int tensor = waiting.back();
      waiting.pop_back();
      if (const int producer = direct_producer(tensor); producer >= 0 && group_of(producer) == group)
        return true;
      look_behind(tensor);
    }
    return false;
  }

  // Grouped reductions split axes: one group holds at most one such shape, and no index along a split axis.
  // Plain masks may differ: engines refuse and the planner cuts, which explain() then shows.
  bool agrees_with(const GroupFacts& facts, int op) const {
    if (is_gen_index(op))
      return !facts.has_grouped ||
             std::ranges::none_of(facts.reductions, [&](int other) { return splits_index(other, op); });
    if (!is_reduction(graph_.ops[op])) return true;
    if (is_grouped(op) &&
        std::ranges::any_of(facts.indices, [&](int index) { return splits_index(op, index); }))
      return false;
    if (!is_grouped(op) && !facts.has_grouped) return true;
    return std::ranges::all_of(facts.reductions, [&](int other) {
      return result_dims(other) == result_dims(op) || (!is_grouped(other) && !is_grouped(op));
    });
  }

  bool splits_index(int reduction, int index) const {
    const Dims& dims = work_dims(reduction);
    if (result_dims(index) != dims) return false;
    const auto axis = static_cast<int>(std::get<Pointwise>(graph_.ops[index].attributes).axis);
    const int64_t kept = result_dims(reduction)[axis];
    return kept != 1 && kept != dims[axis];
  }

  bool is_gen_index(int op) const {
    const auto* pointwise = std::get_if<Pointwise>(&graph_.ops[op].attributes);
    return pointwise != nullptr && pointwise->mode == PointwiseMode::gen_index;
  }

  bool is_grouped(int op) const { return is_grouped_reduction(graph_, graph_.ops[op]); }

  // Latest first: where two anchors meet, the later one takes the op, and reads the earlier's result unless
  // the two are siblings (a gated pair).
  void join_producers(int op) {
    std::vector<int> wanted;
    for (const int input : graph_.ops[op].inputs)
      if (const int producer = direct_producer(input); producer >= 0) wanted.push_back(group_of(producer));
    if (wanted.empty())
      for (const int input : graph_.ops[op].inputs) add_siblings(op, input, wanted);
    std::ranges::sort(wanted,
                      [&](int a, int b) { return std::tie(anchors_of(a), a) > std::tie(anchors_of(b), b); });
    wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
    for (const int group : wanted) {
      const int own = group_of(op);
      if (group == own || !fits_one_fusion(own, group) || !can_share_anchors(own, group)) continue;
      if (has_anchor(group) && rows_own_[op]) continue;
      if (facts_[group].is_chain && ends_in_reductions(op)) continue;
      if (can_join(op, group) && can_merge(own, group) && !order_.would_wait_for_itself(own, group))
        merge(group, own);
    }
  }

  // The values behind the op are reduced before anybody stores them: behind a chain, whose results are
  // elementwise, it is a fusion of its own.
  bool ends_in_reductions(int op, int depth = 4) const {
    if (is_reduction(graph_.ops[op])) return true;
    const auto readers = consumers(op);
    return depth > 0 && is_pointwise(graph_.ops[op]) && is_virtual_result(op) && !readers.empty() &&
           std::ranges::all_of(readers, [&](int reader) {
             return !folded_.folded[reader] && ends_in_reductions(reader, depth - 1);
           });
  }

  // One anchor between them, or two siblings of which neither waits for the other.
  bool can_share_anchors(int a, int b) {
    std::vector<int> anchors = anchors_of(a);
    anchors.insert(anchors.end(), anchors_of(b).begin(), anchors_of(b).end());
    if (anchors.size() < 2) return true;
    // A chain is complete: it takes ops without an anchor, and no other anchor.
    if (std::max(anchors_of(a).size(), anchors_of(b).size()) == anchors.size()) return true;
    std::ranges::sort(anchors);
    if (anchors.size() > 2 || !are_siblings(graph_, anchors[0], anchors[1])) return false;
    return !any_before({&anchors[1], 1}, {a, b}, [&](int op) { return op == anchors[0]; });
  }

  // Whether `asked` holds of an op of the two groups that `ops` wait for, directly or through ops of these
  // groups; each is asked once, until the first yes.
  template <class Asked>
  bool any_before(std::span<const int> ops, std::pair<int, int> groups, Asked asked) {
    ++walk_;
    std::vector<int> waiting(ops.begin(), ops.end());
    while (!waiting.empty()) {
      const int op = waiting.back();
      waiting.pop_back();
      for (const int wait : folded_.dependencies[op]) {
        const bool is_inside = group_of(wait) == groups.first || group_of(wait) == groups.second;
        if (!is_inside || met_in_[wait] == walk_) continue;
        met_in_[wait] = walk_;
        if (asked(wait)) return true;
        waiting.push_back(wait);
      }
    }
    return false;
  }

  // Two groups that an op ties together: every op of either must be at home in the other.
  bool can_merge(int a, int b) {
    const Dims first = domain_of(a), second = domain_of(b);
    if (first.empty() || second.empty()) return false;
    if (first != second && !are_of_rows(a, b)) return false;
    const Dims &rows = facts_[a].row_dims, &others = facts_[b].row_dims;
    if (!rows.empty() && !others.empty() && rows != others) return false;
    return all_at_home(a, b) && all_at_home(b, a) && may_precede(a, b) && may_precede(b, a);
  }

  // Whether one op works on the values of the other group's rows.
  bool are_of_rows(int a, int b) const {
    return (size_of(a) == 1 && is_of_rows(members(a).front(), b)) ||
           (size_of(b) == 1 && is_of_rows(members(b).front(), a));
  }

  // All ops behind a group's anchors work over its domain, which is the other's too.
  bool all_at_home(int group, int in) const {
    // A gathered value does not reach an anchor's kernel, and scattered ones do not leave from one, nor from
    // one that reduces.
    if ((facts_[group].has_gather || facts_[group].has_scatter) && has_anchor(in)) return false;
    if (facts_[group].has_scatter && !facts_[in].reductions.empty()) return false;
    const auto is_at_home = [&](int op) {
      return is_contraction(graph_.ops[op].attributes) || before_anchor_[op] || reads_what_is_at_hand(op, in);
    };
    const auto agrees = [&](int op) { return before_anchor_[op] || agrees_with(facts_[in], op); };
    if (!std::ranges::all_of(facts_[group].reductions, agrees) ||
        !std::ranges::all_of(facts_[group].indices, agrees))
      return false;
    if (size_of(group) <= size_of(in)) return std::ranges::all_of(members(group), is_at_home);
    return std::ranges::all_of(members(in), [&](int read) {
      return std::ranges::all_of(order_.dependents(read),
                                 [&](int reader) { return group_of(reader) != group || is_at_home(reader); });
    });
  }

  // Ops of `group` that the other's anchors wait for would be computed before their operands, once for each
  // use: they must be cheap and of no use to anybody else.
  bool may_precede(int group, int other) {
    int cost = 0;
    return !any_before(anchors_of(other), {group, group}, [&](int op) {
      if (!is_pointwise(graph_.ops[op]) || !is_virtual_result(op)) return true;
      cost += pointwise_cost(graph_.ops[op]);
      return cost > kCheapInstructions || std::ranges::any_of(consumers(op), [&](int consumer) {
               return folded_.folded[consumer] ||
                      (group_of(consumer) != group && group_of(consumer) != other);
             });
    });
  }

  // Groups without an anchor that read the same tensor over the same domain: one pass serves both.
  void add_siblings(int op, int tensor, std::vector<int>& wanted) {
    if (graph_.tensors[tensor].dims != work_dims(op)) return;
    const std::span<const int> all = folded_.index.consumers(tensor);
    size_t& seen = readers_seen_[tensor];
    std::vector<int>& readers = reader_groups_[tensor];
    for (; seen < all.size() && all[seen] < op; ++seen)
      if (!folded_.folded[all[seen]]) readers.push_back(all[seen]);
    // One reader stands for all that have joined it since.
    ++walk_;
    std::erase_if(readers, [&](int reader) {
      int& met = met_in_[group_of(reader)];
      return std::exchange(met, walk_) == walk_;
    });
    for (const int reader : readers)
      if (!has_anchor(group_of(reader))) wanted.push_back(group_of(reader));
  }

  // A gather that only gathers of one group go through has no value of its own.
  void absorb_inner_gather(int op) {
    if (!is_virtual_result(op) || size_of(group_of(op)) != 1 || consumers(op).empty()) return;
    const int y = graph_.ops[op].outputs[0];
    const int into = group_of(consumers(op)[0]);
    for (const int consumer : consumers(op)) {
      const Op& reader = graph_.ops[consumer];
      if (folded_.folded[consumer] || group_of(consumer) != into || reader.inputs[1] == y ||
          !is_gather_of_gather(graph_, folded_.index, reader))
        return;
    }
    if (into == group_of(op) || takes_from(op, into) || !fits_one_fusion(group_of(op), into) ||
        order_.would_wait_for_itself(group_of(op), into))
      return;
    const int widest = facts_[into].widest;
    merge(group_of(op), into);
    facts_[into].widest = widest;
  }

  // Numbers that are only counted, and say where windows lie, are counted again by the one group that takes
  // elements through them.
  void absorb_counting(int group) {
    int reader = -1;
    for (const int op : members(group)) {
      if (!counted_[op]) return;
      for (const int consumer : consumers(op)) {
        if (folded_.folded[consumer]) return;
        const int other = group_of(consumer);
        if (other == group) continue;
        if (reader >= 0 && other != reader) return;
        reader = other;
      }
    }
    if (reader < 0 || !gathers_windows(reader) || !fits_one_fusion(group, reader)) return;
    Dims joined;
    const Dims domain = domain_of(reader), own = domain_of(group);
    if (broadcast_dims(own, domain, joined) && joined == domain &&
        !order_.would_wait_for_itself(group, reader))
      merge(group, reader);
  }

  // Numbers made of coordinates and constants. A coordinate reads the dims of its input, no element.
  void find_counted() {
    const auto is_known = [&](int input) {
      const int producer = direct_producer(input);
      return graph_.tensors[input].memory == Memory::constant || (producer >= 0 && counted_[producer]);
    };
    for (int op = 0; op < op_count(); ++op)
      counted_[op] = !folded_.folded[op] && is_pointwise(graph_.ops[op]) && is_virtual_result(op) &&
                     (is_gen_index(op) || std::ranges::all_of(graph_.ops[op].inputs, is_known));
  }

  bool gathers_windows(int group) const {
    const GroupFacts& facts = facts_[group];
    return facts.anchors.empty() && facts.has_gather && !facts.has_grouped && !facts.reductions.empty() &&
           std::ranges::all_of(facts.reductions, [&](int reduction) {
             return row_elements(reduction) > 1 && row_elements(reduction) <= kMostPlaces;
           });
  }

  // A cheap op over a smaller shape (a scaled bias) is computed again at each use by the one group that reads
  // it.
  void absorb_small(int op) {
    if (!is_virtual_result(op) || size_of(group_of(op)) != 1 ||
        pointwise_cost(graph_.ops[op]) > kCheapInstructions)
      return;
    int reader = -1;
    for (const int consumer : consumers(op)) {
      if (folded_.folded[consumer] || !is_pointwise(graph_.ops[consumer])) return;
      if (reader >= 0 && group_of(consumer) != reader) return;
      reader = group_of(consumer);
      if (before_anchor_[consumer]) return;
    }
    if (reader < 0) return;
    // A pair may be cut between its siblings: what both read must then be stored.
    if (anchors_of(reader).size() > 1 && consumers(op).size() > 1) return;
    const Dims domain = domain_of(reader);
    Dims joined;
    const bool fits = !domain.empty() && broadcast_dims(result_dims(op), domain, joined) &&
                      joined == domain && element_count(result_dims(op)) < element_count(domain);
    if (fits && !facts_[reader].has_grouped && fits_one_fusion(group_of(op), reader) &&
        !order_.would_wait_for_itself(group_of(op), reader))
      merge(group_of(op), reader);
  }

  const Graph& graph_;
  const FoldedGraph& folded_;
  GroupOrder order_;
  std::vector<GroupFacts> facts_;    // per group
  std::vector<bool> before_anchor_;  // per op: it lies on the way to an anchor of its group
  std::vector<bool> rows_own_;       // per op: rows need it and nobody else
  std::vector<bool> counted_;        // per op: made of coordinates and constants alone
  // Per tensor, of the readers looked at so far: how many, and one of each group.
  std::vector<size_t> readers_seen_;
  std::vector<std::vector<int>> reader_groups_;
  std::vector<int> met_in_;  // per op or group: the walk that met it last
  int walk_ = 0;
};

}  // namespace

std::vector<std::vector<int>> partition(const Graph& graph, const FoldedGraph& folded) {
  return Partitioner(graph, folded).run();
}

}  // namespace fusor
